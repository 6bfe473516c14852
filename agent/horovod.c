/* SPDX-License-Identifier: Apache-2.0
 *
 * horovod: see horovod.h.
 */
#include "agent/horovod.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/program.h"

#define PACKAGE "hvd/names"

/* Relative to the folder of this program. */
static const char *const places[] = {
    "../core/python/" PACKAGE, /* a checkout's build folder */
    "../../core/python/" PACKAGE,
    "../python/" PACKAGE, /* the bundle */
    "../lib/python3*/site-packages/" PACKAGE,
    "../lib/python3*/dist-packages/" PACKAGE,
};

/* Copies a path so that glob() takes each character as it is. -ENAMETOOLONG. */
static int escape(char *dst, size_t size, const char *path)
{
    size_t n = 0;
    for (; *path; path++) {
        if (n + 3 > size)
            return -ENAMETOOLONG;
        if (strchr("*?[]\\", *path))
            dst[n++] = '\\';
        dst[n++] = *path;
    }
    dst[n] = '\0';
    return 0;
}

/* Stores the first folder that the pattern finds. */
static int find(const char *pattern, char *dst, size_t size)
{
    glob_t found = {0};
    char path[PATH_MAX];
    int rc = -ENOENT;
    if (glob(pattern, 0, NULL, &found) == 0 && realpath(found.gl_pathv[0], path)) {
        int n = snprintf(dst, size, "%s", path);
        rc = n < (int)size ? 0 : -ENAMETOOLONG;
    }
    globfree(&found);
    return rc;
}

int horovod_folder(char *dst, size_t size, struct err *err)
{
    char here[PATH_MAX], plain[2 * PATH_MAX], pattern[2 * PATH_MAX + 64];
    int rc = program_folder(here, sizeof(here), err);
    if (rc == 0 && escape(plain, sizeof(plain), here) < 0)
        rc = err_set(err, ENAMETOOLONG, "the folder of this program has too long a name");
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(pattern, sizeof(pattern), "%s%s", plain, places[i]);
        if (find(pattern, dst, size) == 0)
            return 0;
    }
    return err_set(err, ENOENT,
                   "no Python package of hvd belongs to %s: install it (make install, "
                   "or pip install), or let the program call hvd.horovod_alias.install()",
                   here);
}

int horovod_apply(struct err *err)
{
    const char *wanted = getenv("HVD_HOROVOD"), *old = getenv("PYTHONPATH");
    char folder[PATH_MAX];
    if (!wanted || strcmp(wanted, "1") != 0)
        return 0;
    int rc = horovod_folder(folder, sizeof(folder), err);
    if (rc < 0)
        return rc;
    size_t n = strlen(folder) + 1 + (old ? strlen(old) : 0) + 1;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "");
    rc = path && setenv("PYTHONPATH", path, 1) == 0 ? 0 : err_set(err, ENOMEM, "no memory");
    free(path);
    return rc;
}
