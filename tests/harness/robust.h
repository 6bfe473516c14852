/* SPDX-License-Identifier: Apache-2.0
 *
 * robust: tests whether this kernel supports robust lists (set_robust_list(2)), on which lifelines
 * depend. A kernel without futexes does not, and neither does qemu-user.
 */
#ifndef HVD_TESTS_HARNESS_ROBUST_H
#define HVD_TESTS_HARNESS_ROBUST_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* If the kernel has no robust lists, prints that test id is skipped and returns true. The test's
 * main() must then return 77. The check calls get_robust_list(2), so it does not change the robust
 * list of the thread. */
static inline bool robust_missing(const char *id)
{
    struct robust_list_head *head;
    size_t size;
    if (syscall(SYS_get_robust_list, 0, &head, &size) == 0)
        return false;
    printf("SKIP: %s: robust lists: %s\n", id, strerror(errno));
    return true;
}

#endif
