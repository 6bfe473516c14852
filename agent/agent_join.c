/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_join: joins the coordinator, and rejoins a new one. A new coordinator of an elastic job
 * (hvdrun attach, another operator) knows nothing. The agent sends once all that it knows, and
 * reports as usual after the coordinator has answered. See agent.h; the body is
 * core/member/rejoin.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/keeper.h"
#include "core/base/cpus.h"
#include "core/base/log.h"
#include "core/include/hvd.h"

#define TIMEOUT_MS      4000
#define JOIN_RETRY_MS   200
#define UNKNOWN_MS      1000
#define REJOIN_RETRY_MS 100
#define TAIL_LINES      10

/* ---- join ----------------------------------------------------------------------------------- */

static void retry_join(void *arg)
{
    agent_join(arg);
}

/* Returns what the refusal of a first join means. 404, 409: the operator does not know the pod, or
 * goes on without it: another pod may fare better. With a wrong token, or an answer of another
 * protocol, none will.
 */
static enum agent_end refusal_of(long status)
{
    return status == 404 || status == 409 ? AGENT_END_REFUSED : AGENT_END_SETTING;
}

static void on_joined(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct err err = {0};
    if (answer->status == 0 || answer->status == 503) {
        agent_link_unanswered(&a->link, answer);
        if (!a->ranks.stopping)
            loop_timer_start(&a->loop, &a->join_retry, JOIN_RETRY_MS, retry_join, a);
        return;
    }
    if (answer->status == 404 && agent_pod_may_be_new(&a->pod) && !a->ranks.stopping) {
        log_info("join: %s", answer->body);
        loop_timer_start(&a->loop, &a->join_retry, UNKNOWN_MS, retry_join, a);
        return;
    }
    agent_link_answered(&a->link);
    int rc = 0;
    if (answer->status != 200)
        rc = err_set(&err, EPERM, "%s refused this agent: HTTP %ld %.300s",
                     agent_link_peer(&a->link), answer->status, answer->body);
    if (rc == 0)
        rc = welcome_read(answer->body, answer->len, &a->ranks.welcome, &err);
    if (rc < 0) {
        agent_fail(a, refusal_of(answer->status), &err);
        return;
    }
    a->link.joined = true;
    if (a->ranks.welcome.post_output)
        agent_output_break(&a->output);
    agent_polls_events(&a->polls);
    if (agent_doctor_begin(&a->doctor, &err) < 0)
        agent_fail(a, AGENT_END_INTERNAL, &err);
}

void agent_join(struct agent *a)
{
    struct join_body body = {.slots = cpus_usable(), .pid = keeper_pid()};
    struct err err;
    snprintf(body.agent, sizeof(body.agent), "%s", a->config.agent);
    snprintf(body.version, sizeof(body.version), "%s", HVD_VERSION);
    if (gethostname(body.host, sizeof(body.host) - 1) < 0)
        snprintf(body.host, sizeof(body.host), "?");
    char *text = join_write(&body);
    int rc = text ? client_send(a->link.client, "/v1/join", text, TIMEOUT_MS, on_joined, a, &err)
                  : err_set(&err, ENOMEM, "no memory to join");
    free(text);
    if (rc < 0)
        agent_fail(a, AGENT_END_INTERNAL, &err);
}

/* ---- rejoin --------------------------------------------------------------------------------- */

static void send_rejoin(void *arg);
static void begin_rejoin(struct agent *a, uint32_t have);

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

/* Returns the highest member number that this agent has seen, plus 1. */
static int count_known(const struct agent *a)
{
    int known = member_ends_count(&a->relay.ends);
    for (int i = 0; i < a->relay.roster.n; i++)
        count_one(a->relay.roster.cards[i].member, &known);
    for (int i = 0; i < a->ranks.n; i++)
        count_one(a->ranks.list[i]->assignment.member, &known);
    for (int i = 0; i < a->ranks.welcome.nassignments; i++)
        count_one(a->ranks.welcome.assignments[i].member, &known);
    return known;
}

/* Writes the body: ranks that run or have run, and ranks that are still to be started. have: epoch
 * of the coordinator's roster. NULL: no memory. */
static char *write_rejoin(struct agent *a, uint32_t have)
{
    const struct roster_body *world = &a->relay.roster;
    struct rejoin rejoin = {.change = a->relay.change, .known = count_known(a), .world = *world};
    a->rejoin_short = world->n > 0 && have >= world->epoch;
    if (a->rejoin_short)
        rejoin.world = (struct roster_body){.epoch = world->epoch};
    struct join_body body = {.slots = cpus_usable(), .pid = keeper_pid(), .rejoin = &rejoin};
    size_t n = (size_t)a->ranks.n + (size_t)a->ranks.welcome.nassignments;
    rejoin.members = calloc(n + 1, sizeof(*rejoin.members));
    if (!rejoin.members)
        return NULL;
    for (int i = 0; i < a->ranks.n; i++)
        fill_member(a->ranks.list[i], &rejoin.members[rejoin.n++]);
    for (int i = a->ranks.nstarted;
         i < a->ranks.welcome.nassignments && !a->doctor.refused && !a->ranks.stopping; i++) {
        rejoin.members[rejoin.n].member = a->ranks.welcome.assignments[i].member;
        rejoin.members[rejoin.n++].local_rank = a->ranks.welcome.assignments[i].local_rank;
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
    bool served = answer->status != 0 && answer->status != 503;
    if (served)
        agent_link_answered(&a->link);
    else
        agent_link_unanswered(&a->link, answer);
    if (a->link.abandoned)
        return;
    if (!served) {
        loop_timer_start(&a->loop, &a->join_retry, REJOIN_RETRY_MS, send_rejoin, a);
        return;
    }
    if (answer->status == 404 && a->rejoin_short) { /* yet another one, which has no roster */
        begin_rejoin(a, rejoin_read_have(answer->body, answer->len));
        return;
    }
    if (answer->status != 200) {
        err_set(&err, EPERM, "the new coordinator refused this agent: HTTP %ld %.300s",
                answer->status, answer->body);
        agent_fail(a, AGENT_END_REFUSED, &err);
        return;
    }
    free(a->rejoin_text);
    a->rejoin_text = NULL;
    a->link.rejoining = false;
    log_info("rejoined: the new coordinator has received what this agent knows of the job");
    outbox_release(&a->outbox);
    for (int i = 0; i < a->doctor.findings.n; i++)
        outbox_finding(&a->outbox, &a->doctor.findings.list[i]);
    agent_wake(a); /* which starts the polls again */
}

static void send_rejoin(void *arg)
{
    struct agent *a = arg;
    if (client_send(a->link.client, "/v1/join", a->rejoin_text, TIMEOUT_MS, on_rejoined, a, NULL) <
        0)
        loop_timer_start(&a->loop, &a->join_retry, REJOIN_RETRY_MS, send_rejoin, a);
}

static void begin_rejoin(struct agent *a, uint32_t have)
{
    free(a->rejoin_text);
    a->rejoin_text = write_rejoin(a, have);
    if (!a->rejoin_text) {
        a->link.rejoining = false;
        return; /* no memory: the next 404 leads here again */
    }
    a->link.rejoining = true;
    a->link.terms++;
    agent_output_break(&a->output); /* the pipe belonged to the previous hvdrun */
    /* The rejoin includes everything in the outbox. */
    outbox_forget(&a->outbox);
    for (int i = 0; i < a->ranks.n; i++)
        a->ranks.list[i]->posted |= a->ranks.list[i]->waiting;
    log_info("another coordinator serves the job now: rejoining");
    send_rejoin(a);
}

bool agent_rejoin(struct agent *a, const struct client_answer *answer)
{
    if (!a->ranks.welcome.elastic || !a->link.joined || a->link.abandoned)
        return false;
    if (!a->rejoin_text)
        begin_rejoin(a, rejoin_read_have(answer->body, answer->len));
    return true;
}
