/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/leader and lease: many candidates and one lease on a server that answers
 * late, refuses, and loses requests and responses. Two never lead at once, and one always leads
 * again.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "core/base/clock.h"
#include "operator/api/leader.h"

/* ---- a server with one lease, and a slow network ------------------------------------------------
 */

enum { PEERS = 4, STEP_MS = 100 };

struct request {
    bool out;
    enum leader_action what;
    struct lease wish;
    uint64_t served_at, answered_at; /* UINT64_MAX: lost */
    bool served;
    enum leader_result result;
    struct lease answer;
    bool absent;
};

struct peer {
    struct leader leader;
    char name[16];
    bool alive, paused;
    uint64_t turn_at;
    struct request q;
    int64_t term; /* the last term in which this process led */
    bool led;
};

static struct {
    uint64_t now;
    bool exists;
    struct lease lease;
    long version;
    struct peer peers[PEERS];
    int64_t highest_term;
    bool clean; /* the network has no faults any more */
} sim;

static uint64_t within(uint64_t ms)
{
    return (uint64_t)rand() % (ms + 1) * CLOCK_MS;
}

static void serve(struct request *q)
{
    q->served = true;
    q->absent = !sim.exists;
    q->result = LEADER_DONE;
    if (q->what != LEADER_READ) {
        bool create = q->what == LEADER_CREATE;
        bool fits =
            create ? !sim.exists : sim.exists && strcmp(q->wish.version, sim.lease.version) == 0;
        if (!fits) {
            q->result = LEADER_CONFLICT;
            return;
        }
        sim.lease = q->wish;
        sim.exists = true;
        snprintf(sim.lease.version, sizeof(sim.lease.version), "v%ld", ++sim.version);
    }
    q->answer = sim.lease;
}

static void begin(struct peer *p, enum leader_action what)
{
    if (what == LEADER_WAIT) {
        p->turn_at = sim.now + 1600 * CLOCK_MS + within(800);
        return;
    }
    p->q = (struct request){.out = true, .what = what};
    if (what != LEADER_READ)
        p->q.wish = leader_desired(&p->leader, sim.now, (int64_t)(sim.now / 1000));
    bool lost = !sim.clean && rand() % 10 == 0, deaf = !sim.clean && rand() % 10 == 0;
    uint64_t slow = sim.clean || rand() % 4 ? 200 : 12000;
    p->q.served_at = lost ? UINT64_MAX : sim.now + within(slow);
    p->q.answered_at = lost || deaf ? UINT64_MAX : p->q.served_at + within(slow);
    p->turn_at = sim.now + 5000 * CLOCK_MS; /* a time-out */
}

static void end(struct peer *p, bool answered)
{
    struct request q = p->q;
    /* The request may still reach the server. */
    p->q.out = false;
    enum leader_action next;
    if (q.what == LEADER_READ && !answered)
        next = LEADER_WAIT;
    else if (q.what == LEADER_READ)
        next = leader_saw(&p->leader, q.absent ? NULL : &q.answer, sim.now);
    else
        next = leader_wrote(&p->leader, answered ? q.result : LEADER_FAILED, &q.answer, sim.now);
    begin(p, next);
}

/* Requests that their sender has given up and that are still in the network. */
static struct request late[64];

static void step_peer(struct peer *p)
{
    if (p->q.out && !p->q.served && sim.now >= p->q.served_at)
        serve(&p->q);
    if (!p->alive || p->paused)
        return;
    if (p->q.out && p->q.served && sim.now >= p->q.answered_at)
        end(p, true);
    if (p->q.out && sim.now >= p->turn_at) {
        if (!p->q.served && p->q.served_at != UINT64_MAX)
            late[rand() % 64] = p->q;
        end(p, false);
    }
    if (!p->q.out && sim.now >= p->turn_at)
        begin(p, leader_turn(&p->leader, sim.now));
}

static void born(int i, int generation)
{
    struct peer *p = &sim.peers[i];
    *p = (struct peer){.alive = true, .term = -1};
    snprintf(p->name, sizeof(p->name), "peer-%d-%d", i, generation);
    leader_init(&p->leader, &(struct leader_config){.identity = p->name,
                                                    .duration_ms = 15000,
                                                    .renew_ms = 10000,
                                                    .retry_ms = 2000});
    p->turn_at = sim.now + within(2000);
}

static void check(void)
{
    int leaders = 0;
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &sim.peers[i];
        /* A paused process does not act, but it still believes that it leads, so it counts. */
        bool leads = p->alive && leader_leads(&p->leader, sim.now);
        leaders += leads;
        if (leads && !p->led) {
            p->term = leader_term(&p->leader);
            if (p->term <= sim.highest_term)
                fail_msg("term %lld began after term %lld", (long long)p->term,
                         (long long)sim.highest_term);
            sim.highest_term = p->term;
        }
        p->led = leads;
    }
    if (leaders > 1)
        fail_msg("%d processes lead at %llu ms", leaders, (unsigned long long)(sim.now / CLOCK_MS));
}

static void step(void)
{
    sim.now += STEP_MS * CLOCK_MS;
    for (int i = 0; i < 64; i++)
        if (late[i].out && sim.now >= late[i].served_at) {
            serve(&late[i]);
            late[i].out = false;
        }
    for (int i = 0; i < PEERS; i++)
        step_peer(&sim.peers[i]);
    check();
}

static bool anybody_leads(void)
{
    for (int i = 0; i < PEERS; i++)
        if (sim.peers[i].alive && leader_leads(&sim.peers[i].leader, sim.now))
            return true;
    return false;
}

static void trouble(int generation)
{
    int i = rand() % PEERS;
    struct peer *p = &sim.peers[i];
    switch (rand() % 6) {
    case 0:
        p->alive = false;
        break;
    case 1:
        if (!p->alive)
            born(i, generation);
        break;
    case 2:
        p->paused = !p->paused;
        break;
    case 3:
        if (p->alive && !p->paused && !p->q.out) {
            enum leader_action a = leader_leave(&p->leader, sim.now);
            struct request q = {.what = a};
            if (a == LEADER_WRITE)
                q.wish = leader_desired(&p->leader, sim.now, 0);
            if (a == LEADER_WRITE && rand() % 4)
                serve(&q);
            p->alive = false;
        }
        break;
    default:
        break;
    }
}

static void test_many_candidates(void **state)
{
    (void)state;
    int changes = 0;
    for (unsigned seed = 1; seed <= 300; seed++) {
        srand(seed);
        memset(&sim, 0, sizeof(sim));
        memset(late, 0, sizeof(late));
        sim.now = 1000 * CLOCK_S;
        sim.highest_term = -1;
        for (int i = 0; i < PEERS; i++)
            born(i, 0);
        for (int t = 0; t < 6000; t++) {
            if (t % 50 == 0)
                trouble(t);
            step();
        }
        changes += (int)sim.highest_term;
        /* Without faults one process leads, and keeps leading. */
        sim.clean = true;
        for (int i = 0; i < PEERS; i++) {
            sim.peers[i].paused = false;
            if (!sim.peers[i].alive)
                born(i, 1000000);
        }
        for (int t = 0; t < 600; t++)
            step();
        assert_true(anybody_leads());
        int64_t term = sim.highest_term;
        for (int t = 0; t < 600; t++) {
            step();
            assert_true(anybody_leads());
        }
        assert_int_equal(sim.highest_term, term);
    }
    assert_true(changes > 3000); /* the faults did cause changes of the leader */
}

/* ---- single steps -------------------------------------------------------------------------------
 */

static const struct leader_config config = {
    .identity = "me", .duration_ms = 15000, .renew_ms = 10000, .retry_ms = 2000};

static struct lease lease_of(const char *holder, const char *version)
{
    struct lease l = {.duration_s = 15, .transitions = 3};
    snprintf(l.holder, sizeof(l.holder), "%s", holder);
    snprintf(l.version, sizeof(l.version), "%s", version);
    return l;
}

/* A lease expires on the local clock, from when it was seen to change; its timestamps are ignored.
 */
static void test_expiry_is_local(void **state)
{
    struct leader l;
    struct lease seen = lease_of("other", "1");
    uint64_t t = 50 * CLOCK_S;
    (void)state;
    leader_init(&l, &config);
    seen.renewed_us = 0; /* its holder's clock is far behind */
    assert_int_equal(leader_turn(&l, t), LEADER_READ);
    assert_int_equal(leader_saw(&l, &seen, t), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &seen, t + 14999 * CLOCK_MS), LEADER_WAIT);
    seen.version[0] = '2'; /* renewed */
    assert_int_equal(leader_saw(&l, &seen, t + 15000 * CLOCK_MS), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &seen, t + 29999 * CLOCK_MS), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &seen, t + 30000 * CLOCK_MS), LEADER_WRITE);
    struct lease wish = leader_desired(&l, t + 30000 * CLOCK_MS, 77);
    assert_string_equal(wish.holder, "me");
    assert_string_equal(wish.version, "2");
    assert_int_equal(wish.transitions, 4);
    assert_int_equal(wish.acquired_us, 77);
    assert_false(leader_leads(&l, t + 30000 * CLOCK_MS));
}

/* The time to lead counts from when the write was sent, not from its response. */
static void test_until(void **state)
{
    struct leader l;
    struct lease answer = lease_of("me", "5");
    uint64_t t = 50 * CLOCK_S;
    (void)state;
    leader_init(&l, &config);
    assert_int_equal(leader_saw(&l, NULL, t), LEADER_CREATE);
    struct lease wish = leader_desired(&l, t, 1);
    assert_string_equal(wish.version, "");
    assert_int_equal(wish.transitions, 0);
    assert_int_equal(leader_wrote(&l, LEADER_DONE, &answer, t + 4 * CLOCK_S), LEADER_WAIT);
    assert_true(leader_leads(&l, t + 9999 * CLOCK_MS));
    assert_false(leader_leads(&l, t + 10000 * CLOCK_MS));
    /* The response to a renewal comes after leading has ended: leading again is a new term. */
    assert_int_equal(leader_turn(&l, t + 8 * CLOCK_S), LEADER_WRITE);
    leader_desired(&l, t + 8 * CLOCK_S, 2);
    answer.version[0] = '6';
    assert_int_equal(leader_wrote(&l, LEADER_DONE, &answer, t + 11 * CLOCK_S), LEADER_WRITE);
    assert_false(leader_leads(&l, t + 11 * CLOCK_S));
    assert_int_equal(leader_desired(&l, t + 11 * CLOCK_S, 3).transitions, 4);
}

/* A renewal is in flight when the leader leaves, and the server executes it: the release conflicts
 * with it, and is written again. */
static void test_leaving_in_a_renewal(void **state)
{
    struct leader l;
    struct lease answer = lease_of("me", "5"), renewed = lease_of("me", "6");
    uint64_t t = 50 * CLOCK_S;
    (void)state;
    leader_init(&l, &config);
    leader_saw(&l, NULL, t);
    leader_desired(&l, t, 1);
    leader_wrote(&l, LEADER_DONE, &answer, t);
    assert_int_equal(leader_turn(&l, t + CLOCK_S), LEADER_WRITE);
    leader_desired(&l, t + CLOCK_S, 2);
    assert_int_equal(leader_leave(&l, t + CLOCK_S), LEADER_WRITE);
    assert_false(leader_leads(&l, t + CLOCK_S));
    assert_string_equal(leader_desired(&l, t + CLOCK_S, 3).version, "5");
    assert_int_equal(leader_wrote(&l, LEADER_CONFLICT, NULL, t + CLOCK_S), LEADER_READ);
    assert_int_equal(leader_saw(&l, &renewed, t + CLOCK_S), LEADER_WRITE);
    struct lease wish = leader_desired(&l, t + CLOCK_S, 4);
    assert_string_equal(wish.version, "6");
    assert_string_equal(wish.holder, "");
    assert_int_equal(leader_wrote(&l, LEADER_CONFLICT, NULL, t + CLOCK_S), LEADER_WAIT);
    assert_false(leader_leads(&l, t + CLOCK_S));
}

/* The same with the write that takes the lease; and another process has it by now. */
static void test_leaving_while_taking(void **state)
{
    struct leader l;
    struct lease theirs = lease_of("other", "7"), ours = lease_of("me", "6");
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        leader_init(&l, &config);
        assert_int_equal(leader_leave(&l, CLOCK_S), LEADER_WAIT); /* nothing was sent yet */
        leader_init(&l, &config);
        assert_int_equal(leader_saw(&l, NULL, CLOCK_S), LEADER_CREATE);
        leader_desired(&l, CLOCK_S, 1);
        assert_int_equal(leader_leave(&l, CLOCK_S), LEADER_READ);
        assert_int_equal(leader_saw(&l, taken ? &ours : &theirs, CLOCK_S),
                         taken ? LEADER_WRITE : LEADER_WAIT);
        assert_false(leader_leads(&l, CLOCK_S));
    }
}

/* The lease was deleted: terms continue from the highest. */
static void test_deleted(void **state)
{
    struct leader l;
    struct lease seen = lease_of("other", "1");
    (void)state;
    leader_init(&l, &config);
    seen.transitions = 41;
    leader_saw(&l, &seen, CLOCK_S);
    assert_int_equal(leader_saw(&l, NULL, 2 * CLOCK_S), LEADER_CREATE);
    assert_int_equal(leader_desired(&l, 2 * CLOCK_S, 1).transitions, 42);
}

/* A leader that releases the lease stays a candidate. It takes a free lease only after the lease
 * has been free for another duration, as long as it yields. */
static void test_release(void **state)
{
    struct leader l;
    struct lease lease = lease_of("me", "5");
    uint64_t t = 50 * CLOCK_S;
    (void)state;
    leader_init(&l, &config);
    assert_int_equal(leader_release(&l, t), LEADER_WAIT); /* no lease to release */
    leader_saw(&l, NULL, t);
    leader_desired(&l, t, 1);
    leader_wrote(&l, LEADER_DONE, &lease, t);
    assert_true(leader_leads(&l, t));
    assert_int_equal(leader_release(&l, t), LEADER_WRITE);
    assert_false(leader_leads(&l, t));
    struct lease wish = leader_desired(&l, t, 2);
    assert_string_equal(wish.holder, "");
    assert_string_equal(wish.version, "5");
    lease = wish;
    lease.version[0] = '6';
    assert_int_equal(leader_wrote(&l, LEADER_DONE, &lease, t), LEADER_WAIT);
    assert_false(leader_leads(&l, t));
    assert_int_equal(leader_turn(&l, t + 2 * CLOCK_S), LEADER_READ);
    l.yields = true;
    assert_int_equal(leader_saw(&l, &lease, t + 14999 * CLOCK_MS), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &lease, t + 15000 * CLOCK_MS), LEADER_WRITE);
    l.yields = false;
    assert_int_equal(leader_saw(&l, &lease, t + 2 * CLOCK_S), LEADER_WRITE);
    assert_string_equal(leader_desired(&l, t + 2 * CLOCK_S, 3).holder, "me");

    /* The release conflicts with a renewal that the server has executed: it is written again. */
    lease = lease_of("me", "7");
    leader_desired(&l, t, 4);
    leader_wrote(&l, LEADER_DONE, &lease, t);
    assert_int_equal(leader_release(&l, t), LEADER_WRITE);
    leader_desired(&l, t, 5);
    l.yields = true;
    assert_int_equal(leader_wrote(&l, LEADER_CONFLICT, NULL, t), LEADER_READ);
    lease.version[0] = '8';
    assert_int_equal(leader_saw(&l, &lease, t), LEADER_WRITE);
    wish = leader_desired(&l, t, 6);
    assert_string_equal(wish.holder, "");
    assert_string_equal(wish.version, "8");
    lease = wish;
    lease.version[0] = '9';
    assert_int_equal(leader_wrote(&l, LEADER_DONE, &lease, t), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &lease, t), LEADER_WAIT);

    /* another one's lease: its duration, and then its own */
    lease = lease_of("other", "7");
    leader_saw(&l, &lease, t);
    assert_int_equal(leader_saw(&l, &lease, t + 29999 * CLOCK_MS), LEADER_WAIT);
    assert_int_equal(leader_saw(&l, &lease, t + 30000 * CLOCK_MS), LEADER_WRITE);
}

static void test_leave(void **state)
{
    struct leader l;
    struct lease answer = lease_of("me", "5");
    (void)state;
    leader_init(&l, &config);
    assert_int_equal(leader_leave(&l, CLOCK_S), LEADER_WAIT); /* no lease to release */
    leader_init(&l, &config);
    leader_saw(&l, NULL, CLOCK_S);
    leader_desired(&l, CLOCK_S, 1);
    leader_wrote(&l, LEADER_DONE, &answer, CLOCK_S);
    assert_true(leader_leads(&l, 2 * CLOCK_S));
    assert_int_equal(leader_leave(&l, 2 * CLOCK_S), LEADER_WRITE);
    assert_false(leader_leads(&l, 2 * CLOCK_S));
    struct lease wish = leader_desired(&l, 2 * CLOCK_S, 2);
    assert_string_equal(wish.holder, "");
    assert_string_equal(wish.version, "5");
    assert_int_equal(leader_turn(&l, 3 * CLOCK_S), LEADER_WAIT);
}

static void test_lease_text(void **state)
{
    struct lease l = lease_of("pod-1_ab", "123"), back;
    struct err err = {0};
    (void)state;
    l.acquired_us = 1795255200000001;
    l.renewed_us = 1795255201000000;
    char *text = lease_body(&l, "ns", "hvd-operator");
    assert_non_null(text);
    assert_non_null(strstr(text, "\"renewTime\":\"2026-11-21T10:00:01.000000Z\""));
    assert_non_null(strstr(text, "\"resourceVersion\":\"123\""));
    assert_int_equal(lease_parse(text, strlen(text), &back, &err), 0);
    assert_memory_equal(&l, &back, sizeof(l));
    free(text);
    l.version[0] = '\0';
    text = lease_body(&l, "ns", "hvd-operator");
    assert_null(strstr(text, "resourceVersion"));
    assert_int_equal(lease_parse(text, strlen(text), &back, &err), -EINVAL);
    free(text);
}

static void test_lease_foreign(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"metadata\":{}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"holderIdentity\":1}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"leaseDurationSeconds\":-1}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"leaseDurationSeconds\":9999999}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"renewTime\":\"soon\"}}",
    };
    struct lease l;
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(lease_parse(bad[i], strlen(bad[i]), &l, &err), -EINVAL);
    static const char empty[] = "{\"metadata\":{\"resourceVersion\":\"1\"}}";
    assert_int_equal(lease_parse(empty, strlen(empty), &l, &err), 0);
    assert_string_equal(l.holder, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expiry_is_local),
                                       cmocka_unit_test(test_until),
                                       cmocka_unit_test(test_leaving_in_a_renewal),
                                       cmocka_unit_test(test_leaving_while_taking),
                                       cmocka_unit_test(test_deleted),
                                       cmocka_unit_test(test_leave),
                                       cmocka_unit_test(test_release),
                                       cmocka_unit_test(test_lease_text),
                                       cmocka_unit_test(test_lease_foreign),
                                       cmocka_unit_test(test_many_candidates)};
    return cmocka_run_group_tests_name("api/leader", tests, NULL, NULL);
}
