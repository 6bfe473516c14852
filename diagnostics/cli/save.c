/* SPDX-License-Identifier: Apache-2.0
 *
 * save: see save.h.
 */
#include "diagnostics/cli/save.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

static void hold_signals(sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, before);
}

static void let_signals(const sigset_t *before)
{
    sigprocmask(SIG_SETMASK, before, NULL);
}

/* A temporary name beside path, as a template for mkstemp() and mkdtemp(). */
static int temporary(char dst[PATH_MAX], const char *path, struct err *err)
{
    if (snprintf(dst, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return err_sys(err, ENAMETOOLONG, "%.100s...", path);
    return 0;
}

static int write_to(int fd, const struct buf *b, const char *path, struct err *err)
{
    int rc = fd_write_full(fd, b->data, b->len, UINT64_MAX);
    return rc < 0 ? err_sys(err, -rc, "%s", path) : 0;
}

static int save_new(const char *path, const struct buf *b, struct err *err)
{
    char name[PATH_MAX];
    int rc = temporary(name, path, err);
    if (rc < 0)
        return rc;
    auto_close int fd = mkstemp(name);
    if (fd < 0)
        return err_sys(err, errno, "%s", path);
    rc = write_to(fd, b, path, err);
    /* Some file systems report a full disk only here. */
    if (rc == 0 && (fsync(fd) < 0 && errno != EINVAL && errno != EROFS))
        rc = err_sys(err, errno, "%s", path);
    if (rc == 0 && rename(name, path) < 0)
        rc = err_sys(err, errno, "%s", path);
    if (rc < 0)
        unlink(name);
    return rc;
}

int save_file(const char *path, const struct buf *b, struct err *err)
{
    struct stat st;
    sigset_t before;
    int rc;
    if (b->failed)
        return err_set(err, ENOMEM, "%s: no memory", path);
    hold_signals(&before);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        auto_close int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        rc = fd < 0 ? err_sys(err, errno, "%s", path) : write_to(fd, b, path, err);
    } else {
        rc = save_new(path, b, err);
    }
    let_signals(&before);
    return rc;
}

/* ---- folders -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Creates the folders above path; the first n bytes of path exist already. */
static int make_way(char *path, size_t n)
{
    for (char *slash = strchr(path + n, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
        *slash = '/';
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int put_entry(char *path, const struct captured *e)
{
    char target[PATH_MAX];
    switch (e->kind) {
    case 'd':
        return mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
    case 'l':
        snprintf(target, sizeof(target), "%.*s", (int)e->len, e->bytes);
        return symlink(target, path) < 0 ? -errno : 0;
    default: {
        auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        return fd < 0 ? -errno : fd_write_full(fd, e->bytes, e->len, UINT64_MAX);
    }
    }
}

/* Links are written last, so that no file is written through one. */
static int fill_folder(const char *dir, const struct capture *c, struct err *err)
{
    char path[PATH_MAX];
    size_t n = strlen(dir) + 1;
    for (int links = 0; links < 2; links++) {
        for (size_t i = 0; i < c->n; i++) {
            const struct captured *e = &c->entries[i];
            if ((e->kind == 'l') != (links == 1))
                continue;
            if (snprintf(path, sizeof(path), "%s/%s", dir, e->path) >= (int)sizeof(path))
                return err_sys(err, ENAMETOOLONG, "%s", e->path);
            int rc = make_way(path, n);
            if (rc == 0)
                rc = put_entry(path, e);
            if (rc < 0)
                return err_sys(err, -rc, "%s", e->path);
        }
    }
    return 0;
}

int save_folder(const char *path, const struct capture *c, struct err *err)
{
    char name[PATH_MAX], to[PATH_MAX];
    sigset_t before;
    snprintf(to, sizeof(to), "%s", path);
    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/'; n--)
        to[n - 1] = '\0';
    int rc = temporary(name, to, err);
    if (rc < 0)
        return rc;
    hold_signals(&before);
    if (!mkdtemp(name)) {
        rc = err_sys(err, errno, "%s", path);
    } else {
        rc = fill_folder(name, c, err);
        if (rc < 0)
            err_prefix(err, "%s", path);
        if (rc == 0 && rename(name, to) < 0)
            rc = err_sys(err, errno, "%s", path);
        if (rc < 0)
            remove_tree(name);
    }
    let_signals(&before);
    return rc;
}
