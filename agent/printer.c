/* SPDX-License-Identifier: Apache-2.0
 *
 * printer: see printer.h.
 */
#include "agent/printer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/printer_private.h"
#include "core/base/clock.h"
#include "core/base/env.h"

#define LINE_MAX_HELD 65536
#define PARTIAL_MS    500ULL
#define FLOW_MS       100

/* ---- life ----------------------------------------------------------------------------------- */

/* Makes room for ranks up to nranks, without opening files. */
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
    int first = p->nranks;
    if (nranks <= first || add_streams(p, nranks) < 0 || !p->dir)
        return;
    for (int r = first; r < p->nranks; r++) {
        if (printer_open_files(p, r, &err) < 0 && !p->file_error) {
            p->file_error = -err.code;
            printer_rank_folder(p->first_ranks, r, p->file_name);
        }
    }
}

int printer_init(struct printer *p, struct loop *loop, int nranks, bool prefix, const char *dir,
                 bool append, void (*drained)(void *arg), void *arg, struct err *err)
{
    uint64_t max = OUTLET_MAX;
    int rc = env_size("OUTPUT_BUFFER", OUTLET_MAX, &max, err);
    if (rc == 0 && max < OUTLET_MIN)
        rc = err_set(err, EINVAL, "HVD_OUTPUT_BUFFER=%llu: want 64K or more",
                     (unsigned long long)max);
    *p = (struct printer){.loop = loop,
                          .first_ranks = nranks,
                          .prefix = prefix,
                          .append = append,
                          .max = max,
                          .drained = drained,
                          .arg = arg};
    sink_init(&p->sinks[FRAME_STDOUT], loop, STDOUT_FILENO, NULL, NULL);
    sink_init(&p->sinks[FRAME_STDERR], loop, STDERR_FILENO, NULL, NULL);
    p->dir = dir ? strdup(dir) : NULL;
    if (rc == 0 && (add_streams(p, nranks) < 0 || (dir && !p->dir)))
        rc = err_set(err, ENOMEM, "no memory for the output of %d ranks", nranks);
    if (rc == 0 && dir)
        rc = printer_open_dir(p, err);
    for (int r = 0; r < nranks && rc == 0 && dir; r++)
        rc = printer_open_files(p, r, err);
    if (rc < 0)
        printer_fini(p);
    return rc;
}

void printer_fini(struct printer *p)
{
    for (int r = 0; p->streams && r < p->nranks; r++) {
        for (int s = 0; s < FRAME_STREAMS; s++)
            buf_fini(&p->streams[r][s].line);
        free(p->streams[r]);
    }
    writer_close(p->writer);
    free(p->streams);
    free(p->dir);
    if (p->loop) {
        loop_timer_stop(p->loop, &p->timer);
        loop_timer_stop(p->loop, &p->flow_timer);
    }
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

/* Ends the incomplete line of another stream with a newline. */
static void end_open_line(struct printer *p, int stream, const struct printer_stream *next)
{
    if (p->open[stream] && p->open[stream] != next)
        sink_put(&p->sinks[stream], "\n", 1);
    if (p->open[stream] != next)
        p->open[stream] = NULL;
}

/* ---- slow readers --------------------------------------------------------------------------- */

static enum outlet_state state_of(const struct printer *p, int stream)
{
    const struct sink *s = &p->sinks[stream];
    return s->failed ? OUTLET_FREE
                     : outlet_state(sink_pending(s), p->max, sink_moved(s), clock_ns());
}

/* There is room again: prints a line that tells how many lines are missing. */
static void say_loss(struct printer *p, int stream)
{
    char line[160];
    p->dropping[stream] = false;
    if (p->loss[stream].bytes == 0)
        return;
    end_open_line(p, stream, NULL);
    size_t n = outlet_say(&p->loss[stream], "nobody read it for a while", line, sizeof(line));
    sink_put(&p->sinks[stream], line, n);
}

/* Are these bytes of a line to be dropped? whole: they end with its newline. */
static bool drop(struct printer *p, struct printer_stream *st, int stream, size_t n, bool whole)
{
    if (state_of(p, stream) != OUTLET_DROP && !st->cut) {
        say_loss(p, stream);
        return false;
    }
    st->cut = !whole;
    p->loss[stream].lines += whole;
    p->loss[stream].bytes += n;
    return true;
}

static void put_prefix(struct printer *p, int rank, int stream)
{
    char head[96];
    time_t now = time(NULL);
    struct tm local;
    size_t n = 0;
    if (p->stamps && localtime_r(&now, &local))
        n = strftime(head, sizeof(head) - 48, "%a %b %d %H:%M:%S %Y", &local);
    n += (size_t)snprintf(head + n, 48, "[%d]<%s>:", rank, frame_stream_name(stream));
    sink_put(&p->sinks[stream], head, n);
}

/* Shows bytes of one line. whole: they end with its newline. */
static void show(struct printer *p, int rank, int stream, const uint8_t *data, size_t n, bool whole)
{
    struct printer_stream *st = &p->streams[rank][stream];
    struct sink *sink = &p->sinks[stream];
    if (drop(p, st, stream, n, whole))
        return;
    end_open_line(p, stream, st);
    if (p->prefix && p->open[stream] != st)
        put_prefix(p, rank, stream);
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

/* Shows incomplete lines to which nothing was added for PARTIAL_MS, such as a prompt or a progress
 * bar. Shows none on a sink that still waits for its reader, and none while ranks wait: the rest of
 * such a line is in a pipe that nobody reads. */
static void on_timer(void *arg)
{
    struct printer *p = arg;
    uint64_t now = clock_ns();
    uint64_t since = p->flow_timer.on ? now : p->resumed;
    bool again = false;
    for (int r = 0; r < p->nranks; r++) {
        for (int s = 0; s < FRAME_STREAMS; s++) {
            struct printer_stream *st = &p->streams[r][s];
            if (sink_pending(&p->sinks[s]) > 0)
                st->came = now;
            else if (now - (st->came > since ? st->came : since) >= PARTIAL_MS * CLOCK_MS)
                show_held(p, r, s);
            again |= st->line.len > 0;
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
            if (st->line.failed) { /* no memory to hold it: show it as it arrives */
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

/* Polls while ranks wait because of printer_full(): no event may announce that there is room again.
 */
static void on_flow(void *arg)
{
    struct printer *p = arg;
    if (printer_full(p)) {
        loop_timer_start(p->loop, &p->flow_timer, FLOW_MS, on_flow, p);
        return;
    }
    p->resumed = clock_ns();
    if (p->drained)
        p->drained(p->arg);
}

void printer_put(struct printer *p, const struct frame *frame)
{
    if (frame->rank >= (uint32_t)p->nranks)
        return;
    printer_put_file(p, frame);
    put_lines(p, (int)frame->rank, (int)frame->stream, frame->data, frame->len);
    flush(p);
    if (printer_full(p) && !p->flow_timer.on)
        loop_timer_start(p->loop, &p->flow_timer, FLOW_MS, on_flow, p);
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
    for (int s = 0; s < FRAME_STREAMS; s++) {
        say_loss(p, s);
        if (p->prefix)
            end_open_line(p, s, NULL);
    }
    printer_finish_files(p);
    p->finishing = true;
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
    printer_watch_files(p);
    error = p->file_error;
    if (error <= 0)
        return 0;
    p->file_error = -1;
    snprintf(dst, size, "output file %s", p->file_name);
    return error;
}

bool printer_stalled(struct printer *p, char *dst, size_t size)
{
    for (int s = 0; s < FRAME_STREAMS; s++) {
        if (p->loss[s].bytes == 0 || p->dropping[s])
            continue;
        p->dropping[s] = true;
        snprintf(dst, size, "standard %s", s == FRAME_STDOUT ? "output" : "error");
        return true;
    }
    return false;
}

size_t printer_pending(const struct printer *p)
{
    return sink_pending(&p->sinks[FRAME_STDOUT]) + sink_pending(&p->sinks[FRAME_STDERR]) +
           printer_pending_files(p);
}

bool printer_full(const struct printer *p)
{
    return state_of(p, FRAME_STDOUT) == OUTLET_FULL || state_of(p, FRAME_STDERR) == OUTLET_FULL ||
           printer_files_state(p) == OUTLET_FULL;
}
