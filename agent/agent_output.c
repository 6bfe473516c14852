/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_output: see agent_output.h.
 */
#include "agent/agent_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"

#define TIMEOUT_MS 4000
#define RETRY_MS   50
#define SILENT_S   3 /* a living hvdrun answers a poll within 2 s */

/* How many bytes at the start of [data, n) are whole frames, at most max. */
static size_t whole_frames(const uint8_t *data, size_t n, size_t max)
{
    struct frame frame;
    size_t pos = 0;
    long size;
    while ((size = frame_get(data + pos, n - pos, &frame)) > 0 && pos + (size_t)size <= max)
        pos += (size_t)size;
    return pos;
}

/* hvdrun has ended. Bytes that the pipe did not take may start in the middle of a frame: skip bytes
 * until the rest parses as frames. */
void agent_output_break(struct agent_output *o)
{
    struct buf rest = {0};
    size_t pos = 0;
    if (o->broken || o->link->config->pod)
        return;
    o->broken = true;
    sink_take(&o->sink, &rest);
    while (pos < rest.len &&
           whole_frames(rest.data + pos, rest.len - pos, SIZE_MAX) != rest.len - pos)
        pos++;
    buf_put(&o->held, rest.data + pos, rest.len - pos);
    o->lost += pos;
    buf_fini(&rest);
    log_info("standard output is closed, because hvdrun has ended: the newest megabyte of the "
             "ranks' output is kept for the next hvdrun");
}

static bool is_silent(const struct agent_output *o)
{
    return o->link->silence.ns >= SILENT_S * CLOCK_S;
}

/* Makes room by dropping the oldest frames. */
static void forget_oldest(struct agent_output *o)
{
    size_t least = o->held.len - SINK_FULL / 2, n = 0;
    struct frame frame;
    long size;
    while (n < least && (size = frame_get(o->held.data + n, o->held.len - n, &frame)) > 0) {
        n += (size_t)size;
        o->lost += frame.len;
    }
    buf_consume(&o->held, n);
}

/* Call when held is full. While a body is in flight, or hvdrun is alive, ranks wait. Otherwise
 * drops the oldest frames. */
static void make_room(struct agent_output *o)
{
    bool forget = is_silent(o) && !o->posting;
    if (forget)
        forget_oldest(o);
    agent_ranks_pause(o->ranks, !forget);
}

static void post(struct agent_output *o);

static void on_retry(void *arg)
{
    post(arg);
}

static void on_posted(void *arg, const struct client_answer *answer)
{
    struct agent_output *o = arg;
    o->posting = false;
    if (answer->status != 0)
        agent_link_answered(o->link);
    bool taken = answer->status == 204 && o->posted_term == o->link->terms;
    if (taken) {
        buf_consume(&o->held, o->sent <= o->held.len ? o->sent : o->held.len);
        o->lost -= o->sent_lost;
        o->seq++;
        o->delivered |= o->sent_end;
        if (!sink_full(&o->sink) && o->held.len < SINK_FULL)
            agent_ranks_pause(o->ranks, false);
    }
    if (taken)
        post(o);
    else if (!o->retry.on)
        loop_timer_start(o->link->loop, &o->retry, RETRY_MS, on_retry, o);
    if (o->delivered)
        o->delivered_cb(o->arg);
}

/* Posts one body at a time. It stays at the front of held until hvdrun has taken it. */
static void post(struct agent_output *o)
{
    if (!o->broken || o->posting || o->delivered || !agent_link_ready(o->link))
        return;
    struct printed_body body = {.seq = o->seq + 1, .lost = o->lost};
    size_t n = whole_frames(o->held.data, o->held.len, OUTPUT_MAX);
    body.end = o->ending && n == o->held.len;
    if (n == 0 && !body.end)
        return;
    snprintf(body.agent, sizeof(body.agent), "%s", o->link->config->agent);
    body.frames = (struct buf){.data = o->held.data, .len = n}; /* lent */
    char *text = printed_write(&body);
    o->posting = text && client_send(o->link->client, "/v1/output", text, TIMEOUT_MS, on_posted, o,
                                     NULL) == 0;
    free(text);
    o->sent = n;
    o->sent_lost = o->lost;
    o->sent_end = body.end;
    o->posted_term = o->link->terms;
    if (!o->posting && !o->retry.on)
        loop_timer_start(o->link->loop, &o->retry, RETRY_MS, on_retry, o);
}

static void on_drained(void *arg)
{
    struct agent_output *o = arg;
    agent_ranks_pause(o->ranks, false);
}

void agent_output_init(struct agent_output *o, struct agent_link *link, struct agent_ranks *ranks,
                       void (*delivered_cb)(void *arg), void *arg)
{
    *o = (struct agent_output){
        .link = link, .ranks = ranks, .delivered_cb = delivered_cb, .arg = arg};
    sink_init(&o->sink, link->loop, STDOUT_FILENO, on_drained, o);
    o->sink.keep = true;
}

void agent_output_fini(struct agent_output *o)
{
    if (!o->link)
        return;
    loop_timer_stop(o->link->loop, &o->retry);
    sink_fini(&o->sink);
    buf_fini(&o->held);
}

void agent_output_write(struct agent_output *o, const struct buf *frame)
{
    if (!o->broken) {
        sink_write(&o->sink, frame->data, frame->len);
        if (o->sink.failed && o->ranks->welcome.elastic)
            agent_output_break(o);
        /* Pause ranks for a slow reader, but not for a broken pipe. */
        if (!o->sink.failed && sink_full(&o->sink))
            agent_ranks_pause(o->ranks, true);
        return;
    }
    buf_put(&o->held, frame->data, frame->len);
    o->held.failed = false;
    if (o->held.len >= SINK_FULL)
        make_room(o);
    post(o);
}

void agent_output_check(struct agent_output *o)
{
    if (!o->broken && o->sink.failed && o->ranks->welcome.elastic)
        agent_output_break(o);
    if (!o->broken)
        return;
    if (o->held.len >= SINK_FULL)
        make_room(o);
    post(o);
}

bool agent_output_delivered(struct agent_output *o, bool late)
{
    if (!o->broken)
        return o->sink.failed || sink_pending(&o->sink) == 0;
    if (!o->ending) {
        o->ending = true;
        post(o);
    }
    return o->delivered || o->link->abandoned || (late && is_silent(o));
}
