/* SPDX-License-Identifier: Apache-2.0
 *
 * framework: Python interpreters and the packages torch, horovod, hvd; see probes.h. All of it is
 * read from files: no interpreter is started, because importing torch takes seconds.
 */
#include <errno.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"
#include "diagnostics/prober/copies.h"
#include "diagnostics/prober/out.h"
#include "diagnostics/prober/probes.h"

#define TEXT_MAX (64u << 10)

/* Finds a line such as __version__ = '2.6.0' and copies the quoted word to dst; name is the
 * variable. */
static bool assigned(const char *text, const char *name, char *dst, size_t size)
{
    size_t n = strlen(name);
    for (const char *s = text; s; s = strchr(s, '\n')) {
        s += *s == '\n';
        if (strncmp(s, name, n) != 0)
            continue;
        const char *end = s + strcspn(s, "\n"), *quote = s + n + strcspn(s + n, "'\"\n");
        if (quote >= end || !memchr(s + n, '=', (size_t)(quote - s) - n))
            continue;
        snprintf(dst, size, "%.*s", (int)strcspn(quote + 1, "'\"\n"), quote + 1);
        return true;
    }
    return false;
}

static char *site_file(const char *site, const char *name)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t len;
    snprintf(path, sizeof(path), "%s/%s", site, name);
    return fd_read_file(path, TEXT_MAX, &text, &len) < 0 ? NULL : text;
}

/* Finds the version in the name of a package's metadata folder: tensorflow-1.15.0.dist-info. */
static bool metadata(const char *site, const char *package, char *dst, size_t size)
{
    char pattern[PATH_MAX];
    glob_t found;
    bool ok = false;
    snprintf(pattern, sizeof(pattern), "%s/%s-[0-9]*.dist-info", site, package);
    if (glob(pattern, 0, NULL, &found) == 0) {
        const char *name = strrchr(found.gl_pathv[0], '/') + 1 + strlen(package) + 1;
        const char *end = strstr(name, ".dist-info");
        snprintf(dst, size, "%.*s", end ? (int)(end - name) : 0, name);
        ok = end != NULL;
    }
    globfree(&found);
    return ok;
}

/* Prints a package's version: from torch/version.py (__version__, cuda), horovod/__init__.py
 * (__version__), else from the metadata folder. */
static void put_package(const char *site, const char *list, const char *file, int *n)
{
    char value[64], path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", site, list);
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    out_at(list, *n, "path", "%s", path);
    auto_free char *text = file ? site_file(site, file) : NULL;
    if ((text && assigned(text, "__version__", value, sizeof(value))) ||
        metadata(site, list, value, sizeof(value)))
        out_at(list, *n, "version", "%s", value);
    if (text && assigned(text, "cuda", value, sizeof(value)))
        out_at(list, *n, "cuda", "%s", value);
    (*n)++;
}

static void put_packages(void)
{
    struct sites sites;
    int torch = 0, horovod = 0, hvd = 0, tensorflow = 0;
    sites_find(&sites);
    for (int i = 0; i < sites.n; i++) {
        out_at("site", i, "path", "%s", sites.dir[i]);
        put_package(sites.dir[i], "torch", "torch/version.py", &torch);
        put_package(sites.dir[i], "horovod", "horovod/__init__.py", &horovod);
        put_package(sites.dir[i], "hvd", "hvd/__init__.py", &hvd);
        put_package(sites.dir[i], "tensorflow", NULL, &tensorflow);
    }
    sites_fini(&sites);
}

/* Prints a Python interpreter. python3 links to /usr/bin/python3.11: the version is taken from
 * the file's name. */
static void put_python(const char *dir, int *n)
{
    static char first[PATH_MAX]; /* /bin may link to /usr/bin: the same interpreter counts once */
    char path[PATH_MAX + 16], real[PATH_MAX];
    snprintf(path, sizeof(path), "%s/python3", dir);
    if (access(path, X_OK) < 0 || !realpath(path, real) || strcmp(real, first) == 0)
        return;
    memcpy(first, real, sizeof(first));
    out_at("python", *n, "path", "%s", path);
    out_at("python", *n, "real", "%s", real);
    const char *base = strrchr(real, '/') + 1;
    if (strncmp(base, "python3.", 8) == 0)
        out_at("python", *n, "version", "%s", base + 6);
    (*n)++;
}

int probe_framework(const char *unused)
{
    char dir[PATH_MAX];
    int n = 0;
    const char *path = getenv("PATH");
    out_put("glibc", "%s", gnu_get_libc_version());
    while (path && *path && n < 8) {
        size_t len = strcspn(path, ":");
        if (len && len < sizeof(dir)) {
            memcpy(dir, path, len);
            dir[len] = '\0';
            put_python(dir, &n);
        }
        path += len + (path[len] == ':');
    }
    put_packages();
    return 0;
}
