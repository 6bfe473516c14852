/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_elastic: ranks of an elastic job that join, leave or die while others train. The agent
 * learns of a death by a lifeline before the kernel has freed the process, and evicts a rank that
 * is silent without a good reason. See agent_relay.h and lifelines.h.
 */
#include "agent/agent_relay.h"

#include <stdio.h>
#include <string.h>

#include "core/base/log.h"

#define LEAVE_MS       10000 /* time for a rank to exit after LEAVE */
#define LEAVE_GRACE_MS 2000  /* from SIGTERM, which follows LEAVE_MS, to SIGKILL */

/* ---- lifelines ------------------------------------------------------------------------------- */

static void on_gone(void *arg, struct rank_lifeline *rl, bool evict, const char *text)
{
    struct agent_relay *relay = arg;
    struct rank *rank = list_entry(rl, struct rank, lifeline);
    if (!evict)
        rank_read_frames(rank); /* a BYE may be unread in the socket */
    if (rank->hello && !rank->bye && !relay->ranks->stopping)
        agent_relay_declare_dead(relay, rank, evict, text);
}

static void on_suspected(void *arg, struct rank_lifeline *rl, const char *text)
{
    struct agent_relay *relay = arg;
    struct rank *rank = list_entry(rl, struct rank, lifeline);
    char name[64];
    rank_name(rank, name, sizeof(name));
    log_warn("%s on %s (pid %d) %s", name, relay->config->host, (int)rank->pid, text);
}

static const struct lifelines_ops ops = {on_gone, on_suspected};

int agent_relay_open_lifelines(struct agent_relay *relay, struct err *err)
{
    if (!relay->ranks->welcome.elastic)
        return 0;
    lifeline_raise_priority();
    return lifelines_init(&relay->lifelines, relay->loop, &ops, relay, err);
}

void agent_relay_give_lifeline(struct agent_relay *relay, struct rank *rank)
{
    struct err err;
    int fd;
    if (!relay->lifelines.loop ||
        (rank->lifeline.line && lifeline_state(rank->lifeline.line) <= LIFELINE_HELD))
        return;
    if (rank_lifeline_start(&relay->lifelines, &rank->lifeline, &fd, &err) < 0) {
        log_warn("member %d has no lifeline, so its death would be noticed late: %s",
                 rank->assignment.member, err_text(&err));
        return;
    }
    struct ctl_fds *fds = ctl_fds_create(&fd, 1);
    if (fds)
        rank_send(rank, CTL_LIFELINE, NULL, fds);
    ctl_fds_drop(fds);
}
/* ---- join ------------------------------------------------------------------------------------ */

void agent_relay_send_numbers(struct agent_relay *relay, int member,
                              const struct rank_numbers *numbers)
{
    struct buf body = {0};
    struct rank *rank = agent_ranks_find(relay->ranks, member);
    if (!rank || rank->reaped || !rank->waiting || rank->why != CARD_JOIN)
        return;
    const int words[] = {numbers->rank,       numbers->size,       rank->assignment.local_rank,
                         numbers->local_size, numbers->cross_rank, numbers->cross_size};
    buf_put_u32(&body, numbers->epoch);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        buf_put_u32(&body, (uint32_t)words[i]);
    if (numbers->place != numbers->rank)
        buf_put_u32(&body, (uint32_t)numbers->place);
    rank->waiting = false;
    rank->arrived = true;
    rank_send(rank, CTL_NUMBERS, &body, NULL);
    buf_fini(&body);
}

/* ---- leave ---------------------------------------------------------------------------------- */

static void on_leave_timer(void *arg)
{
    struct rank *rank = arg;
    rank_end(rank, LEAVE_GRACE_MS);
}

void agent_relay_send_leave(struct agent_relay *relay, int member, const char *text)
{
    struct buf body = {0};
    struct rank *rank = agent_ranks_find(relay->ranks, member);
    if (!rank || rank->reaped)
        return;
    log_info("member %d is to leave: %s", member, text);
    /* A rank that has not said HELLO does not read LEAVE: end it at once. */
    uint64_t wait = rank->hello && !rank->bye ? LEAVE_MS : 0;
    buf_put(&body, text, strlen(text));
    rank_send(rank, CTL_LEAVE, &body, NULL);
    buf_fini(&body);
    rank->waiting = false;
    rank->bye = rank->leaving = true; /* the exit of this rank is not a loss */
    loop_timer_start(relay->loop, &rank->leave_timer, wait, on_leave_timer, rank);
}

void agent_relay_send_change(struct agent_relay *relay, struct rank *rank)
{
    struct buf body = {0};
    buf_put_u32(&body, relay->change);
    rank_send(rank, CTL_CHANGE, &body, NULL);
    buf_fini(&body);
}

void agent_relay_announce(struct agent_relay *relay, uint32_t change)
{
    if (change <= relay->change)
        return;
    relay->change = change;
    for (int i = 0; i < relay->ranks->n; i++)
        if (rank_in_epoch(relay->ranks->list[i]))
            agent_relay_send_change(relay, relay->ranks->list[i]);
}

/* ---- die ------------------------------------------------------------------------------------ */

void agent_relay_evict(struct agent_relay *relay, int member, const char *text)
{
    struct rank *rank = agent_ranks_find(relay->ranks, member);
    if (rank && !rank->reaped && !rank->dead)
        agent_relay_declare_dead(relay, rank, true, text);
}

void agent_relay_declare_dead(struct agent_relay *relay, struct rank *rank, bool evict,
                              const char *text)
{
    char name[64], words[512];
    struct report_item item = {
        .type = REPORT_DEAD, .member = rank->assignment.member, .pid = (int)rank->pid};
    if (rank->reaped || rank->dead)
        return;
    if (evict)
        rank_kill(rank, SIGKILL);
    rank_name(rank, name, sizeof(name));
    snprintf(words, sizeof(words), "%s on %s (pid %d) %s", name, relay->config->host,
             (int)rank->pid, evict ? text : "died");
    if (evict)
        log_warn("%s", words);
    rank->dead = true;
    rank->waiting = false;
    /* Tell the ranks of this host first: they wait for the lost one now. */
    agent_relay_record_end(relay, rank->assignment.member, END_FINAL, true, 0, words);
    snprintf(item.text, sizeof(item.text), "%s", evict ? text : "");
    outbox_report(relay->outbox, &item);
    agent_relay_consider_cards(relay);
}
