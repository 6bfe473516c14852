/* SPDX-License-Identifier: Apache-2.0
 *
 * cleanup: local variables that release what they own at the end of their scope. TAKE passes the
 * ownership on.
 */
#ifndef HVD_BASE_CLEANUP_H
#define HVD_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(f) __attribute__((cleanup(f)))

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* auto_free char *s = NULL;   auto_close int fd = -1; */
#define auto_free  CLEANUP(cleanup_free)
#define auto_close CLEANUP(cleanup_close)

/* Returns the pointer's value and sets the variable to NULL, so that its cleanup frees nothing. */
#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

/* Returns the descriptor and sets *fd to -1, so that its cleanup closes nothing. */
static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
