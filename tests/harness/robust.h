/* SPDX-License-Identifier: Apache-2.0
 *
 * robust: whether this kernel keeps robust lists (set_robust_list(2)), which lifelines are made of.
 * A kernel without futexes does not, and neither does qemu-user.
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

/* True where they are missing: says so as a skip of the test id, whose main is to return 77. Asks
 * for the list that the thread has already, so nothing changes. */
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
