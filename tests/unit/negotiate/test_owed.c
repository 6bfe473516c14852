/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of bound batches: what a thaw does to batches that some ranks were handed and others were
 * not. The simulation (tests/harness/negotiate_sim.h) checks that bound batches run in the same
 * order on all ranks and that none is dropped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "tests/harness/negotiate_sim.h"

enum { RANKS = 6, EXTRA = 20 /* a tensor that is not in the plan */ };

/* Every tensor is a batch of its own. Ranks 0 to 2 are on one host, 3 to 5 on another. */
static const struct sim_options options = {
    .n = RANKS,
    .fan = 3,
    .fusion_bytes = 1,
    .cycle_ns = CLOCK_MS,
    .cache_capacity = 100,
    .freeze_after = 3,
};

/* In turn two hosts, a flat tree, and a binary tree. */
static struct sim_options options_for(uint64_t seed)
{
    struct sim_options o = options;
    o.fan = (int[]){3, 0, 1}[seed % 3];
    return o;
}

static void run(struct sim *s)
{
    if (!sim_run(s))
        fail_msg("%s", s->why);
}

static struct negotiate_stats stats(const struct sim *s, int rank)
{
    struct negotiate_stats st;
    negotiate_get_stats(s->ranks[rank].n, &st);
    return st;
}

/* The tensors of a plan: "h" in host memory, "g" on a GPU. */
static void submit(struct sim_rank *r, const char *plan, int name)
{
    struct signature sig = sim_allreduce(10 + name);
    if (plan[name] == 'g')
        sig = sim_on_gpu(sig);
    sim_submit(r, name, &sig, 0);
}

static void submit_all(struct sim_rank *r, const char *plan)
{
    for (int k = 0; plan[k]; k++)
        submit(r, plan, k);
}

static void wait_all(struct sim_rank *r, const char *plan)
{
    for (int k = 0; plan[k]; k++)
        sim_wait(r, k);
}

static void submit_extra(struct sim_rank *r, bool gpu)
{
    struct signature sig = sim_allreduce(7);
    if (gpu)
        sig = sim_on_gpu(sig);
    sim_submit(r, EXTRA, &sig, 0);
}

static void add_rounds(struct sim *s, const char *plan, int rounds)
{
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < s->n; i++) {
            submit_all(&s->ranks[i], plan);
            wait_all(&s->ranks[i], plan);
        }
}

static void expect_frozen(struct sim *s, bool frozen)
{
    for (int i = 0; i < s->n; i++)
        assert_int_equal(negotiate_frozen(s->ranks[i].n), frozen);
}

static void freeze(struct sim *s, const char *plan)
{
    add_rounds(s, plan, 12);
    run(s);
    expect_frozen(s, true);
}

/* The program goes on and is frozen again. */
static void expect_goes_on(struct sim *s, const char *plan)
{
    run(s);
    for (int i = 0; i < s->n; i++)
        assert_string_equal(s->ranks[i].lost, "");
    assert_true(stats(s, 0).thaws >= 1);
    add_rounds(s, plan, 30);
    run(s);
    expect_frozen(s, true);
}

static void test_freezes_and_ends_in_any_order(void **state)
{
    struct sim s;
    sim_init(&s, 1, &options);
    freeze(&s, "ghgghg");
    uint64_t messages = s.messages;
    add_rounds(&s, "ghgghg", 30);
    run(&s);
    assert_int_equal(s.messages, messages);
    assert_int_equal(s.ranks[3].lanes[SIM_BOUND].executed, 42 * 4);
    assert_int_equal(s.ranks[3].lanes[SIM_HOST].executed, 42 * 2);
    sim_fini(&s);
}

/* The fast path does not wait for bound batches, which run in a lane of their own. */
static void test_fast_path_beside_bound_batches(void **state)
{
    struct sim s;
    uint64_t fast[RANKS];
    sim_init(&s, 1, &options);
    for (int i = 0; i < s.n; i++)
        s.ranks[i].eager = true;
    freeze(&s, "gh");
    for (int i = 0; i < s.n; i++) {
        fast[i] = s.ranks[i].fast;
        if (i == 0)
            sim_sleep(&s.ranks[i], 5 * CLOCK_MS); /* no rank can finish t0 before */
        submit_all(&s.ranks[i], "gh");
        wait_all(&s.ranks[i], "gh");
    }
    run(&s);
    assert_int_equal(stats(&s, 0).thaws, 0);
    for (int i = 1; i < s.n; i++)
        assert_int_equal(s.ranks[i].fast, fast[i] + 1);
    sim_fini(&s);
}

/* Rank `late` has been handed nothing when it leaves the plan. The others have been handed all of
 * it. So its bound batches are owed, and the others of the plan are dropped, between them. */
static void leave_at_once(uint64_t seed, const char *plan, int late, bool gpu, bool wait)
{
    struct sim s;
    struct sim_options o = options_for(seed);
    sim_init(&s, seed, &o);
    freeze(&s, plan);
    for (int i = 0; i < s.n; i++) {
        struct sim_rank *r = &s.ranks[i];
        if (i == late) {
            sim_sleep(r, 5 * CLOCK_MS);
            submit_extra(r, gpu);
            if (wait)
                sim_wait(r, EXTRA);
            sim_sleep(r, seed % 2 * 20 * CLOCK_MS); /* submits before or after the thaw */
            submit_all(r, plan);
        } else {
            submit_all(r, plan);
            sim_sleep(r, (seed % 3 ? 2 : 10) * CLOCK_MS); /* asks for the thaw first, or does not */
            submit_extra(r, gpu);
        }
        wait_all(r, plan);
        sim_wait(r, EXTRA);
    }
    run(&s);
    uint64_t bound = 0;
    for (int k = 0; plan[k]; k++)
        bound += plan[k] == 'g';
    assert_int_equal(stats(&s, 0).thaws, 1);
    for (int i = 0; i < s.n; i++)
        assert_int_equal(stats(&s, i).owed, i == late ? bound : 0);
    expect_goes_on(&s, plan);
    sim_fini(&s);
}

static void test_owes_all_of_the_plan(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        leave_at_once(seed, "hghg", (int)(seed % RANKS), false, false);
        leave_at_once(seed, "gghgh", (int)(seed % RANKS), true, false);
        leave_at_once(seed, "g", (int)(seed % RANKS), true, false);
    }
}

/* A batch that is not bound does not wait for owed ones. */
static void test_host_batches_do_not_wait(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++)
        leave_at_once(seed, "hghg", (int)(seed % RANKS), false, true);
}

/* The late rank has submitted the owed tensors before the thaw, all but one in front of them. */
static void test_owed_are_submitted_already(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        const char *plan = "hgg";
        int late = (int)(seed % RANKS);
        sim_init(&s, seed, &o);
        freeze(&s, plan);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i == late) {
                submit(r, plan, 2);
                submit(r, plan, 1);
                sim_sleep(r, 5 * CLOCK_MS);
                submit_extra(r, true);
                sim_wait(r, 1); /* needs no other submission */
                submit(r, plan, 0);
            } else {
                submit_all(r, plan);
                submit_extra(r, true);
            }
            wait_all(r, plan);
            sim_wait(r, EXTRA);
        }
        expect_goes_on(&s, plan);
        assert_int_equal(stats(&s, late).owed, 2);
        sim_fini(&s);
    }
}

/* The ranks are at different places of the plan when one leaves it, and some have been handed only
 * batches that are not bound. */
static void test_different_places(void **state)
{
    const char *plan = "hghghg";
    uint64_t owed = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        sim_init(&s, seed, &o);
        freeze(&s, plan);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            int place = (int)sim_random(&s, 7);
            for (int k = 0; k < 6; k++) {
                if (k == place) {
                    if (i == (int)(seed % RANKS))
                        submit_extra(r, seed % 4 < 2);
                    sim_sleep(r, 5 * CLOCK_MS + sim_random(&s, 2000) * 1000);
                }
                submit(r, plan, k);
            }
            if (i != (int)(seed % RANKS) || place == 6)
                submit_extra(r, seed % 4 < 2);
            wait_all(r, plan);
            sim_wait(r, EXTRA);
        }
        expect_goes_on(&s, plan);
        for (int i = 0; i < s.n; i++)
            owed += stats(&s, i).owed;
        sim_fini(&s);
    }
    assert_true(owed > 100);
}

/* A program leaves the plan on every rank at the same place. A rank that is ahead must not begin
 * bound batches behind that place: another rank waits before it submits them. */
static void test_does_not_begin_after_leaving(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        const char *plan = "ghgg";
        sim_init(&s, seed, &o);
        freeze(&s, plan);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            submit(r, plan, 0);
            if (i == (int)(seed % RANKS))
                sim_sleep(r, 5 * CLOCK_MS);
            submit_extra(r, true);
            if (i == (int)(seed % RANKS))
                sim_wait(r, EXTRA);
            for (int k = 1; k < 4; k++)
                submit(r, plan, k);
            wait_all(r, plan);
            sim_wait(r, EXTRA);
        }
        expect_goes_on(&s, plan);
        sim_fini(&s);
    }
}

/* The thaw follows at once on the beginning of the plan. */
static void test_thaw_of_a_new_plan(void **state)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        const char *plan = "gh";
        o.freeze_after = 1 + seed % 3;
        sim_init(&s, seed, &o);
        for (int k = 0; k < 30; k++) {
            int odd = (int)sim_random(&s, RANKS);
            for (int i = 0; i < s.n; i++) {
                struct sim_rank *r = &s.ranks[i];
                if (i == odd)
                    sim_sleep(r, sim_random(&s, 3000) * 1000);
                if (i == odd && k % 5 == 4)
                    submit_extra(r, k % 2);
                submit_all(r, plan);
                if (i != odd && k % 5 == 4)
                    submit_extra(r, k % 2);
                wait_all(r, plan);
                sim_wait(r, EXTRA);
            }
        }
        run(&s);
        assert_string_equal(s.ranks[0].lost, "");
        sim_fini(&s);
    }
}

/* The log repeats itself while a rank owes a batch. No plan may begin before that rank was handed
 * it. */
static void test_no_plan_while_owed(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        sim_init(&s, seed, &o);
        freeze(&s, "g");
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i != odd)
                submit(r, "g", 0);
            sim_sleep(r, 5 * CLOCK_MS);
            for (int k = 0; k < 20; k++) {
                submit_extra(r, false);
                sim_wait(r, EXTRA);
            }
            if (i == odd)
                submit(r, "g", 0);
            sim_wait(r, 0);
        }
        run(&s);
        assert_int_equal(stats(&s, odd).owed, 1);
        assert_int_equal(stats(&s, 0).thaws, 1);
        expect_goes_on(&s, "g");
        sim_fini(&s);
    }
}

/* The root owes t0, and other tensors take its cache id meanwhile. */
static void test_evicted_while_owed(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        o.cache_capacity = 1;
        sim_init(&s, seed, &o);
        freeze(&s, "g");
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i != 0)
                submit(r, "g", 0);
            sim_sleep(r, 5 * CLOCK_MS);
            submit_extra(r, false);
            sim_wait(r, EXTRA);
            if (i == 0)
                submit(r, "g", 0);
            sim_wait(r, 0);
        }
        expect_goes_on(&s, "g");
        assert_true(stats(&s, 0).owed >= 1);
        sim_fini(&s);
    }
}

/* The log has the larger t1 before t0, which waits for its bucket to fill. One rank waits for t0
 * before it submits t1, and the others do not. Since the plan has them in the program's order, no
 * rank is handed t1 before that one was handed t0. */
static void test_plan_has_the_order_of_the_program(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        struct signature small = sim_on_gpu(sim_allreduce(1)), large = small;
        large.dtype = HVD_FLOAT64;
        large.shape[0] = 1000;
        o.fusion_bytes = 4000;
        sim_init(&s, seed, &o);
        for (int round = 0; round < 60; round++)
            for (int i = 0; i < s.n; i++) {
                struct sim_rank *r = &s.ranks[i];
                sim_submit(r, 0, &small, 0);
                if (round > 20 && round % 5 == i)
                    sim_wait(r, 0);
                sim_submit(r, 1, &large, 0);
                sim_wait(r, 0);
                sim_wait(r, 1);
            }
        run(&s);
        assert_string_equal(s.ranks[0].lost, "");
        expect_frozen(&s, true);
        sim_fini(&s);
    }
}

/* The timer splits t0 and t1. The plan must not merge them, although the root has submitted both by
 * then: in some rounds another rank waits in between. */
static void test_bound_batches_are_not_merged(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        o.fusion_bytes = 4000;
        o.cycle_ns = 10;
        sim_init(&s, seed, &o);
        for (int round = 0; round < 60; round++)
            for (int i = 0; i < s.n; i++) {
                struct sim_rank *r = &s.ranks[i];
                submit(r, "gg", 0);
                if (i != 0)
                    sim_sleep(r, CLOCK_MS);
                if (round > 30 && i == 1 + round % 5)
                    sim_wait(r, 0);
                submit(r, "gg", 1);
                sim_sleep(
                    r, 3 * CLOCK_MS); /* a caller that waits would end the batch, not the timer */
                wait_all(r, "gg");
            }
        run(&s);
        assert_string_equal(s.ranks[0].lost, "");
        expect_frozen(&s, true);
        sim_fini(&s);
    }
}

/* Groups whose members fill several bound batches: a thaw finds all of them handed out, or none. */
static void test_groups(void **state)
{
    uint64_t owed = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        sim_init(&s, seed, &o);
        for (int round = 0; round < 40; round++) {
            int odd = round % 10 == 9 ? (int)sim_random(&s, RANKS) : -1;
            for (int i = 0; i < s.n; i++) {
                struct sim_rank *r = &s.ranks[i];
                if (i == odd) {
                    sim_sleep(r, 5 * CLOCK_MS);
                    submit_extra(r, true);
                }
                for (int k = 0; k < 3; k++) {
                    struct sim_step step = {.what = SIM_SUBMIT,
                                            .name = k,
                                            .group = k == 0 ? 3 : 0,
                                            .sig = sim_on_gpu(sim_allreduce(10 + k))};
                    step.sig.dtype = k == 1 ? HVD_FLOAT64 : HVD_FLOAT32;
                    step.sig.group_size = 3;
                    step.sig.group_index = (uint32_t)k;
                    step.sig.group_hash = 4711;
                    sim_add(r, &step);
                }
                if (odd >= 0 && i != odd)
                    submit_extra(r, true);
                for (int k = 0; k < 3; k++)
                    sim_wait(r, k);
                sim_wait(r, EXTRA);
            }
        }
        run(&s);
        for (int i = 0; i < s.n; i++) {
            assert_string_equal(s.ranks[i].lost, "");
            assert_int_equal(stats(&s, i).owed % 3, 0);
            owed += stats(&s, i).owed;
        }
        sim_fini(&s);
    }
    assert_true(owed > 100);
}

/* Rows that change are no conflict: a bound batch with tables is in no plan. */
static void test_tables_are_not_planned(void **state)
{
    struct sim s;
    sim_init(&s, 3, &options);
    struct signature sig = sim_on_gpu(sim_allgather());
    for (uint64_t k = 0; k < 40; k++)
        for (int i = 0; i < s.n; i++) {
            sim_submit(&s.ranks[i], 5, &sig, k / 10);
            sim_wait(&s.ranks[i], 5);
        }
    run(&s);
    expect_frozen(&s, false);
    assert_string_equal(s.ranks[0].lost, "");
    sim_fini(&s);
}

static bool freezes(struct signature sig)
{
    struct sim s;
    sim_init(&s, 3, &options);
    for (int k = 0; k < 40; k++)
        for (int i = 0; i < s.n; i++) {
            sim_submit(&s.ranks[i], 5, &sig, 0);
            sim_wait(&s.ranks[i], 5);
        }
    run(&s);
    bool frozen = negotiate_frozen(s.ranks[0].n);
    expect_frozen(&s, frozen);
    sim_fini(&s);
    return frozen;
}

/* A rank may end these before another one has begun them, so it could be ahead by two. */
static void test_only_what_all_wait_for(void **state)
{
    struct signature sum = sim_allreduce(100), empty = sim_allreduce(0), broadcast = sum;
    struct signature scatter = sum, few = sum;
    broadcast.kind = HVD_BROADCAST;
    scatter.kind = few.kind = HVD_REDUCESCATTER;
    few.shape[0] = options.n - 1; /* rows */
    assert_true(freezes(sim_on_gpu(sum)));
    assert_true(freezes(sim_on_gpu(scatter)));
    assert_false(freezes(sim_on_gpu(empty)));
    assert_false(freezes(sim_on_gpu(broadcast)));
    assert_false(freezes(sim_on_gpu(few)));
    assert_true(freezes(empty) && freezes(broadcast) && freezes(few));
}

/* Random programs: every rank submits the tensors of a round in an order of its own, with pauses,
 * and in many rounds another tensor somewhere between them. It waits only at the end of a round. */
static void random_program(uint64_t seed, uint64_t *owed)
{
    struct sim s;
    struct sim_options o = options_for(seed);
    char plan[12] = "";
    o.n = 2 + (int)(seed % 7);
    o.fusion_bytes = seed % 4 ? 1 : 100;
    sim_init(&s, seed, &o);
    int n = 1 + (int)sim_random(&s, 10);
    for (int k = 0; k < n; k++)
        plan[k] = sim_random(&s, 2) ? 'g' : 'h';
    for (int round = 0; round < 60; round++) {
        bool extra = round > 5 && sim_random(&s, 6) == 0, gpu = sim_random(&s, 2);
        bool orders = sim_random(&s, 4) == 0;
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            int at = (int)sim_random(&s, (uint64_t)n + 1),
                turn = orders ? (int)sim_random(&s, 9) : 0;
            for (int k = 0; k <= n; k++) {
                if (sim_random(&s, 12) == 0)
                    sim_sleep(r, sim_random(&s, 4000) * 1000);
                if (k == at && extra)
                    submit_extra(r, gpu);
                if (k < n)
                    submit(r, plan, (k + turn) % n);
            }
            wait_all(r, plan);
            sim_wait(r, EXTRA);
        }
    }
    run(&s);
    for (int i = 0; i < s.n; i++) {
        if (s.ranks[i].lost[0])
            fail_msg("seed %llu: rank %d: %s", (unsigned long long)seed, i, s.ranks[i].lost);
        *owed += stats(&s, i).owed;
    }
    sim_fini(&s);
}

static void test_random_programs(void **state)
{
    uint64_t owed = 0;
    for (uint64_t seed = 1; seed <= 400; seed++)
        random_program(seed, &owed);
    print_message("%llu owed batches\n", (unsigned long long)owed);
    assert_true(owed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freezes_and_ends_in_any_order),
        cmocka_unit_test(test_fast_path_beside_bound_batches),
        cmocka_unit_test(test_owes_all_of_the_plan),
        cmocka_unit_test(test_host_batches_do_not_wait),
        cmocka_unit_test(test_owed_are_submitted_already),
        cmocka_unit_test(test_different_places),
        cmocka_unit_test(test_does_not_begin_after_leaving),
        cmocka_unit_test(test_thaw_of_a_new_plan),
        cmocka_unit_test(test_no_plan_while_owed),
        cmocka_unit_test(test_evicted_while_owed),
        cmocka_unit_test(test_plan_has_the_order_of_the_program),
        cmocka_unit_test(test_bound_batches_are_not_merged),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_tables_are_not_planned),
        cmocka_unit_test(test_only_what_all_wait_for),
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
