/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_output: brings the ranks' output to hvdrun: through standard output, or, if that pipe broke
 * because hvdrun was killed, to the next hvdrun (POST /v1/output). Until the next hvdrun
 * is there, keeps the newest megabyte and does not make ranks wait. On the agent's loop, one
 * thread.
 */
#ifndef HVD_AGENT_AGENT_OUTPUT_H
#define HVD_AGENT_AGENT_OUTPUT_H

#include <stdbool.h>

#include "agent/agent_link.h"
#include "agent/agent_ranks.h"
#include "agent/sink.h"
#include "core/base/buf.h"

struct agent_output {
    struct agent_link *link;
    struct agent_ranks *ranks; /* paused while a slow reader has no room */
    void (*delivered_cb)(void *arg);
    void *arg;
    struct sink sink; /* standard output, in frames */
    bool broken;      /* the pipe to hvdrun is broken */
    struct buf held;  /* whole frames that wait to be posted */
    uint64_t lost;    /* bytes dropped and not yet reported to hvdrun */
    uint64_t seq;     /* number of the last body that hvdrun accepted */
    bool posting;     /* a body with the first `sent` bytes of held is in flight */
    size_t sent;
    uint64_t sent_lost;
    bool sent_end;
    int posted_term; /* link->terms when the body in flight was sent */
    bool ending;     /* no more output will come */
    bool delivered;  /* hvdrun has received the end */
    struct loop_timer retry;
};

/* delivered_cb: the next hvdrun has received all output. link and ranks must outlive o. */
void agent_output_init(struct agent_output *o, struct agent_link *link, struct agent_ranks *ranks,
                       void (*delivered_cb)(void *arg), void *arg);
void agent_output_fini(struct agent_output *o);

/* Passes on a frame with output of a rank. */
void agent_output_write(struct agent_output *o, const struct buf *frame);

/* The reader of standard output has ended: keeps output for the next hvdrun. */
void agent_output_break(struct agent_output *o);

/* Call in each tick: notices a broken pipe, then keeps and posts the output. */
void agent_output_check(struct agent_output *o);

/* At the end: has hvdrun received all output, or is there no hvdrun? late: the time for the last
 * report has passed, so a silent hvdrun counts as none. */
bool agent_output_delivered(struct agent_output *o, bool late);

#endif
