/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_rejoin: a new coordinator of an elastic job (hvdrun attach, another operator) knows
 * nothing. The agent sends once all that it knows, and reports as usual after the coordinator has
 * answered. See agent.h; the body is core/member/rejoin.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/keeper.h"
#include "core/base/cpus.h"
#include "core/base/log.h"

#define TIMEOUT_MS 4000
#define RETRY_MS   100
#define TAIL_LINES 10

static void send_rejoin(void *arg);

/* The card is lent to m. */
static void fill_member(const struct rank *rank, struct rejoin_member *m)
{
    m->member = rank->assignment.member;
    m->local_rank = rank->assignment.local_rank;
    m->pid = (int)rank->pid;
    m->epoch = rank->epoch;
    m->over = rank->reaped;
    m->dead = rank->dead;
    m->code = rank->reaped ? rank->code : rank->bye_status;
    m->hello = rank->hello;
    m->arrived = rank->arrived;
    m->bye = rank->bye;
    m->out = rank->bye_status < 0;
    m->leaving = rank->leaving;
    m->done = rank->done;
    m->batches = rank->progress.batches;
    m->bytes = rank->progress.bytes;
    snprintf(m->text, sizeof(m->text), "%s", rank->text);
    if (rank->reaped && rank->code != 0)
        tail_text(&rank->tail, TAIL_LINES, m->tail, sizeof(m->tail));
    if (rank->reaped || !rank->waiting)
        return;
    m->waiting = true;
    m->why = rank->why;
    m->was_in = rank->was_in;
    m->card = rank->card;
}

static void count_one(int member, int *known)
{
    *known = member >= *known ? member + 1 : *known;
}

/* One more than the highest member number that this agent has seen. */
static int count_known(const struct agent *a)
{
    int known = 0;
    for (int i = 0; i < a->nends; i++)
        if (a->ends[i].known)
            count_one(i, &known);
    for (int i = 0; i < a->roster.n; i++)
        count_one(a->roster.cards[i].member, &known);
    for (int i = 0; i < a->nranks; i++)
        count_one(a->ranks[i]->assignment.member, &known);
    for (int i = 0; i < a->welcome.nassignments; i++)
        count_one(a->welcome.assignments[i].member, &known);
    return known;
}

/* Writes the body: ranks that run or have run, and ranks that are still to be started. NULL: no
 * memory. */
static char *write_rejoin(struct agent *a)
{
    struct rejoin rejoin = {.change = a->change, .known = count_known(a), .world = a->roster};
    struct join_body body = {.slots = cpus_usable(), .pid = keeper_pid(), .rejoin = &rejoin};
    size_t n = (size_t)a->nranks + (size_t)a->welcome.nassignments;
    rejoin.members = calloc(n + 1, sizeof(*rejoin.members));
    if (!rejoin.members)
        return NULL;
    for (int i = 0; i < a->nranks; i++)
        fill_member(a->ranks[i], &rejoin.members[rejoin.n++]);
    for (int i = a->nstarted; i < a->welcome.nassignments && !a->refused && !a->stopping; i++) {
        rejoin.members[rejoin.n].member = a->welcome.assignments[i].member;
        rejoin.members[rejoin.n++].local_rank = a->welcome.assignments[i].local_rank;
    }
    snprintf(body.agent, sizeof(body.agent), "%s", a->config.agent);
    if (gethostname(body.host, sizeof(body.host) - 1) < 0)
        snprintf(body.host, sizeof(body.host), "?");
    char *text = join_write(&body);
    free(rejoin.members); /* their contents are lent */
    return text;
}

static void on_rejoined(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct err err;
    if (answer->status != 0)
        agent_answered(a);
    if (a->abandoned)
        return;
    if (answer->status == 0 || answer->status == 503) {
        agent_unanswered(a, answer);
        loop_timer_start(&a->loop, &a->retry, RETRY_MS, send_rejoin, a);
        return;
    }
    if (answer->status != 200) {
        err_set(&err, EPERM, "the new coordinator refused this agent: HTTP %ld %.300s",
                answer->status, answer->body);
        agent_fail(a, &err);
        return;
    }
    free(a->rejoin_text);
    a->rejoin_text = NULL;
    log_info("the new coordinator knows what is known here");
    outbox_release(&a->outbox);
    for (int i = 0; i < a->findings.n; i++)
        outbox_finding(&a->outbox, &a->findings.list[i]);
    agent_wake(a); /* which starts the polls again */
}

static void send_rejoin(void *arg)
{
    struct agent *a = arg;
    if (client_send(a->client, "/v1/join", a->rejoin_text, TIMEOUT_MS, on_rejoined, a, NULL) < 0)
        loop_timer_start(&a->loop, &a->retry, RETRY_MS, send_rejoin, a);
}

bool agent_rejoin(struct agent *a)
{
    if (!a->welcome.elastic || !a->joined || a->abandoned)
        return false;
    if (a->rejoin_text)
        return true;
    a->rejoin_text = write_rejoin(a);
    if (!a->rejoin_text)
        return true; /* no memory: the next 404 leads here again */
    a->terms++;
    a->notes_seq = 0;
    agent_break_output(a); /* the pipe was the former hvdrun's */
    /* The rejoin includes everything in the outbox. */
    outbox_forget(&a->outbox);
    for (int i = 0; i < a->nranks; i++)
        a->ranks[i]->posted |= a->ranks[i]->waiting;
    log_info("another coordinator is there");
    send_rejoin(a);
    return true;
}
