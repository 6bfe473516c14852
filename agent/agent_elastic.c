/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_elastic: ranks of an elastic job that start, leave or die while others train. See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "core/base/log.h"

#define LEAVE_MS       10000 /* for a rank to exit after LEAVE */
#define LEAVE_GRACE_MS 2000  /* then SIGTERM, and after this SIGKILL */

void agent_name(const struct rank *rank, char *dst, size_t size)
{
    int member = rank->assignment.member;
    roster_name(rank->roster_rank >= 0 ? rank->roster_rank : member, member, dst, size);
}

struct rank *agent_find(struct agent *a, int member)
{
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i]->assignment.member == member)
            return a->ranks[i];
    return NULL;
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Frees ranks that had this local rank and have ended. */
static void sweep(struct agent *a, int local_rank)
{
    int kept = 0;
    for (int i = 0; i < a->nranks; i++) {
        struct rank *rank = a->ranks[i];
        if (rank->closed && rank->assignment.local_rank == local_rank)
            agent_drop_rank(rank);
        else
            a->ranks[kept++] = rank;
    }
    a->nranks = kept;
}

static void report_unstarted(struct agent *a, int member, const char *why)
{
    struct report_item item = {.type = REPORT_EXITED, .member = member, .code = 1};
    snprintf(item.text, sizeof(item.text), "%.500s", why);
    log_warn("member %d: %s", member, why);
    outbox_report(&a->outbox, &item);
}

/* The first ranks are not all started yet: start this one with them. */
static void start_later(struct agent *a, const struct assignment *assignment)
{
    struct welcome_body *w = &a->welcome;
    for (int i = 0; i < w->nassignments; i++)
        if (w->assignments[i].member == assignment->member)
            return; /* the welcome lists it already */
    struct assignment *grown =
        realloc(w->assignments, ((size_t)w->nassignments + 1) * sizeof(*grown));
    if (!grown) {
        report_unstarted(a, assignment->member, "no memory for a rank");
        return;
    }
    w->assignments = grown;
    w->assignments[w->nassignments++] = *assignment;
}

void agent_start_member(struct agent *a, int member, int local_rank)
{
    struct err err;
    struct assignment assignment = {member, local_rank, 0, 1};
    if (!a->welcome.elastic || local_rank < 0 || local_rank >= MEMBER_RANKS_MAX ||
        agent_find(a, member))
        return;
    if (local_rank >= a->welcome.slots) /* the discovery script has raised the host's slots */
        a->welcome.slots = local_rank + 1;
    if (a->welcome.nassignments > 0) {
        assignment.cross_rank = a->welcome.assignments[0].cross_rank;
        assignment.cross_size = a->welcome.assignments[0].cross_size;
    }
    if (a->stopping || a->refused) {
        report_unstarted(a, member,
                         a->refused ? "the doctor found a failure on this host"
                                    : "the ranks of this host are being ended");
        return;
    }
    if (!a->cwd || agent_is_starting(a)) {
        start_later(a, &assignment);
        return;
    }
    sweep(a, local_rank);
    if (agent_add_rank(a, &assignment, &err) < 0)
        report_unstarted(a, member, err_text(&err));
}

void agent_send_numbers(struct agent *a, int member, const struct rank_numbers *numbers)
{
    struct buf body = {0};
    struct rank *rank = agent_find(a, member);
    if (!rank || rank->reaped || !rank->waiting || rank->why != CARD_JOIN)
        return;
    const int words[] = {numbers->rank,       numbers->size,       rank->assignment.local_rank,
                         numbers->local_size, numbers->cross_rank, numbers->cross_size};
    buf_put_u32(&body, numbers->epoch);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        buf_put_u32(&body, (uint32_t)words[i]);
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

void agent_send_leave(struct agent *a, int member, const char *text)
{
    struct buf body = {0};
    struct rank *rank = agent_find(a, member);
    if (!rank || rank->reaped)
        return;
    log_info("member %d is to leave: %s", member, text);
    /* A rank that has not said HELLO does not read LEAVE: end it at once. */
    uint64_t wait = rank->hello && !rank->bye ? LEAVE_MS : 0;
    buf_put(&body, text, strlen(text));
    rank_send(rank, CTL_LEAVE, &body, NULL);
    buf_fini(&body);
    rank->waiting = false;
    rank->bye = rank->leaving = true; /* its exit is not a loss */
    loop_timer_start(&a->loop, &rank->leave_timer, wait, on_leave_timer, rank);
}

void agent_send_change(struct agent *a, struct rank *rank)
{
    struct buf body = {0};
    buf_put_u32(&body, a->change);
    rank_send(rank, CTL_CHANGE, &body, NULL);
    buf_fini(&body);
}

void agent_announce(struct agent *a, uint32_t change)
{
    if (change <= a->change)
        return;
    a->change = change;
    for (int i = 0; i < a->nranks; i++)
        if (rank_in_epoch(a->ranks[i]))
            agent_send_change(a, a->ranks[i]);
}

/* ---- die ------------------------------------------------------------------------------------ */

void agent_evict(struct agent *a, int member, const char *text)
{
    struct rank *rank = agent_find(a, member);
    if (rank && !rank->reaped && !rank->dead)
        agent_declare_dead(a, rank, true, text);
}

void agent_declare_dead(struct agent *a, struct rank *rank, bool evict, const char *text)
{
    char name[64], words[512];
    struct report_item item = {
        .type = REPORT_DEAD, .member = rank->assignment.member, .pid = (int)rank->pid};
    if (rank->reaped || rank->dead)
        return;
    if (evict)
        rank_kill(rank, SIGKILL);
    agent_name(rank, name, sizeof(name));
    snprintf(words, sizeof(words), "%s on %s (pid %d) %s", name, a->config.host, (int)rank->pid,
             evict ? text : "died");
    if (evict)
        log_warn("%s", words);
    rank->dead = true;
    rank->waiting = false;
    /* Tell the ranks of this host first: they wait for the lost one now. */
    agent_record_end(a, rank->assignment.member, END_FINAL, true, 0, words);
    snprintf(item.text, sizeof(item.text), "%s", evict ? text : "");
    outbox_report(&a->outbox, &item);
    agent_consider_cards(a);
}
