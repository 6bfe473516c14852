/* SPDX-License-Identifier: Apache-2.0
 *
 * open_fds: counts this process's descriptors, for leak tests. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_OPEN_FDS_H
#define HVD_TESTS_HARNESS_OPEN_FDS_H

#include <dirent.h>

static inline int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

#endif
