/* SPDX-License-Identifier: Apache-2.0
 *
 * printer_files: the output files of ranks (--output-filename), written by a thread (writer.h). All
 * files together are one outlet, with one bound. See printer.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/printer_private.h"
#include "core/base/clock.h"

#define CUT_MARK " ...\n" /* ends a line whose rest was dropped */
#define FILES_LAST_MS                                                                              \
    10000ULL /* hvdrun waits so long, at its end, for a disk that takes nothing                    \
              */

static int make_dir(const char *path, struct err *err)
{
    return mkdir(path, 0777) < 0 && errno != EEXIST ? err_sys(err, errno, "%s", path) : 0;
}

int printer_open_dir(struct printer *p, struct err *err)
{
    int rc = writer_open(&p->writer);
    return rc < 0 ? err_sys(err, -rc, "a thread for output files") : make_dir(p->dir, err);
}

/* Opens without waiting: a FIFO without a reader is an error (ENXIO). */
static int open_file(struct printer *p, const char *path, struct err *err)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (p->append ? O_APPEND : O_TRUNC);
    int fd = open(path, flags, 0666);
    if (fd < 0)
        return err_sys(err, errno, "%s", path);
    int file = writer_add(p->writer, fd, true);
    if (file < 0)
        close(fd);
    return file < 0 ? err_set(err, ENOMEM, "no memory for %s", path) : file;
}

void printer_rank_folder(int first_ranks, int rank, char dst[PRINTER_FOLDER])
{
    char last[16];
    int width = snprintf(last, sizeof(last), "%d", first_ranks - 1);
    snprintf(dst, PRINTER_FOLDER, "rank.%0*d", width, rank);
}

int printer_open_files(struct printer *p, int rank, struct err *err)
{
    char path[4096], folder[PRINTER_FOLDER];
    printer_rank_folder(p->first_ranks, rank, folder);
    snprintf(path, sizeof(path), "%s/%s", p->dir, folder);
    int rc = make_dir(path, err);
    for (int s = 0; s < FRAME_STREAMS && rc >= 0; s++) {
        snprintf(path, sizeof(path), "%s/%s/%s", p->dir, folder, frame_stream_name(s));
        rc = open_file(p, path, err);
        p->streams[rank][s].file = rc >= 0 ? rc : -1;
    }
    return rc < 0 ? rc : 0;
}

enum outlet_state printer_files_state(const struct printer *p)
{
    uint64_t moved = 0;
    size_t n = p->writer ? writer_pending(p->writer, &moved) : 0;
    return outlet_state(n, p->max, moved, clock_ns());
}

/* ---- writing -------------------------------------------------------------------------------- */

static void put(struct printer *p, struct printer_stream *st, const void *data, size_t n)
{
    if (n == 0)
        return;
    if (writer_put(p->writer, st->file, data, n) < 0) { /* no memory */
        st->file_loss.bytes += n;
        st->file_cut = true;
        return;
    }
    st->file_open = ((const char *)data)[n - 1] != '\n';
}

static void say_loss(struct printer *p, struct printer_stream *st)
{
    char line[160] = CUT_MARK;
    if (st->file_loss.bytes == 0)
        return;
    size_t from = st->file_open ? sizeof(CUT_MARK) - 1 : 0;
    size_t n =
        outlet_say(&st->file_loss, "the disk was too slow", line + from, sizeof(line) - from);
    put(p, st, line, from + n);
}

static void drop(struct printer_stream *st, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        st->file_loss.lines += data[i] == '\n';
    st->file_loss.bytes += n;
    st->file_cut = data[n - 1] != '\n';
}

void printer_put_file(struct printer *p, const struct frame *frame)
{
    struct printer_stream *st = &p->streams[frame->rank][frame->stream];
    const uint8_t *data = frame->data;
    size_t n = frame->len;
    if (st->file < 0 || n == 0)
        return;
    if (printer_files_state(p) == OUTLET_DROP) {
        drop(st, data, n);
        return;
    }
    if (st->file_cut) { /* drop the rest of a line whose start was dropped */
        const uint8_t *newline = memchr(data, '\n', n);
        size_t rest = newline ? (size_t)(newline + 1 - data) : n;
        drop(st, data, rest);
        data += rest;
        n -= rest;
    }
    if (!st->file_cut)
        say_loss(p, st);
    put(p, st, data, n);
}

/* ---- the end -------------------------------------------------------------------------------- */

void printer_finish_files(struct printer *p)
{
    for (int r = 0; r < p->nranks && p->writer; r++)
        for (int s = 0; s < FRAME_STREAMS; s++)
            if (p->streams[r][s].file >= 0)
                say_loss(p, &p->streams[r][s]);
}

/* Has the disk taken nothing for so long that hvdrun does not wait for it at its end? */
static bool is_stuck(const struct printer *p)
{
    uint64_t moved;
    return writer_pending(p->writer, &moved) > 0 && clock_ns() > moved + FILES_LAST_MS * CLOCK_MS;
}

size_t printer_pending_files(const struct printer *p)
{
    return p->writer && !is_stuck(p) ? writer_pending(p->writer, NULL) : 0;
}

/* Sets p->file_name, for messages. */
static void name_file(struct printer *p, int file)
{
    char folder[PRINTER_FOLDER];
    for (int r = 0; r < p->nranks; r++) {
        printer_rank_folder(p->first_ranks, r, folder);
        for (int s = 0; s < FRAME_STREAMS; s++)
            if (p->streams[r][s].file == file)
                snprintf(p->file_name, sizeof(p->file_name), "%s/%s", folder, frame_stream_name(s));
    }
}

void printer_watch_files(struct printer *p)
{
    int file = -1;
    if (!p->writer || p->file_error)
        return;
    p->file_error = writer_failed(p->writer, &file);
    if (!p->file_error && p->finishing && is_stuck(p)) {
        file = writer_first_pending(p->writer);
        p->file_error = file < 0 ? 0 : ETIMEDOUT;
    }
    if (p->file_error)
        name_file(p, file);
}
