/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_join() in an elastic job: in each round the members have different numbers of batches, and
 * commit after each one. Ranks are killed at any moment, before, while and after they are in
 * hvd_join(). The survivors have the same results, and the same rank that joined last. While a rank
 * has joined, the world does not change; after it joiners come in.
 *
 * timeout: 300
 * takes: 10 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MEMBERS = 4, MOST = 6, ROUNDS = 8, BATCHES = 12, LIMIT = 60000 /* ms */ };

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the round of each member */
    _Atomic int hold;            /* no member ends this round; -1: all go on */
    _Atomic int go;
    _Atomic int joined[ELASTIC_MAX]; /* calls of hvd_join() so far */
    bool works; /* the member that is held goes on with sums that nobody records */
    bool sets;  /* also sums in a set of all but the first rank */
    /* By round, batch and member: the sum of 1 << member; 0: not there. */
    int sums[ROUNDS][BATCHES][MOST], set_sums[ROUNDS][BATCHES][MOST];
    int last[ROUNDS][MOST]; /* 1 + what hvd_join() has returned */
    int size[ROUNDS][MOST]; /* after it and a boundary */
};

/* How many batches a member has in a round: one of them has all, some have none. */
static int batches_of(int member, int round)
{
    return (member * 5 + round * 3) % BATCHES;
}

static int sum(int member, int set, int *ret)
{
    float value = (float)(1 << member), total = 0;
    const int64_t one = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("sum", &value, &one);
    r.output = &total;
    r.set = set;
    if (rank_wait(&r, &h) < 0)
        return FAIL("member %d: %s", member, hvd_error());
    *ret = (int)total;
    return 0;
}

/* Joiners go on with this round and batch. */
static int commit(int round, int batch)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int changed = hvd_commit();
    int64_t at[2] = {round, batch};
    if (changed < 0)
        return FAIL("hvd_commit: %s", hvd_error());
    hvd_world(&w);
    if (changed == 1 && w.joined > 0 && hvd_broadcast("at", at, 2, HVD_INT64, w.source) < 0)
        return FAIL("%s", hvd_error());
    return 0;
}

static int run_round(struct board *b, int member, int round, int batch, int set)
{
    int n = batches_of(member, round), rc = 0, unused;
    for (int i = batch; i < n && rc == 0; i++) {
        rc = sum(member, 0, &b->sums[round][i][member]);
        if (rc == 0 && set)
            rc = sum(member, set, &b->set_sums[round][i][member]);
        if (rc == 0)
            rc = commit(round, i + 1);
    }
    while (rc == 0 && round == atomic_load(&b->hold) && n == BATCHES - 1)
        rc = b->works ? sum(member, set, &unused) : (nap_ms(1), 0);
    if (rc)
        return rc;
    atomic_fetch_add(&b->joined[member], 1);
    int last = hvd_join();
    if (last < 0)
        return FAIL("member %d, round %d: hvd_join: %s", member, round, hvd_error());
    b->last[round][member] = last + 1;
    return 0;
}

static int start(struct board *b, int *ret_round, int *ret_batch, int *ret_set)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    const int ranks[] = {3, 1, 2};
    int64_t at[2] = {0};
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    hvd_world(&w);
    if (w.is_new && hvd_broadcast("at", at, 2, HVD_INT64, w.source) < 0)
        return FAIL("%s", hvd_error());
    if (!w.is_new && b->sets && hvd_set_add(ranks, 3, ret_set) < 0)
        return FAIL("%s", hvd_error());
    if (*ret_set && hvd_set_rank(*ret_set) < 0)
        *ret_set = 0;
    *ret_round = (int)at[0];
    *ret_batch = (int)at[1];
    return 0;
}

static int train(int member, void *arg)
{
    struct board *b = arg;
    int round = 0, batch = 0, set = 0, rc = start(b, &round, &batch, &set);
    for (; rc == 0 && round < ROUNDS; round++, batch = 0) {
        atomic_store(&b->at[member], round);
        rc = run_round(b, member, round, batch, set);
        if (rc == 0)
            rc = commit(round + 1, 0);
        b->size[round][member] = hvd_size();
    }
    atomic_store(&b->at[member], ROUNDS);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_sums(const int *sums, int round, int batch)
{
    int first = 0;
    for (int m = 0; m < MOST; m++) {
        if (!sums[m])
            continue;
        first = first ? first : sums[m];
        if (sums[m] != first || !(first & 1 << m))
            fail_msg("round %d, batch %d: member %d has %x, not %x", round, batch, m, sums[m],
                     first);
        for (int other = 0; other < MOST; other++)
            if ((first & 1 << other) && batches_of(other, round) <= batch)
                fail_msg("round %d, batch %d: member %d had joined: %x", round, batch, other,
                         first);
    }
}

static void check(const struct board *b)
{
    for (int round = 0; round < ROUNDS; round++) {
        int last = 0;
        for (int batch = 0; batch < BATCHES; batch++) {
            check_sums(b->sums[round][batch], round, batch);
            check_sums(b->set_sums[round][batch], round, batch);
        }
        for (int m = 0; m < MOST; m++) {
            if (b->last[round][m] && last && b->last[round][m] != last)
                fail_msg("round %d: member %d says that rank %d joined last, another one %d", round,
                         m, b->last[round][m] - 1, last - 1);
            last = b->last[round][m] ? b->last[round][m] : last;
        }
    }
}

static void end(struct elastic *job, struct board *b, uint32_t left, const char *what)
{
    atomic_store(&b->hold, -1);
    deaths_expect_end(job, left, what);
    check(b);
    elastic_fini(job);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct board *fresh_board(void)
{
    struct board *b = world_board(sizeof(*b));
    b->hold = -1;
    return b;
}

static void start_job(struct elastic *job, struct board *b, unsigned place)
{
    elastic_init(job);
    for (int m = 0; m < MEMBERS; m++) {
        const char *const env[] = {deaths_places[place % 3][m], NULL};
        elastic_add(job, train, b, env);
    }
}

/* The member with the most batches joins last. */
static void test_no_loss(void **state)
{
    for (unsigned place = 0; place < 3; place++) {
        struct board *b = fresh_board();
        struct elastic job;
        b->sets = true;
        start_job(&job, b, place);
        end(&job, b, 0xf, "no loss");
        for (int round = 0; round < ROUNDS; round++) {
            int most = 0;
            for (int m = 0; m < MEMBERS; m++)
                most = batches_of(m, round) > batches_of(most, round) ? m : most;
            for (int m = 0; m < MEMBERS; m++)
                assert_int_equal(b->last[round][m], 1 + most);
        }
    }
}

static void test_kill_at_random(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(36); seed++) {
        struct board *b = fresh_board();
        struct elastic job;
        char what[32];
        uint64_t random = seed;
        int first = (int)(rank_random(&random) % MEMBERS);
        int second = (first + 1 + (int)(rank_random(&random) % (MEMBERS - 1))) % MEMBERS;
        b->sets = seed % 2;
        snprintf(what, sizeof(what), "seed %u", seed);
        start_job(&job, b, seed);
        assert_true(
            elastic_run_to(&job, &b->at[second], 1 + (int)(rank_random(&random) % 3), LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        kill(job.members[first].pid, SIGKILL);
        if (seed % 4 > 1)
            assert_true(elastic_run_to(&job, &b->at[second], 5, LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        kill(job.members[second].pid, SIGKILL);
        elastic_run(&job, elastic_all_over, NULL, LIMIT);
        uint32_t left = elastic_survivors(&job), sure = 0xfu & ~(1u << first) & ~(1u << second);
        end(&job, b, left, what);
        if ((left & sure) != sure) /* the second one may have ended before */
            fail_msg("%s: members %x survived", what, left);
    }
}

/* The member with the most batches waits in the middle of a round, so the others are in hvd_join();
 * one of them is killed, or the one that waits. */
static void test_kill_while_joined(void **state)
{
    for (unsigned i = 0; i < 6; i++) {
        struct board *b = fresh_board();
        struct elastic job;
        int round = 2, waits = 0;
        while (batches_of(waits, round) != BATCHES - 1 && round < ROUNDS)
            if (++waits == MEMBERS)
                waits = 0, round++;
        assert_true(round < ROUNDS);
        b->hold = round;
        start_job(&job, b, i);
        for (int m = 0; m < MEMBERS; m++) {
            assert_true(elastic_run_to(&job, &b->at[m], round, LIMIT));
            if (m != waits)
                assert_true(elastic_run_to(&job, &b->joined[m], round + 1, LIMIT));
        }
        nap_ms(i * 5);
        int killed = i % 2 ? waits : (waits + 1 + (int)i / 2) % MEMBERS;
        kill(job.members[killed].pid, SIGKILL);
        nap_ms(20);
        end(&job, b, 0xfu & ~(1u << killed), "one is killed while others have joined");
        assert_int_equal(b->size[round][(killed + 1) % MEMBERS], MEMBERS - 1);
        if (killed != waits) /* it has joined last, and after the repair, too */
            assert_int_equal(b->last[round][(killed + 1) % MEMBERS], 1 + waits);
    }
}

/* The last rank with data dies in the middle of an operation, which some of the ranks that have
 * joined have served by then and others have not. */
static void test_kill_the_only_owner(void **state)
{
    for (unsigned i = 0; i < (unsigned)effort(24); i++) {
        struct board *b = fresh_board();
        struct elastic job;
        b->hold = 2; /* in which member 1 has the most batches */
        b->works = true;
        b->sets = i % 2;
        start_job(&job, b, i);
        for (int m = 0; m < MEMBERS; m++)
            assert_true(m == 1 || elastic_run_to(&job, &b->joined[m], 3, LIMIT));
        nap_ms(1 + i % 5);
        kill(job.members[1].pid, SIGKILL);
        end(&job, b, 0xd, "the only owner is killed");
    }
}

/* ---- two threads ----------------------------------------------------------------------------- */

static void *commit_alone(void *arg)
{
    _Atomic int *changed = arg;
    atomic_store(changed, hvd_commit());
    return NULL;
}

/* Member 1 calls hvd_join() while another thread of it is in hvd_commit(), and waits for that. */
static int join_beside(int member, void *arg)
{
    struct board *b = arg;
    pthread_t thread;
    _Atomic int changed = 0;
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    atomic_store(&b->at[member], 1);
    while (!atomic_load(&b->go))
        nap_ms(1);
    if (member != 1)
        nap_ms(60);
    pthread_create(&thread, NULL, commit_alone, (void *)&changed);
    if (member == 1)
        nap_ms(30);
    else
        pthread_join(thread, NULL);
    if (rc == 0 && changed != -ESHUTDOWN && hvd_join() < 0)
        rc = FAIL("hvd_join: %s", hvd_error());
    if (member == 1)
        pthread_join(thread, NULL);
    if (rc == 0 && changed != (member == 2 ? -ESHUTDOWN : 1))
        rc = FAIL("member %d: hvd_commit: %d", member, changed);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

static void test_join_beside_a_boundary(void **state)
{
    for (int i = 0; i < effort(12); i++) {
        struct board *b = fresh_board();
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 3; m++)
            elastic_add(&job, join_beside, b, (const char *const[]){deaths_places[i % 3][m], NULL});
        for (int m = 0; m < 3; m++)
            assert_true(elastic_run_to(&job, &b->at[m], 1, LIMIT));
        job.members[2].leaving = true;
        elastic_announce(&job);
        atomic_store(&b->go, 1);
        end(&job, b, 0x7, "hvd_join() beside a boundary");
    }
}

/* A second rank dies in each phase of the repair, with ranks in hvd_join(). */
static void test_kill_in_repair(void **state)
{
    static const char *const places[] = {"revoke", "report",  "install",  "connect",
                                         "settle", "barrier", "resubmit", "lost"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct board *b = fresh_board();
        struct elastic job;
        char variable[64];
        const char *const env[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", places[i]);
        b->sets = i % 2;
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++)
            elastic_add(&job, train, b, m == 1 ? env : NULL);
        assert_true(elastic_run_to(&job, &b->at[0], 2, LIMIT));
        nap_ms((unsigned)i);
        kill(job.members[2].pid, SIGKILL);
        if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
            fail_msg("killed at %s: the job has not ended within a minute", places[i]);
        if ((elastic_survivors(&job) | 2) != 0xb)
            fail_msg("killed at %s: members %x survived", places[i], elastic_survivors(&job));
        check(b);
        elastic_fini(&job);
    }
}

/* A rank dies at the end of a join, when some ranks know of it and others do not. */
static void test_kill_at_end(void **state)
{
    for (int i = 0; i < 18; i++) {
        struct board *b = fresh_board();
        struct elastic job;
        char variable[64];
        int killed = i / 3 % 3;
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s:%d", i < 9 ? "join" : "joined",
                 1 + i % 4);
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++) {
            const char *const env[] = {deaths_places[i % 3][m], m == killed ? variable : NULL,
                                       NULL};
            elastic_add(&job, train, b, env);
        }
        end(&job, b, 0xfu & ~(1u << killed), variable);
    }
}

/* Joiners that are announced in the middle of a round come in after it. */
static void test_grow(void **state)
{
    struct board *b = fresh_board();
    struct elastic job;
    b->hold = 3;
    start_job(&job, b, 0);
    assert_true(elastic_run_to(&job, &b->at[0], 3, LIMIT));
    for (int m = 0; m < 2; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){MEMBERS}, LIMIT));
    elastic_announce(&job);
    nap_ms(50);
    end(&job, b, 0x3f, "grow");
    assert_int_equal(b->size[2][0], MEMBERS);
    assert_int_equal(b->size[ROUNDS - 1][0], MEMBERS + 2);
    assert_int_equal(b->size[ROUNDS - 1][MEMBERS], MEMBERS + 2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_loss),
        cmocka_unit_test(test_kill_at_random),
        cmocka_unit_test(test_kill_while_joined),
        cmocka_unit_test(test_kill_in_repair),
        cmocka_unit_test(test_kill_at_end),
        cmocka_unit_test(test_kill_the_only_owner),
        cmocka_unit_test(test_join_beside_a_boundary),
        cmocka_unit_test(test_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
