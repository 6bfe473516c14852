/* SPDX-License-Identifier: Apache-2.0
 *
 * election: see election.h. At most one request is in flight. The end of the lease has its own
 * timer.
 */
#include "operator/api/election.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "operator/api/leader.h"
#include "operator/api/request.h"

#define LEAVE_MS 2000

static const struct resource leases = {"coordination.k8s.io", "v1", "leases"};

struct election {
    struct election_config config; /* its texts are owned */
    struct leader leader;
    struct api_call *call;
    struct loop_timer turn, until;
    uint64_t turn_at; /* clock_ns() at which the last turn began */
    uint64_t late;    /* longest delay of a turn, in ns */
    bool told;        /* started() has been called, stopped() not yet */
    void (*left)(void *arg);
    struct problem problem;
};

static void act(struct election *e, enum leader_action action);

static void tell(struct election *e)
{
    bool leads = election_leads(e);
    struct loop *loop = api_loop(e->config.api);
    if (leads)
        loop_timer_stop(loop, &e->until);
    if (leads == e->told)
        return;
    e->told = leads;
    if (leads)
        e->config.started(e->config.arg, leader_term(&e->leader));
    else
        e->config.stopped(e->config.arg);
}

static void on_until(void *arg)
{
    tell(arg);
}

/* To be called after each event. Calls started() or stopped() if this process began or ceased to
 * lead, and sets the timer for the end of its lease. */
static void settle(struct election *e)
{
    struct loop *loop = api_loop(e->config.api);
    tell(e);
    if (e->told) {
        uint64_t until = leader_until(&e->leader);
        loop_timer_start(loop, &e->until, (uint64_t)deadline_poll_ms(until), on_until, e);
    }
}

static void on_turn(void *arg)
{
    struct election *e = arg;
    uint64_t due = e->turn.due;
    e->turn_at = clock_ns();
    if (e->turn_at - due > e->late && e->turn_at > due)
        e->late = e->turn_at - due;
    enum leader_action action = leader_turn(&e->leader, e->turn_at);
    settle(e);
    act(e, action);
}

/* Called once: the lease is released, or cannot be. */
static void on_left(void *arg)
{
    struct election *e = arg;
    api_cancel(e->call);
    e->call = NULL;
    loop_timer_stop(api_loop(e->config.api), &e->until);
    e->left(e->config.arg);
}

static void rest(struct election *e)
{
    uint32_t ms = (uint32_t)e->config.retry_ms;
    if (e->left) {
        on_left(e);
        return;
    }
    /* Plus or minus a fifth, so that candidates do not stay in step. Counted from the beginning of
     * the turn, so that after a request that timed out another one fits before the lease ends. */
    uint64_t pause = ms - ms / 5 + randombytes_uniform(2 * ms / 5 + 1);
    uint64_t took = (clock_ns() - e->turn_at) / CLOCK_MS;
    loop_timer_start(api_loop(e->config.api), &e->turn, took < pause ? pause - took : 0, on_turn,
                     e);
}

static void note_problem(struct election *e, const struct api_answer *answer, const struct err *err)
{
    problem_note(&e->problem, answer, err);
    log_debug("lease %s/%s: %s", e->config.namespace, e->config.name, e->problem.text);
}

static void on_read(void *arg, const struct api_answer *answer)
{
    struct election *e = arg;
    struct lease seen;
    struct err err = {0};
    enum leader_action next = LEADER_WAIT;
    e->call = NULL;
    e->leader.yields = e->config.yields && e->config.yields(e->config.arg);
    if (answer->status == 404) {
        next = leader_saw(&e->leader, NULL, clock_ns());
    } else if (answer->status != 200 || lease_parse(answer->body, answer->len, &seen, &err) < 0) {
        note_problem(e, answer, &err);
    } else {
        next = leader_saw(&e->leader, &seen, clock_ns());
        if (next == LEADER_WAIT) /* else the attempt ends with a write */
            e->problem = (struct problem){0};
    }
    settle(e);
    act(e, next);
}

static void on_wrote(void *arg, const struct api_answer *answer)
{
    struct election *e = arg;
    struct lease now_is;
    struct err err = {0};
    enum leader_result result = LEADER_FAILED;
    e->call = NULL;
    if (answer->status == 409) {
        result = LEADER_CONFLICT;
    } else if ((answer->status != 200 && answer->status != 201) ||
               lease_parse(answer->body, answer->len, &now_is, &err) < 0) {
        note_problem(e, answer, &err);
    } else {
        e->problem = (struct problem){0};
        result = LEADER_DONE;
    }
    enum leader_action next = leader_wrote(&e->leader, result, &now_is, clock_ns());
    settle(e);
    act(e, next);
}

static void send_request(struct election *e, const char *method, bool named, const char *body,
                         api_done_f *done)
{
    struct buf path = {0};
    request_path(&path, &leases, e->config.namespace, named ? e->config.name : NULL, NULL);
    /* Not idempotent, so api.c does not repeat a request that may have been executed: the next turn
     * does, with the current lease. */
    struct api_request q = {.method = method,
                            .path = request_text(&path),
                            .body = body,
                            .urgent = true,
                            .timeout_ms = (int)(e->left ? LEAVE_MS : e->config.renew_ms / 2)};
    int rc = q.path ? api_send(e->config.api, &q, done, e, &e->call, NULL) : -ENOMEM;
    buf_fini(&path);
    if (rc < 0)
        rest(e);
}

static void send_wish(struct election *e, bool create)
{
    struct lease wish = leader_desired(&e->leader, clock_ns(), (int64_t)clock_wall_us());
    char *body = lease_body(&wish, e->config.namespace, e->config.name);
    if (body)
        send_request(e, create ? "POST" : "PUT", !create, body, on_wrote);
    else
        rest(e);
    free(body);
}

static void act(struct election *e, enum leader_action action)
{
    switch (action) {
    case LEADER_WAIT:
        rest(e);
        break;
    case LEADER_READ:
        send_request(e, "GET", true, NULL, on_read);
        break;
    case LEADER_CREATE:
        send_wish(e, true);
        break;
    case LEADER_WRITE:
        send_wish(e, false);
        break;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int election_open(struct election **ret, const struct election_config *config, struct err *err)
{
    struct election *e = calloc(1, sizeof(*e));
    if (!e)
        return err_set(err, ENOMEM, "no memory for an election");
    e->config = *config;
    e->config.namespace = strdup(config->namespace);
    e->config.name = strdup(config->name);
    e->config.identity = strdup(config->identity);
    e->config.duration_ms = config->duration_ms ? config->duration_ms : 15000;
    e->config.renew_ms = config->renew_ms ? config->renew_ms : 10000;
    e->config.retry_ms = config->retry_ms ? config->retry_ms : 2000;
    int rc = 0;
    if (!e->config.namespace || !e->config.name || !e->config.identity)
        rc = err_set(err, ENOMEM, "no memory for an election");
    else if (strlen(config->identity) >= sizeof(e->leader.seen.holder) || !*config->identity)
        rc = err_set(err, EINVAL, "the identity has %zu bytes: it is empty or too long",
                     strlen(config->identity));
    else if (e->config.renew_ms >= e->config.duration_ms ||
             e->config.retry_ms >= e->config.renew_ms)
        rc = err_set(err, EINVAL,
                     "a lease's retry must be shorter than its renewal, and that "
                     "shorter than its duration");
    if (rc < 0) {
        election_close(e);
        return rc;
    }
    leader_init(&e->leader, &(struct leader_config){.identity = e->config.identity,
                                                    .duration_ms = e->config.duration_ms,
                                                    .renew_ms = e->config.renew_ms,
                                                    .retry_ms = e->config.retry_ms});
    loop_timer_start(api_loop(e->config.api), &e->turn, 0, on_turn, e);
    *ret = e;
    return 0;
}

bool election_leads(const struct election *e)
{
    return leader_leads(&e->leader, clock_ns());
}

static void stop_all(struct election *e)
{
    struct loop *loop = api_loop(e->config.api);
    api_cancel(e->call);
    e->call = NULL;
    loop_timer_stop(loop, &e->turn);
    loop_timer_stop(loop, &e->until);
}

void election_release(struct election *e)
{
    stop_all(e);
    e->turn_at = clock_ns();
    enum leader_action action = leader_release(&e->leader, e->turn_at);
    tell(e);
    act(e, action);
}

void election_leave(struct election *e, void (*left)(void *arg))
{
    e->left = left;
    stop_all(e);
    loop_timer_start(api_loop(e->config.api), &e->until, LEAVE_MS, on_left, e);
    enum leader_action action = leader_leave(&e->leader, clock_ns());
    tell(e);
    act(e, action);
}

uint64_t election_late(const struct election *e)
{
    return e->late;
}

const char *election_lease_uid(const struct election *e)
{
    return e->leader.seen.uid;
}

const struct problem *election_problem(const struct election *e)
{
    return &e->problem;
}

void election_close(struct election *e)
{
    if (!e)
        return;
    stop_all(e);
    free((char *)e->config.namespace);
    free((char *)e->config.name);
    free((char *)e->config.identity);
    free(e);
}
