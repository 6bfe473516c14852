/* SPDX-License-Identifier: Apache-2.0
 *
 * cleanup: locals that release what they own when they go out of scope; TAKE hands over.
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

/* The pointer's value; the variable is NULL afterwards and frees nothing. */
#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

/* The same for a descriptor: -1 stays behind. */
static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
