/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/coordinator/gather and job_coordinator_gather without a network: the agents of
 * a job that trains come back to another operator, in time, late, or not at all.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "tests/harness/operator/job_agents.h"

#define TERM3(n) (3u << ROSTER_TERM_SHIFT | (n)) /* this operator's term */
#define TERM2(n) (2u << ROSTER_TERM_SHIFT | (n))

static struct gather gather;
static uint64_t
    begun; /* clock_ns() when the job began to wait for its agents; ticks get later times */
static char said[512]; /* the last response */

static void on_changed(void *arg, struct job_coordinator *job)
{
    (void)arg, (void)job;
}

static void pod_is(struct job_coordinator *c, int i, bool finished)
{
    struct plane_pod pod = job_agents_pod(i, false, finished);
    assert_int_equal(job_coordinator_pod(c, &pod, NULL), 0);
}

static struct job_coordinator *make(int workers)
{
    struct job_coordinator *c;
    struct plane_job job = job_agents_job(workers, 1, 8);
    job.began = true;
    gather = (struct gather){.base_ms = GATHER_MS};
    assert_int_equal(job_coordinator_create(&c, &job, 3, &gather, on_changed, NULL, NULL), 0);
    begun = c->gather_begun;
    for (int i = 0; i < workers; i++)
        pod_is(c, i, false);
    gather_update(&gather, job_coordinator_awaits(c), false, begun);
    return c;
}

static int post(struct job_coordinator *c, int pod, const char *path, char *body)
{
    char uid[16];
    snprintf(uid, sizeof(uid), "p%d", pod);
    job_coordinator_heard(job_coordinator_find_pod(c, uid));
    auto_free char *text = NULL;
    int status = job_agents_post(c, pod, path, body, &text);
    snprintf(said, sizeof(said), "%s", text ? text : "");
    return status;
}

/* The agent of a pod tells what it knows: world of epoch `epoch` with members 0 to size - 1, one a
 * pod, and its own member, as *own says. */
static int rejoin_as(struct job_coordinator *c, const char *nonce, int pod, uint32_t epoch,
                     int size, const struct rejoin_member *own)
{
    struct rejoin_member one = *own;
    struct rejoin rejoin = {.n = own->pid ? 1 : 0, .members = &one, .known = size};
    struct join_body body = {.slots = 1, .pid = 1, .rejoin = &rejoin};
    struct card *cards = calloc((size_t)size + 1, sizeof(*cards));
    for (int i = 0; i < size; i++) {
        cards[i].rank = cards[i].place = cards[i].member = i;
        snprintf(cards[i].agent, sizeof(cards[i].agent), "p%d.x", i);
        snprintf(cards[i].host, sizeof(cards[i].host), "job-%d", i);
    }
    rejoin.world = (struct roster_body){.epoch = epoch, .n = size, .cards = cards, .key = {7}};
    snprintf(body.agent, sizeof(body.agent), "p%d.%s", pod, nonce);
    snprintf(body.host, sizeof(body.host), "h");
    char *text = join_write(&body);
    free(cards);
    return post(c, pod, "/v1/join", text);
}

/* The same without the roster. */
static int rejoin_short(struct job_coordinator *c, int pod, uint32_t epoch,
                        const struct rejoin_member *own)
{
    return rejoin_as(c, "x", pod, epoch, 0, own);
}

static struct rejoin_member active(int member, uint32_t epoch)
{
    return (struct rejoin_member){
        .member = member, .pid = 100 + member, .epoch = epoch, .hello = true};
}

static struct rejoin_member waits(int member, uint32_t epoch)
{
    struct rejoin_member m = active(member, epoch);
    m.waiting = true;
    m.why = CARD_REVOKED;
    m.was_in = epoch;
    return m;
}

static int trains(struct job_coordinator *c, int pod, int size)
{
    struct rejoin_member own = active(pod, TERM2(5));
    return rejoin_as(c, "x", pod, TERM2(5), size, &own);
}

static int revoked(struct job_coordinator *c, int pod, int size)
{
    struct rejoin_member own = waits(pod, TERM2(5));
    return rejoin_as(c, "x", pod, TERM2(5), size, &own);
}

/* Agents that have joined are heard all the time. */
static void tick(struct job_coordinator *c, uint64_t ms)
{
    for (int i = 0; i < c->roster.agents.n; i++)
        if (c->roster.agents.list[i].joined)
            c->roster.agents.list[i].gaps.heard = begun + ms * CLOCK_MS;
    job_coordinator_tick(c, false, begun + ms * CLOCK_MS);
}

static const struct roster_member *member(const struct job_coordinator *c, int i)
{
    return &c->roster.members.list[i];
}

/* ---- how long ------------------------------------------------------------------------------- */

static void test_window_follows_agents(void **state)
{
    struct gather g = {.base_ms = 20000};
    const uint64_t at = 1000 * CLOCK_S;
    (void)state;
    gather_update(&g, 3, false, at);
    assert_int_equal(gather_end(&g, at), at + 20030 * CLOCK_MS);
    gather_update(&g, 10000, false, at);
    assert_int_equal(gather_end(&g, at), at + 120 * CLOCK_S);
    gather_update(&g, 2, false, at); /* most have come back: the window stays */
    assert_int_equal(gather_end(&g, at), at + 120 * CLOCK_S);
    g.last = at + 118 * CLOCK_S; /* they still come */
    assert_int_equal(gather_end(&g, at), at + 123 * CLOCK_S);
    gather_update(&g, 2, true, at + 130 * CLOCK_S); /* or stand in the queue */
    assert_int_equal(gather_end(&g, at), at + 135 * CLOCK_S);
    g.last = at + 3600 * CLOCK_S;
    assert_int_equal(gather_end(&g, at), at + 600 * CLOCK_S);
}

static void test_all_come_back(void **state)
{
    struct job_coordinator *c = make(3);
    (void)state;
    assert_int_equal(job_coordinator_awaits(c), 3);
    assert_int_equal(trains(c, 0, 3), 200); /* it need not ask again */
    assert_int_equal(trains(c, 2, 3), 200);
    tick(c, 19000);
    assert_true(c->roster.rebuilding);
    assert_int_equal(trains(c, 1, 3), 200);
    assert_false(c->roster.rebuilding);
    assert_int_equal(job_coordinator_awaits(c), 0);
    tick(c, 19100);
    assert_int_equal(c->roster.epoch, TERM2(5));
    assert_int_equal(job_coordinator_count_agents(c), 3);
    assert_int_equal(c->rejoins, 3);
    assert_int_equal(c->losses, 0);
    job_coordinator_destroy(c);
}

/* ---- late ----------------------------------------------------------------------------------- */

/* Two of three are there when the window ends. The third one keeps its rank for a minute. */
static struct job_coordinator *without_the_third(void)
{
    struct job_coordinator *c = make(3);
    assert_int_equal(trains(c, 0, 3), 200);
    assert_int_equal(trains(c, 1, 3), 200);
    gather.last = begun;
    tick(c, 20029);
    assert_true(c->roster.rebuilding);
    tick(c, 20031);
    assert_false(c->roster.rebuilding);
    assert_int_equal(job_coordinator_count_agents(c), 2);
    assert_int_equal(member(c, 2)->state, RANK_ACTIVE);
    assert_int_equal(c->losses, 0);
    return c;
}

static void test_late_agent_is_taken_back(void **state)
{
    struct job_coordinator *c = without_the_third();
    (void)state;
    tick(c, 70000);
    assert_int_equal(trains(c, 2, 3), 200);
    tick(c, 70100);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    assert_int_equal(c->roster.epoch, TERM2(5)); /* its rank trains on */
    assert_int_equal(member(c, 2)->state, RANK_ACTIVE);
    assert_int_equal(member(c, 2)->rank, 2);
    assert_int_equal(member(c, 2)->pid, 102);
    assert_int_equal(c->roster.members.n, 3);
    assert_int_equal(c->roster.starts.n, 0);
    assert_int_equal(c->losses, 0);
    assert_int_equal(c->rejoins, 3);
    assert_int_equal(trains(c, 2, 3), 200); /* the response was lost: it asks again */
    assert_int_equal(c->rejoins, 3);
    job_coordinator_destroy(c);
}

/* Its rank has seen a loss, or has ended, meanwhile. */
static void test_late_agent_has_news(void **state)
{
    (void)state;
    for (int dead = 0; dead < 2; dead++) {
        struct job_coordinator *c = without_the_third();
        struct rejoin_member own = dead ? active(2, TERM2(5)) : waits(2, TERM2(5));
        own.over = dead;
        own.code = dead ? -9 : 0;
        assert_int_equal(rejoin_as(c, "x", 2, TERM2(5), 3, &own), 200);
        assert_int_equal(member(c, 2)->state, dead ? RANK_FAILED : RANK_READY);
        assert_int_equal(c->roster.ends.ended, dead);
        assert_int_equal(c->roster.members.ready, !dead);
        assert_int_equal(c->roster.starts.n, dead); /* it is replaced */
        job_coordinator_destroy(c);
    }
}

static void test_silent_for_a_minute_is_lost(void **state)
{
    struct job_coordinator *c = without_the_third();
    (void)state;
    tick(c, 80000);
    assert_int_equal(c->losses, 0);
    tick(c, 80100);
    assert_int_equal(c->losses, 1);
    assert_int_equal(member(c, 2)->state, RANK_FAILED);
    assert_int_equal(trains(c, 2, 3), 409);
    job_coordinator_destroy(c);
}

static void test_late_agent_without_a_pod_is_lost(void **state)
{
    struct job_coordinator *c = without_the_third();
    (void)state;
    pod_is(c, 2, true);
    tick(c, 20100);
    assert_int_equal(c->losses, 1);
    assert_int_equal(trains(c, 2, 3), 409);
    job_coordinator_destroy(c);

    c = make(3); /* it is deleted while agents are gathered */
    assert_int_equal(trains(c, 0, 3), 200);
    assert_int_equal(trains(c, 2, 3), 200);
    job_coordinator_pod_gone(c, "p2");
    assert_int_equal(trains(c, 1, 3), 200);
    assert_false(c->roster.rebuilding);
    assert_int_equal(member(c, 2)->state, RANK_FAILED);
    job_coordinator_destroy(c);
}

/* The third worker's agent is outside the world, because its rank has not started up. */
static void test_late_newcomer(void **state)
{
    struct job_coordinator *c = make(3);
    struct rejoin_member own = {.member = 7, .pid = 107};
    (void)state;
    assert_int_equal(trains(c, 0, 2), 200);
    assert_int_equal(trains(c, 1, 2), 200);
    gather.last = begun;
    tick(c, 21000);
    assert_false(c->roster.rebuilding);
    assert_int_equal(c->roster.starts.n, 1); /* for the third worker */
    assert_int_equal(rejoin_as(c, "x", 2, 0, 0, &own), 200);
    assert_int_equal(c->roster.members.n, 8);
    assert_int_equal(member(c, 7)->state, RANK_RUNNING);
    assert_int_equal(c->roster.starts.n, 0);
    tick(c, 21100);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    assert_int_equal(member(c, 7)->leaving, false);
    job_coordinator_destroy(c);
}

/* ---- refused -------------------------------------------------------------------------------- */

static void test_stale_agent_is_refused(void **state)
{
    struct job_coordinator *c = make(3);
    struct rejoin_member old = waits(2, TERM2(4)), next = active(2, TERM3(6));
    (void)state;
    assert_int_equal(trains(c, 0, 2), 200); /* epoch 5 is without member 2 */
    assert_int_equal(trains(c, 1, 2), 200);
    gather.last = begun;
    tick(c, 21000);
    assert_int_equal(rejoin_as(c, "x", 2, TERM2(4), 3, &old), 409);
    assert_non_null(strstr(said, "epoch 5 goes on without it"));
    assert_int_equal(rejoin_as(c, "x", 2, TERM3(6), 3, &next), 200); /* see the next test */
    assert_true(c->roster.rebuilding);
    job_coordinator_destroy(c);
}

/* The previous operator was lost while it made an epoch known. The only agent that has heard of it
 * comes late: all agents are gathered again. */
static void test_late_agent_knows_a_newer_epoch(void **state)
{
    struct job_coordinator *c = without_the_third();
    struct rejoin_member own = active(2, TERM2(6)), first = waits(0, TERM2(5));
    (void)state;
    assert_int_equal(rejoin_as(c, "x", 2, TERM2(6), 3, &own), 200);
    assert_true(c->roster.rebuilding);
    assert_int_equal(rejoin_as(c, "x", 0, TERM2(5), 3, &first), 200);
    assert_int_equal(trains(c, 1, 3), 200);
    assert_false(c->roster.rebuilding);
    assert_int_equal(c->roster.epoch, TERM2(6));
    assert_int_equal(member(c, 0)->state, RANK_ACTIVE); /* the roster of epoch 6 answers it */
    assert_int_equal(c->losses, 0);
    job_coordinator_destroy(c);
}

/* Two agents in one pod: the newer one counts, a late older one is refused. */
static void test_two_agents_of_a_pod(void **state)
{
    struct job_coordinator *c = without_the_third();
    struct join_body body = {.slots = 1, .pid = 2, .agent = "p2.y", .host = "h"};
    (void)state;
    assert_int_equal(post(c, 2, "/v1/join", join_write(&body)), 200);
    assert_int_equal(c->losses, 1);
    assert_int_equal(member(c, 2)->state, RANK_FAILED);
    assert_int_equal(trains(c, 2, 3), 409);
    tick(c, 20200);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    job_coordinator_destroy(c);

    c = make(3); /* both while agents are gathered */
    assert_int_equal(trains(c, 0, 3), 200);
    assert_int_equal(trains(c, 2, 3), 200);
    assert_int_equal(post(c, 2, "/v1/join", join_write(&body)), 200);
    assert_int_equal(trains(c, 2, 3), 409);
    assert_int_equal(trains(c, 1, 3), 200);
    assert_false(c->roster.rebuilding);
    assert_int_equal(member(c, 2)->state, RANK_FAILED);
    tick(c, 100);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    job_coordinator_destroy(c);
}

/* ---- losses while agents are gathered ------------------------------------------------------- */

static void test_waiting_ranks_do_not_wait_for_the_window(void **state)
{
    struct job_coordinator *c = make(3);
    (void)state;
    assert_int_equal(trains(c, 0, 3), 200);
    tick(c, 5000);
    assert_int_equal(revoked(c, 1, 3), 200);
    assert_int_equal(revoked(c, 0, 3), 200); /* its rank has seen it, too: it joins again */
    tick(c, 6000);
    gather.behind = true; /* agents stand in the queue */
    tick(c, 9000);
    gather.behind = false;
    tick(c, 12400);
    assert_true(c->roster.rebuilding);
    tick(c, 12600); /* 3.5 s without one */
    assert_false(c->roster.rebuilding);
    tick(c, 12700);
    assert_int_equal(c->losses, 1);
    assert_int_equal(c->roster.size, 2);
    assert_int_equal(c->roster.epoch, TERM3(6));
    assert_int_equal(trains(c, 2, 3), 409);
    job_coordinator_destroy(c);
}

/* An agent that has come back and is lost before the roster is rebuilt. */
static void test_lost_again(void **state)
{
    struct job_coordinator *c = make(3);
    (void)state;
    assert_int_equal(trains(c, 2, 3), 200);
    job_coordinator_closed(c, "p2.x", begun);
    assert_int_equal(revoked(c, 0, 3), 200);
    tick(c, 100);
    assert_int_equal(job_coordinator_count_agents(c), 1);
    assert_int_equal(revoked(c, 1, 3), 200);
    assert_int_equal(c->roster.epoch, TERM3(6));
    assert_int_equal(c->roster.size, 2);
    job_coordinator_destroy(c);
}

/* An agent whose connection is closed has 20 s, and longer while others stand in the queue. */
static void test_closed_while_the_plane_is_behind(void **state)
{
    struct job_coordinator *c = make(3);
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(trains(c, i, 3), 200);
    job_coordinator_closed(c, "p2.x", begun);
    tick(c, 19900);
    gather.behind = true;
    tick(c, 25000);
    assert_int_equal(c->losses, 0);
    gather.behind = false;
    tick(c, 25100);
    assert_int_equal(c->losses, 1);
    job_coordinator_destroy(c);
}

/* Only the first agent sends the roster: the coordinator says which one it has. */
static void test_roster_is_sent_once(void **state)
{
    struct job_coordinator *c = make(3);
    struct rejoin_member own = active(1, TERM2(5));
    struct server_reply reply = {0};
    struct server_request q = {
        .method = "GET", .path = "/v1/events", .agent = "p1.x", .body = "", .peer = "p1"};
    (void)state;
    assert_int_equal(rejoin_short(c, 1, TERM2(5), &own), 404); /* nobody has sent it */
    assert_int_equal(rejoin_read_have(said, strlen(said)), 0);
    assert_int_equal(trains(c, 0, 3), 200);
    assert_int_equal(service_handle(&c->service, &q, &reply), 0);
    assert_int_equal(reply.status, 404);
    assert_int_equal(rejoin_read_have(reply.body, strlen(reply.body)), TERM2(5));
    free(reply.body);
    assert_int_equal(rejoin_short(c, 1, TERM2(6), &own), 404); /* it has a newer one */
    assert_int_equal(rejoin_read_have(said, strlen(said)), TERM2(5));
    assert_int_equal(rejoin_short(c, 1, TERM2(5), &own), 200);
    gather.last = begun;
    tick(c, 21000);
    own = active(2, TERM2(5));
    assert_int_equal(rejoin_short(c, 2, TERM2(5), &own), 200); /* late */
    tick(c, 21100);
    assert_int_equal(c->roster.size, 3);
    assert_int_equal(c->roster.epoch, TERM2(5));
    assert_int_equal(job_coordinator_count_agents(c), 3);
    assert_int_equal(c->losses, 0);
    job_coordinator_destroy(c);
}

static void test_reports_while_gathering(void **state)
{
    struct job_coordinator *c = make(2);
    struct report_item item = {.type = REPORT_PROGRESS, .batches = 9};
    struct report_body body = {.agent = "p0.x", .seq = 1, .n = 1, .items = &item};
    (void)state;
    assert_int_equal(trains(c, 0, 2), 200);
    assert_int_equal(post(c, 0, "/v1/report", report_write(&body)), 204);
    item.type = REPORT_EXITED;
    body.seq = 2;
    assert_int_equal(post(c, 0, "/v1/report", report_write(&body)), 404); /* it joins again */
    job_coordinator_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_follows_agents),
        cmocka_unit_test(test_all_come_back),
        cmocka_unit_test(test_late_agent_is_taken_back),
        cmocka_unit_test(test_late_agent_has_news),
        cmocka_unit_test(test_silent_for_a_minute_is_lost),
        cmocka_unit_test(test_late_agent_without_a_pod_is_lost),
        cmocka_unit_test(test_late_newcomer),
        cmocka_unit_test(test_stale_agent_is_refused),
        cmocka_unit_test(test_late_agent_knows_a_newer_epoch),
        cmocka_unit_test(test_two_agents_of_a_pod),
        cmocka_unit_test(test_waiting_ranks_do_not_wait_for_the_window),
        cmocka_unit_test(test_lost_again),
        cmocka_unit_test(test_closed_while_the_plane_is_behind),
        cmocka_unit_test(test_roster_is_sent_once),
        cmocka_unit_test(test_reports_while_gathering),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
