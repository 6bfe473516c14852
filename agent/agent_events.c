/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_events: what happens when a part of the agent reports something: hands it to the parts that
 * need it. See agent.h.
 */
#include <stdio.h>

#include "agent/agent.h"
#include "agent/rank_environment.h"
#include "core/base/log.h"

#define TAIL_LINES 10

/* ---- ranks ---------------------------------------------------------------------------------- */

static void on_output(void *arg, struct rank *rank, enum frame_stream stream, const void *data,
                      size_t n)
{
    struct agent *a = arg;
    struct buf frame = {0};
    if (a->config.pod) {
        agent_pod_print(&a->pod, rank, stream, data, n);
        return;
    }
    frame_put(&frame, (uint32_t)rank->assignment.member, stream, data, n);
    if (!frame.failed)
        agent_output_write(&a->output, &frame);
    buf_fini(&frame);
}

static void on_frame(void *arg, struct rank *rank, struct ctl_frame *frame)
{
    struct agent *a = arg;
    agent_relay_frame(&a->relay, rank, frame);
}

static void on_started(void *arg, struct rank *rank)
{
    struct agent *a = arg;
    struct report_item item = {
        .type = REPORT_STARTED, .member = rank->assignment.member, .pid = (int)rank->pid};
    outbox_report(&a->outbox, &item);
}

static void on_exited(void *arg, struct rank *rank)
{
    struct agent *a = arg;
    bool early = rank->code == 0 && rank->hello && !rank->bye;
    struct report_item item = {.type = REPORT_EXITED,
                               .member = rank->assignment.member,
                               .pid = (int)rank->pid,
                               .code = rank->code};
    char name[64], text[512];
    rank->waiting = false;
    snprintf(item.text, sizeof(item.text), "%s", rank->text);
    tail_text(&rank->tail, TAIL_LINES, item.tail, sizeof(item.tail));
    outbox_report(&a->outbox, &item);
    rank_name(rank, name, sizeof(name));
    roster_end_text(name, a->config.host, (int)rank->pid, rank->code, early, rank->text, text,
                    sizeof(text));
    log_debug("%s", text);
    /* Tell the ranks of this host directly, without a round trip to the coordinator. */
    agent_relay_record_end(&a->relay, rank->assignment.member, END_FINAL, early || rank->code != 0,
                           rank->code, text);
    agent_relay_consider_cards(&a->relay);
    agent_pod_exited(&a->pod, rank);
}

static void on_hello_ended(void *arg, struct rank *rank)
{
    struct agent *a = arg;
    agent_relay_hello_ended(&a->relay, rank);
}

static void on_closed(void *arg, struct rank *rank)
{
    (void)rank;
    agent_wake(arg);
}

static void wake(void *arg)
{
    agent_wake(arg);
}

static void fail(void *arg, const struct err *err)
{
    agent_fail(arg, AGENT_END_INTERNAL, err);
}

static void fail_for(void *arg, enum agent_end end, const struct err *err)
{
    agent_fail(arg, end, err);
}

static const struct agent_ranks_ops ranks_ops = {
    .rank = {.output = on_output,
             .frame = on_frame,
             .started = on_started,
             .exited = on_exited,
             .hello_ended = on_hello_ended,
             .closed = on_closed},
    .all_started = wake,
    .failed = fail,
};

/* ---- doctor --------------------------------------------------------------------------------- */

static int start_ranks(void *arg, struct err *err)
{
    struct agent *a = arg;
    int rc = rank_environment_apply(&a->config, err);
    if (rc < 0)
        return rc;
    rc = agent_relay_open_lifelines(&a->relay, err);
    return rc < 0 ? rc : agent_ranks_start(&a->ranks, err);
}

static const struct agent_doctor_ops doctor_ops = {start_ranks, fail, wake};

/* ---- the coordinator ------------------------------------------------------------------------ */

static void on_outbox(void *arg, bool refused, const char *text)
{
    struct agent *a = arg;
    agent_link_answered(&a->link);
    if (refused)
        log_warn("the coordinator refused a message of this agent, which is dropped: %.300s", text);
    agent_wake(a);
}

/* Callback of the outbox: the coordinator answered that it does not know this agent. Returns true
 * if the agent rejoins. */
static bool on_outbox_unknown(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    agent_link_answered(&a->link);
    return agent_rejoin(a, answer);
}

static bool on_unknown(void *arg, const struct client_answer *answer)
{
    return agent_rejoin(arg, answer);
}

static void start_member(struct agent *a, int member, int local_rank)
{
    struct err err;
    int rc = a->doctor.refused ? err_set(&err, EPERM, "the doctor found a failure on this host")
                               : agent_ranks_add(&a->ranks, member, local_rank, &err);
    struct report_item item = {.type = REPORT_EXITED, .member = member, .code = 1};
    if (rc == 0)
        return;
    snprintf(item.text, sizeof(item.text), "%.500s", err_text(&err));
    log_warn("member %d: %s", member, item.text);
    outbox_report(&a->outbox, &item);
}

static void on_note(void *arg, const struct note *n)
{
    struct agent *a = arg;
    switch (n->type) {
    case NOTE_LOST:
    case NOTE_ENDED:
        agent_relay_record_end(&a->relay, n->member, n->epoch, n->type == NOTE_LOST, n->code,
                               n->text);
        break;
    case NOTE_SIGNAL:
        agent_ranks_signal(&a->ranks, n->code);
        break;
    case NOTE_STOP:
        log_info("ending the ranks: %s", n->text);
        agent_ranks_stop(&a->ranks, n->code);
        break;
    case NOTE_CHANGE:
        agent_relay_announce(&a->relay, (uint32_t)n->code);
        break;
    case NOTE_START:
        start_member(a, n->member, n->code);
        break;
    case NOTE_LEAVE:
        agent_relay_send_leave(&a->relay, n->member, n->text);
        break;
    case NOTE_EVICT:
        agent_relay_evict(&a->relay, n->member, n->text);
        break;
    case NOTE_NUMBERS:
        agent_relay_send_numbers(&a->relay, n->member, &n->numbers);
        break;
    case NOTE_TYPES:
        break;
    }
}

/* Other ranks of a new epoch may wait for those here, whether their agents know of it or not. */
static void on_roster(void *arg, struct roster_body *roster)
{
    struct agent *a = arg;
    client_hurry(a->link.client);
    agent_relay_install(&a->relay, roster);
}

static bool wants_roster(void *arg, uint32_t *ret_after)
{
    struct agent *a = arg;
    *ret_after = a->relay.epoch;
    return agent_relay_wants_roster(&a->relay);
}

static void on_cards_posted(void *arg)
{
    struct agent *a = arg;
    client_hurry(a->link.client); /* ranks wait */
    agent_polls_roster(&a->polls);
}

static const struct agent_polls_ops polls_ops = {on_note, on_roster, wants_roster, on_unknown,
                                                 fail_for};

/* ---- all ------------------------------------------------------------------------------------ */

int agent_open_parts(struct agent *a, struct err *err)
{
    agent_ranks_init(&a->ranks, &a->loop, &a->config, &ranks_ops, a);
    agent_relay_init(&a->relay, &a->loop, &a->config, &a->ranks, &a->outbox, on_cards_posted, a);
    agent_doctor_init(&a->doctor, &a->loop, &a->config, &a->ranks, &a->outbox, &doctor_ops, a);
    int rc = agent_link_open(&a->link, &a->loop, &a->config, err);
    if (rc < 0)
        return rc;
    agent_polls_init(&a->polls, &a->link, &polls_ops, a);
    agent_drain_init(&a->drain, &a->link, &a->ranks);
    agent_output_init(&a->output, &a->link, &a->ranks, wake, a);
    outbox_init(&a->outbox, &a->loop, a->link.client, a->config.agent, on_outbox, a);
    a->outbox.unknown = on_outbox_unknown;
    a->pages = (struct agent_pages){&a->link, &a->ranks, &a->relay, &a->doctor, NULL};
    rc = agent_pages_open(&a->pages, err);
    return rc < 0 ? rc : agent_pod_init(&a->pod, &a->link, &a->ranks, err);
}
