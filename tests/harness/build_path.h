/* SPDX-License-Identifier: Apache-2.0
 *
 * build_path: files of the build folder to which a test program belongs. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_BUILD_PATH_H
#define HVD_TESTS_HARNESS_BUILD_PATH_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes BUILD/NAME of this program's build into ret. The program is BUILD/tests/KIND/..., and the
 * folders above BUILD may have any names. Ends the program if it lies elsewhere. */
static inline void build_path(const char *name, char ret[PATH_MAX])
{
    char exe[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *end = NULL;
    for (char *p = exe; n > 0 && (p = strstr(p, "/tests/")); p++)
        end = p;
    if (!end) {
        fprintf(stderr, "%s is not in BUILD/tests\n", exe);
        exit(1);
    }
    *end = '\0';
    snprintf(ret, PATH_MAX, "%.3000s/%s", exe, name);
}

#endif
