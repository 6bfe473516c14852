/* SPDX-License-Identifier: Apache-2.0
 *
 * printer: see printer.h.
 */
#include "agent/printer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"

#define LINE_MAX_HELD 65536
#define PARTIAL_MS    500ULL

static const char *const names[FRAME_STREAMS] = {"stdout", "stderr"};

/* ---- files ---------------------------------------------------------------------------------- */

static int make_dir(const char *path, struct err *err)
{
    return mkdir(path, 0777) < 0 && errno != EEXIST ? err_sys(err, errno, "%s", path) : 0;
}

static int open_files(struct printer *p, int rank, int width, struct err *err)
{
    char path[4096];
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (p->append ? O_APPEND : O_TRUNC);
    snprintf(path, sizeof(path), "%s/rank.%0*d", p->dir, width, rank);
    int rc = make_dir(path, err);
    for (int s = 0; s < FRAME_STREAMS && rc == 0; s++) {
        snprintf(path, sizeof(path), "%s/rank.%0*d/%s", p->dir, width, rank, names[s]);
        p->streams[rank][s].file = open(path, flags, 0666);
        if (p->streams[rank][s].file < 0)
            rc = err_sys(err, errno, "%s", path);
    }
    return rc;
}

/* Room for ranks up to nranks, without files. */
static int add_streams(struct printer *p, int nranks)
{
    struct printer_stream **grown = realloc(p->streams, (size_t)nranks * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    p->streams = grown;
    for (; p->nranks < nranks; p->nranks++) {
        struct printer_stream *fresh = calloc(FRAME_STREAMS, sizeof(*fresh));
        if (!fresh)
            return -ENOMEM;
        for (int s = 0; s < FRAME_STREAMS; s++)
            fresh[s].file = -1;
        p->streams[p->nranks] = fresh;
    }
    return 0;
}

void printer_grow(struct printer *p, int nranks)
{
    struct err err;
    char last[16];
    int first = p->nranks;
    if (nranks <= first || add_streams(p, nranks) < 0 || !p->dir)
        return;
    int width = snprintf(last, sizeof(last), "%d", p->first_ranks - 1);
    for (int r = first; r < p->nranks; r++) {
        if (open_files(p, r, width, &err) < 0 && !p->file_error) {
            p->file_error = -err.code;
            snprintf(p->file_name, sizeof(p->file_name), "rank.%d", r);
        }
    }
}

int printer_init(struct printer *p, struct loop *loop, int nranks, bool prefix, const char *dir,
                 bool append, void (*drained)(void *arg), void *arg, struct err *err)
{
    *p = (struct printer){.loop = loop, .first_ranks = nranks, .prefix = prefix, .append = append};
    sink_init(&p->sinks[FRAME_STDOUT], loop, STDOUT_FILENO, drained, arg);
    sink_init(&p->sinks[FRAME_STDERR], loop, STDERR_FILENO, drained, arg);
    char last[16];
    int width = snprintf(last, sizeof(last), "%d", nranks - 1);
    p->dir = dir ? strdup(dir) : NULL;
    int rc = add_streams(p, nranks) < 0 || (dir && !p->dir)
                 ? err_set(err, ENOMEM, "no memory for the output of %d ranks", nranks)
                 : 0;
    if (rc == 0 && dir)
        rc = make_dir(dir, err);
    for (int r = 0; r < nranks && rc == 0 && dir; r++)
        rc = open_files(p, r, width, err);
    if (rc < 0)
        printer_fini(p);
    return rc;
}

void printer_fini(struct printer *p)
{
    for (int r = 0; p->streams && r < p->nranks; r++) {
        for (int s = 0; s < FRAME_STREAMS; s++) {
            buf_fini(&p->streams[r][s].line);
            if (p->streams[r][s].file >= 0)
                close(p->streams[r][s].file);
        }
        free(p->streams[r]);
    }
    free(p->streams);
    free(p->dir);
    if (p->loop)
        loop_timer_stop(p->loop, &p->timer);
    for (int s = 0; s < FRAME_STREAMS; s++)
        sink_fini(&p->sinks[s]);
    *p = (struct printer){0};
}

static void flush(struct printer *p)
{
    for (int s = 0; s < FRAME_STREAMS; s++)
        sink_flush(&p->sinks[s]);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Somebody else's unfinished line is finished first. */
static void end_open_line(struct printer *p, int stream, const struct printer_stream *next)
{
    if (p->open[stream] && p->open[stream] != next)
        sink_put(&p->sinks[stream], "\n", 1);
    if (p->open[stream] != next)
        p->open[stream] = NULL;
}

/* Shows bytes of one line; whole: they end with its newline. */
static void show(struct printer *p, int rank, int stream, const uint8_t *data, size_t n, bool whole)
{
    struct printer_stream *st = &p->streams[rank][stream];
    struct sink *sink = &p->sinks[stream];
    char head[48];
    end_open_line(p, stream, st);
    if (p->prefix && p->open[stream] != st)
        sink_put(sink, head,
                 (size_t)snprintf(head, sizeof(head), "[%d]<%s>:", rank, names[stream]));
    sink_put(sink, data, n);
    p->open[stream] = whole ? NULL : st;
}

static void show_held(struct printer *p, int rank, int stream)
{
    struct printer_stream *st = &p->streams[rank][stream];
    if (st->line.len > 0)
        show(p, rank, stream, st->line.data, st->line.len, false);
    buf_reset(&st->line);
}

/* Unfinished lines that nothing was added to for a while, a prompt or a progress bar, are shown as
 * they are; where output only waits for whoever reads it they are left alone. */
static void on_timer(void *arg)
{
    struct printer *p = arg;
    uint64_t now = clock_ns();
    bool again = false;
    for (int r = 0; r < p->nranks; r++) {
        for (int s = 0; s < FRAME_STREAMS; s++) {
            if (sink_pending(&p->sinks[s]) > 0)
                p->streams[r][s].came = now;
            else if (now - p->streams[r][s].came >= PARTIAL_MS * CLOCK_MS)
                show_held(p, r, s);
            again |= p->streams[r][s].line.len > 0;
        }
    }
    flush(p);
    if (again)
        loop_timer_start(p->loop, &p->timer, PARTIAL_MS / 2, on_timer, p);
}

static void put_lines(struct printer *p, int rank, int stream, const uint8_t *data, size_t n)
{
    struct printer_stream *st = &p->streams[rank][stream];
    st->came = clock_ns();
    while (n > 0) {
        const uint8_t *newline = memchr(data, '\n', n);
        size_t take = newline ? (size_t)(newline + 1 - data) : n;
        if (newline && st->line.len == 0) {
            show(p, rank, stream, data, take, true);
        } else {
            buf_put(&st->line, data, take);
            if (st->line.failed) { /* no memory to hold it: shown as it comes */
                show_held(p, rank, stream);
                show(p, rank, stream, data, take, newline);
            } else if (newline) {
                show(p, rank, stream, st->line.data, st->line.len, true);
                buf_reset(&st->line);
            }
        }
        data += take;
        n -= take;
    }
    if (st->line.len > LINE_MAX_HELD)
        show_held(p, rank, stream);
    if (st->line.len > 0 && !p->timer.on)
        loop_timer_start(p->loop, &p->timer, PARTIAL_MS, on_timer, p);
}

/* After an error the file stays as it is: a hole in the middle would be worse. */
static void put_file(struct printer *p, struct printer_stream *st, const struct frame *frame)
{
    int rc = fd_write_full(st->file, frame->data, frame->len, deadline_in_ms(5000));
    if (rc >= 0)
        return;
    close(st->file);
    st->file = -1;
    if (p->file_error)
        return;
    p->file_error = -rc;
    snprintf(p->file_name, sizeof(p->file_name), "rank.%u/%s", frame->rank, names[frame->stream]);
}

void printer_put(struct printer *p, const struct frame *frame)
{
    if (frame->rank >= (uint32_t)p->nranks)
        return;
    struct printer_stream *st = &p->streams[frame->rank][frame->stream];
    if (st->file >= 0)
        put_file(p, st, frame);
    put_lines(p, (int)frame->rank, (int)frame->stream, frame->data, frame->len);
    flush(p);
}

void printer_say(struct printer *p, const char *text, size_t n)
{
    end_open_line(p, FRAME_STDERR, NULL);
    sink_put(&p->sinks[FRAME_STDERR], text, n);
    flush(p);
}

void printer_finish(struct printer *p)
{
    for (int r = 0; r < p->nranks; r++)
        for (int s = 0; s < FRAME_STREAMS; s++)
            show_held(p, r, s);
    for (int s = 0; s < FRAME_STREAMS && p->prefix; s++)
        end_open_line(p, s, NULL);
    flush(p);
}

int printer_lost(struct printer *p, char *dst, size_t size)
{
    int error = p->sinks[FRAME_STDOUT].failed;
    if (error && !p->said) {
        p->said = true;
        snprintf(dst, size, "standard output");
        return error;
    }
    error = p->file_error;
    if (error <= 0)
        return 0;
    p->file_error = -1;
    snprintf(dst, size, "output file %s", p->file_name);
    return error;
}

size_t printer_pending(const struct printer *p)
{
    return sink_pending(&p->sinks[FRAME_STDOUT]) + sink_pending(&p->sinks[FRAME_STDERR]);
}

bool printer_full(const struct printer *p)
{
    return sink_full(&p->sinks[FRAME_STDOUT]) || sink_full(&p->sinks[FRAME_STDERR]);
}
