/* SPDX-License-Identifier: Apache-2.0
 *
 * logs: see logs.h.
 */
#include "diagnostics/cli/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"

#define PIECE       (1u << 20)
#define DEPTH_MAX   4
#define PROGRESS_MS 1000

struct reading {
    struct match *match;
    char *piece;
    uint64_t files;
    uint64_t bytes, size;   /* bytes read of this file, and its size; 0: unknown */
    uint64_t next_progress; /* UINT64_MAX: no progress is shown */
    bool shown;
};

/* Shows progress on standard error, if that is a terminal, once reading takes longer than
 * PROGRESS_MS. */
static void progress(struct reading *r, const char *name)
{
    if (clock_ns() < r->next_progress)
        return;
    r->next_progress = deadline_in_ms(PROGRESS_MS / 4);
    r->shown = true;
    if (r->size)
        fprintf(stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64 " MiB", name, r->bytes >> 20,
                r->size >> 20);
    else
        fprintf(stderr, "\r\033[K%s: %" PRIu64 " MiB", name, r->bytes >> 20);
}

static void progress_end(struct reading *r)
{
    if (r->shown)
        fputs("\r\033[K", stderr);
    r->shown = false;
}

static int read_fd(struct reading *r, int fd, const char *name, struct err *err)
{
    struct stat st;
    struct match_source *source = match_open_source(r->match, name, -1);
    if (!source)
        return err_set(err, ENOMEM, "%s: no memory", name);
    r->bytes = 0;
    r->size = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    r->files++;
    for (;;) {
        ssize_t n = read(fd, r->piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "%s", name);
        if (n == 0)
            break;
        match_feed(source, r->piece, (size_t)n);
        r->bytes += (uint64_t)n;
        progress(r, name);
    }
    match_close_source(source);
    return 0;
}

static int read_path(struct reading *r, const char *path, int depth, struct err *err);

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int read_folder(struct reading *r, const char *path, int depth, struct err *err)
{
    struct dirent **names;
    int rc = 0, n = scandir(path, &names, not_hidden, versionsort);
    if (n < 0)
        return err_sys(err, errno, "%s", path);
    for (int i = 0; i < n; i++) {
        char below[PATH_MAX];
        if (snprintf(below, sizeof(below), "%s/%s", path, names[i]->d_name) >= (int)sizeof(below))
            rc = rc < 0 ? rc : err_sys(err, ENAMETOOLONG, "%s", path);
        if (rc == 0)
            rc = read_path(r, below, depth + 1, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int read_path(struct reading *r, const char *path, int depth, struct err *err)
{
    struct stat st;
    if (strcmp(path, "-") == 0 && depth == 0)
        return read_fd(r, STDIN_FILENO, "standard input", err);
    if (stat(path, &st) < 0)
        return err_sys(err, errno, "%s", path);
    if (S_ISDIR(st.st_mode))
        return depth < DEPTH_MAX ? read_folder(r, path, depth, err) : 0;
    if (depth > 0 && !S_ISREG(st.st_mode)) /* found in a folder, not named by the user */
        return 0;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? err_sys(err, errno, "%s", path) : read_fd(r, fd, path, err);
}

int logs_read(const struct cli_words *paths, struct match *match, struct err *err)
{
    auto_free char *piece = malloc(PIECE);
    struct reading r = {.match = match, .piece = piece};
    int rc = 0;
    if (!piece)
        return err_set(err, ENOMEM, "no memory");
    r.next_progress = isatty(STDERR_FILENO) ? deadline_in_ms(PROGRESS_MS) : UINT64_MAX;
    for (size_t i = 0; rc == 0 && i < paths->n; i++) {
        uint64_t before = r.files;
        rc = read_path(&r, paths->v[i], 0, err);
        if (rc == 0 && r.files == before)
            rc = err_set(err, ENOENT, "%s: no file in this folder", paths->v[i]);
    }
    progress_end(&r);
    return rc;
}

/* match_print() writes to a stream. */
void logs_print(const struct match_result *result, struct buf *out)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f) {
        match_print(result, f);
        fclose(f);
        buf_put(out, text, len);
    }
    out->failed |= !f;
    free(text);
}
