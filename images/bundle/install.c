/* SPDX-License-Identifier: Apache-2.0
 *
 * install: see install.h. Files are copied by read and write, because an image's root and an
 * emptyDir are often on different file systems.
 */
#include "images/bundle/install.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "images/bundle/place.h"

struct copying {
    char *problem;
    size_t size;
};

static int fail(const struct copying *c, const char *what, const char *name)
{
    int error = errno;
    snprintf(c->problem, c->size, "%s %s: %s", what, name, strerror(error));
    return -error;
}

static int copy_bytes(int in, int out)
{
    static char buf[1 << 16];
    for (;;) {
        ssize_t got = read(in, buf, sizeof(buf)), done = 0;
        if (got == 0)
            return 0;
        if (got < 0)
            return -1;
        while (done < got) {
            ssize_t n = write(out, buf + done, (size_t)(got - done));
            if (n < 0)
                return -1;
            done += n;
        }
    }
}

static int copy_file(const struct copying *c, int from, int to, const char *name, mode_t mode)
{
    auto_close int in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0)
        return fail(c, "reading", name);
    auto_close int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (out < 0 || copy_bytes(in, out) < 0)
        return fail(c, "writing", name);
    return fchmod(out, mode) < 0 ? fail(c, "mode of", name) : 0;
}

static int copy_link(const struct copying *c, int from, int to, const char *name)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
    if (n < 0)
        return fail(c, "reading", name);
    target[n] = '\0';
    return symlinkat(target, to, name) < 0 ? fail(c, "writing", name) : 0;
}

static int copy_folder(const struct copying *c, int from, int to, const char *name, int depth);

static int copy_one(const struct copying *c, int from, int to, const char *name, int depth)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(c, "reading", name);
    if (S_ISDIR(st.st_mode))
        return copy_folder(c, from, to, name, depth);
    if (unlinkat(to, name, 0) < 0 && errno != ENOENT)
        return fail(c, "replacing", name);
    if (S_ISLNK(st.st_mode))
        return copy_link(c, from, to, name);
    return S_ISREG(st.st_mode) ? copy_file(c, from, to, name, st.st_mode & 0755) : 0;
}

static int copy_folder(const struct copying *c, int from, int to, const char *name, int depth)
{
    struct dirent *e;
    int rc = 0;
    if (depth > 16) {
        errno = ELOOP;
        return fail(c, "opening", name);
    }
    auto_close int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0)
        return fail(c, "reading", name);
    if (mkdirat(to, name, 0755) < 0 && errno != EEXIST)
        return fail(c, "making", name);
    auto_close int out = openat(to, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int list_fd = dup(in);
    DIR *list = list_fd < 0 ? NULL : fdopendir(list_fd);
    if (out < 0 || !list) {
        rc = fail(c, "opening", name);
    } else {
        while (rc == 0 && (errno = 0, e = readdir(list)))
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                rc = copy_one(c, in, out, e->d_name, depth + 1);
    }
    if (list)
        closedir(list);
    else if (list_fd >= 0)
        close(list_fd);
    return rc;
}

int install(const char *from, const char *to, char *problem, size_t size)
{
    static const char *const folders[] = {BUNDLE_FOLDERS, NULL};
    struct copying c = {.problem = problem, .size = size};
    auto_close int in = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (in < 0)
        return fail(&c, "opening", from);
    auto_close int out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out < 0)
        return fail(&c, "opening", to);
    for (int i = 0; folders[i]; i++) {
        int rc = copy_folder(&c, in, out, folders[i], 0);
        if (rc < 0)
            return rc;
    }
    return 0;
}
