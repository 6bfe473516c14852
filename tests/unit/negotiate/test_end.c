/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the end of the log: ranks leave anywhere in random programs, with operations that they
 * do not wait for. All ranks run the same batches, and none that one of them has not run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate_impl.h"
#include "tests/harness/negotiate_sim.h"

enum { TENSORS = 6, ROUNDS = 14 };

static struct sim_options options_of(uint64_t seed)
{
    return (struct sim_options){
        .n = 2 + (int)(seed % 5),
        .fan = (int)(seed / 5 % 4),
        .fusion_bytes = 1000,
        .cycle_ns = CLOCK_MS,
        .cache_capacity = 100,
        .freeze_after = seed % 3 ? 3 : 0,
    };
}

static struct signature of(int k, bool gpus)
{
    struct signature sig = sim_allreduce(10 + k);
    return gpus && k % 2 ? sim_on_gpu(sig) : sig;
}

/* The program of a rank that takes part in so many submissions: some are waited for at once, the
 * others at the end of the round. A rank may turn to another order, in which no plan fits. */
static void add_program(struct sim_rank *r, int submissions, uint64_t seed)
{
    bool gpus = seed / 3 % 2, turns = seed / 7 % 3 == 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < TENSORS; j++, submissions--) {
            int k = turns && i > 8 && r->rank % 2 ? TENSORS - 1 - j : j;
            struct signature sig = of(k, gpus);
            if (submissions <= 0)
                return;
            sim_submit(r, k, &sig, 0);
            if (seed / 11 % 2 && !turns)
                sim_wait(r, k);
        }
        for (int k = 0; k < TENSORS; k++)
            sim_wait(r, k);
    }
}

static void leave(struct sim_rank *r)
{
    sim_add(r, &(struct sim_step){.what = SIM_LEAVE});
}

/* Each batch that one rank has begun was begun by all. */
static void check_logs(const struct sim *s)
{
    for (int kind = 0; kind < SIM_LANES; kind++)
        for (size_t i = 0; i < s->logs[kind].n && s->logs[kind].texts[i]; i++)
            if (s->logs[kind].started[i] != s->n)
                fail_msg("seed %llu: batch %zu of lane %d was begun by %d of %d ranks",
                         (unsigned long long)s->seed, i, kind, s->logs[kind].started[i], s->n);
}

static void test_random(void **state)
{
    int aborted = 0, lacking = 0, frozen = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct sim s;
        struct sim_options o = options_of(seed);
        sim_init(&s, seed, &o);
        for (int i = 0; i < s.n; i++) {
            bool early = sim_random(&s, 2);
            int all = ROUNDS * TENSORS;
            add_program(&s.ranks[i], early ? (int)sim_random(&s, (uint64_t)all) : all, seed);
            leave(&s.ranks[i]);
        }
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        aborted += s.aborted;
        for (int i = 0; i < s.n && !s.aborted; i++) {
            struct negotiate_stats stats;
            negotiate_get_stats(s.ranks[i].n, &stats);
            frozen += stats.frozen > 0;
            lacking += s.ranks[i].n->nsubmitted > 0;
            assert_true(negotiate_end(s.ranks[i].n));
            assert_false(negotiate_frozen(s.ranks[i].n));
        }
        if (!s.aborted)
            check_logs(&s);
        sim_fini(&s);
    }
    assert_true(aborted > 10 && lacking > 500 && frozen > 500);
}

/* A rank that has nothing to do any more leaves a plan that the others still follow. It is no thaw
 * of the program's. */
static void test_idle(void **state)
{
    struct sim s;
    struct sim_options o = options_of(1);
    sim_init(&s, 1, &o);
    for (int i = 0; i < s.n; i++)
        add_program(&s.ranks[i], ROUNDS * TENSORS, 1);
    assert_true(sim_run(&s) && negotiate_frozen(s.ranks[1].n));
    leave(&s.ranks[1]);
    assert_true(sim_run(&s));
    for (int i = 0; i < s.n; i++) {
        struct negotiate_stats stats;
        negotiate_get_stats(s.ranks[i].n, &stats);
        assert_int_equal(stats.thaws, 0);
        assert_true(s.ranks[i].n->end.reached);
    }
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests_name("unit/negotiate/end", tests, NULL, NULL);
}
