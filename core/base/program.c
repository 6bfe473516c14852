/* SPDX-License-Identifier: Apache-2.0
 *
 * program: see program.h.
 */
#include "core/base/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int program_folder(char *dst, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", dst, size);
    if (n < 0)
        return err_sys(err, errno, "/proc/self/exe");
    while (n > 0 && dst[n - 1] != '/')
        n--;
    if ((size_t)n >= size)
        return err_set(err, ENAMETOOLONG, "the folder of this program has too long a name");
    dst[n] = '\0';
    return 0;
}

int program_beside(char *dst, size_t size, const char *name, struct err *err)
{
    int rc = program_folder(dst, size, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(dst);
    if (n + strlen(name) >= size)
        return err_set(err, ENAMETOOLONG, "the folder of this program has too long a name");
    memcpy(dst + n, name, strlen(name) + 1);
    return access(dst, X_OK) < 0 ? err_sys(err, errno, "%s", dst) : 0;
}
