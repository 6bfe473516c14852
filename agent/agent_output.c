/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_output: brings the ranks' output to hvdrun: through standard output, or, if that pipe broke
 * because hvdrun was killed, to the next hvdrun (POST /v1/output). Until there is one, keeps the
 * newest megabyte and does not make ranks wait. See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
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
void agent_break_output(struct agent *a)
{
    struct output *o = &a->output;
    struct buf rest = {0};
    size_t pos = 0;
    if (o->broken || a->config.pod)
        return;
    o->broken = true;
    sink_take(&a->out, &rest);
    while (pos < rest.len &&
           whole_frames(rest.data + pos, rest.len - pos, SIZE_MAX) != rest.len - pos)
        pos++;
    buf_put(&o->held, rest.data + pos, rest.len - pos);
    o->lost += pos;
    buf_fini(&rest);
    log_info("standard output is closed: what ranks print is kept for another hvdrun");
}

static bool is_silent(const struct agent *a)
{
    return a->silence.ns >= SILENT_S * CLOCK_S;
}

/* Makes room by dropping the oldest frames. */
static void forget_oldest(struct output *o)
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

/* held is full. While a body is in flight, or hvdrun lives and will take it, ranks wait; else drops
 * the oldest. */
static void make_room(struct agent *a)
{
    bool forget = is_silent(a) && !a->output.posting;
    if (forget)
        forget_oldest(&a->output);
    agent_pause_output(a, !forget);
}

static void post(struct agent *a);

static void on_retry(void *arg)
{
    post(arg);
}

static void on_posted(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct output *o = &a->output;
    o->posting = false;
    if (answer->status != 0)
        agent_answered(a);
    bool taken = answer->status == 204 && o->posted_term == a->terms;
    if (taken) {
        buf_consume(&o->held, o->sent <= o->held.len ? o->sent : o->held.len);
        o->lost -= o->sent_lost;
        o->seq++;
        o->delivered |= o->sent_end;
        if (!sink_full(&a->out) && o->held.len < SINK_FULL)
            agent_pause_output(a, false);
    }
    if (taken)
        post(a);
    else if (!o->retry.on)
        loop_timer_start(&a->loop, &o->retry, RETRY_MS, on_retry, a);
    if (o->delivered)
        agent_wake(a);
}

/* Posts one body at a time. It stays at the front of held until hvdrun has taken it. */
static void post(struct agent *a)
{
    struct output *o = &a->output;
    if (!o->broken || o->posting || o->delivered || !a->joined || a->rejoin_text || a->abandoned)
        return;
    struct printed_body body = {.seq = o->seq + 1, .lost = o->lost};
    size_t n = whole_frames(o->held.data, o->held.len, OUTPUT_MAX);
    body.end = o->ending && n == o->held.len;
    if (n == 0 && !body.end)
        return;
    snprintf(body.agent, sizeof(body.agent), "%s", a->config.agent);
    body.frames = (struct buf){.data = o->held.data, .len = n}; /* lent */
    char *text = printed_write(&body);
    o->posting =
        text && client_send(a->client, "/v1/output", text, TIMEOUT_MS, on_posted, a, NULL) == 0;
    free(text);
    o->sent = n;
    o->sent_lost = o->lost;
    o->sent_end = body.end;
    o->posted_term = a->terms;
    if (!o->posting && !o->retry.on)
        loop_timer_start(&a->loop, &o->retry, RETRY_MS, on_retry, a);
}

void agent_output_init(struct agent *a)
{
    a->out.keep = true;
}

void agent_output_fini(struct agent *a)
{
    loop_timer_stop(&a->loop, &a->output.retry);
    buf_fini(&a->output.held);
}

void agent_print(struct agent *a, const struct buf *frame)
{
    struct output *o = &a->output;
    if (!o->broken) {
        sink_write(&a->out, frame->data, frame->len);
        if (a->out.failed && a->welcome.elastic)
            agent_break_output(a);
        /* Pause ranks for a slow reader, but not for a broken pipe. */
        if (!a->out.failed && sink_full(&a->out))
            agent_pause_output(a, true);
        return;
    }
    buf_put(&o->held, frame->data, frame->len);
    o->held.failed = false;
    if (o->held.len >= SINK_FULL)
        make_room(a);
    post(a);
}

void agent_watch_output(struct agent *a)
{
    struct output *o = &a->output;
    if (!o->broken && a->out.failed && a->welcome.elastic)
        agent_break_output(a);
    if (!o->broken)
        return;
    if (o->held.len >= SINK_FULL)
        make_room(a);
    post(a);
}

bool agent_output_delivered(struct agent *a, bool late)
{
    struct output *o = &a->output;
    if (a->config.pod)
        return agent_pod_printed(a, late);
    if (!o->broken)
        return a->out.failed || sink_pending(&a->out) == 0;
    if (!o->ending) {
        o->ending = true;
        post(a);
    }
    return o->delivered || a->abandoned || (late && is_silent(a));
}
