/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of plan and thaw: when the schedule freezes, that then no message is sent and nothing is
 * allocated, and every way to leave the plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "tests/harness/negotiate_sim.h"

static const struct sim_options options = {
    .n = 6,
    .fan = 3,
    .fusion_bytes = 100000,
    .cycle_ns = CLOCK_MS,
    .cache_capacity = 100,
    .freeze_after = 3,
};

static void run(struct sim *s)
{
    if (!sim_run(s))
        fail_msg("%s", s->why);
}

/* Submits `n` tensors from `first` on, then waits for them. */
static void add(struct sim_rank *r, int first, int n)
{
    for (int k = first; k < first + n; k++) {
        struct signature sig = sim_allreduce(10 + k);
        sim_submit(r, k, &sig, 0);
    }
    for (int k = first; k < first + n; k++)
        sim_wait(r, k);
}

static void add_rounds(struct sim *s, int rounds, int n)
{
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < s->n; i++)
            add(&s->ranks[i], 0, n);
}

static struct negotiate_stats stats(const struct sim *s, int rank)
{
    struct negotiate_stats st;
    negotiate_get_stats(s->ranks[rank].n, &st);
    return st;
}

static bool all_frozen(const struct sim *s)
{
    for (int i = 0; i < s->n; i++)
        if (!negotiate_frozen(s->ranks[i].n))
            return false;
    return true;
}

static void test_freezes_and_is_silent(void **state)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim s;
        sim_init(&s, seed, &options);
        add_rounds(&s, 8, 5);
        run(&s);
        assert_true(all_frozen(&s));
        uint64_t messages = s.messages, done = sim_executed(&s.ranks[3]);
        add_rounds(&s, 30, 5);
        run(&s);
        assert_int_equal(s.messages, messages);
        assert_true(sim_executed(&s.ranks[3]) > done);
        assert_true(stats(&s, 5).frozen >= 30);
        sim_fini(&s);
    }
}

static void test_does_not_freeze_early(void **state)
{
    struct sim s;
    sim_init(&s, 1, &options);
    add_rounds(&s, 2, 5);
    run(&s);
    assert_false(all_frozen(&s));
    sim_fini(&s);
    struct sim_options o = options;
    o.freeze_after = 0;
    sim_init(&s, 1, &o);
    add_rounds(&s, 20, 2);
    run(&s);
    assert_int_equal(stats(&s, 0).frozen, 0);
    sim_fini(&s);
}

/* Two programs alternate: the period is two rounds. */
static void test_long_period(void **state)
{
    struct sim s;
    sim_init(&s, 2, &options);
    for (int k = 0; k < 12; k++)
        for (int i = 0; i < s.n; i++) {
            add(&s.ranks[i], 0, 3);
            add(&s.ranks[i], 0, 2);
            add(&s.ranks[i], 10 + k % 2, 1);
        }
    run(&s);
    assert_true(all_frozen(&s));
    sim_fini(&s);
}

static void test_fast_path(void **state)
{
    struct sim s;
    sim_init(&s, 3, &options);
    for (int i = 0; i < s.n; i++)
        s.ranks[i].eager = true;
    add_rounds(&s, 50, 1);
    run(&s);
    for (int i = 0; i < s.n; i++)
        assert_true(s.ranks[i].fast > 40);
    sim_fini(&s);
}

/* One rank, two ranks at once, or all ranks leave the plan, in its middle or at its end. */
static void test_divergence(void **state)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sim s;
        sim_init(&s, seed, &options);
        add_rounds(&s, 8, 4);
        for (int i = 0; i < s.n; i++) {
            if (seed % 4 == 0) /* the program ends in the middle of a round */
                add(&s.ranks[i], 0, 2);
            if (seed % 4 == 1) { /* another shape, which is the same on all ranks */
                struct signature sig = sim_allreduce(999);
                sim_submit(&s.ranks[i], 1, &sig, 0);
                sim_wait(&s.ranks[i], 1);
            }
            if (seed % 4 == 2 && i % 3 == 0) /* a tensor that is not in the plan */
                add(&s.ranks[i], 20, 1);
            if (seed % 4 == 2 && i % 3 != 0)
                add(&s.ranks[i], 20, 1);
            if (seed % 4 == 3) { /* ranks 1 and 4 submit a tensor earlier than the others, and then
                                    follow the plan again */
                struct signature sig = sim_allreduce(7);
                if (i == 1 || i == 4) {
                    sim_submit(&s.ranks[i], 30, &sig, 0);
                    add(&s.ranks[i], 0, 4);
                } else {
                    add(&s.ranks[i], 0, 4);
                    sim_submit(&s.ranks[i], 30, &sig, 0);
                }
                sim_wait(&s.ranks[i], 30);
            }
        }
        run(&s);
        if (seed % 4) /* for seed % 4 == 0 a plan may end exactly where the round is cut */
            assert_true(stats(&s, 0).thaws >= 1);
        add_rounds(&s, 20, 4);
        run(&s);
        assert_true(all_frozen(&s));
        sim_fini(&s);
    }
}

/* A group of three, each of which fills a batch. */
static void add_group(struct sim_rank *r, int64_t second)
{
    for (int k = 0; k < 3; k++) {
        struct sim_step step = {.what = SIM_SUBMIT,
                                .name = 40 + k,
                                .group = k == 0 ? 3 : 0,
                                .sig = sim_allreduce(k == 1 ? second : 20000)};
        step.sig.group_size = 3;
        step.sig.group_index = (uint32_t)k;
        step.sig.group_hash = 4711;
        sim_add(r, &step);
    }
    for (int k = 0; k < 3; k++)
        sim_wait(r, 40 + k);
}

/* One member of a group changes on every rank. The first member must not have begun by the plan:
 * the others would wait for it in negotiation. */
static void test_group_in_several_batches(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        sim_init(&s, seed, &options);
        for (int k = 0; k < 40; k++)
            for (int i = 0; i < s.n; i++)
                add_group(&s.ranks[i], k < 20 ? 20000 : 20001);
        run(&s);
        assert_true(all_frozen(&s));
        assert_in_range(stats(&s, 0).thaws, 1, 2);
        sim_fini(&s);
    }
}

/* A program that changes all the time must not freeze after each change. */
static void test_backs_off(void **state)
{
    struct sim s;
    sim_init(&s, 5, &options);
    for (int k = 0; k < 40; k++) {
        add_rounds(&s, 5, 3);
        for (int i = 0; i < s.n; i++)
            add(&s.ranks[i], 20 + k % 3, 1);
    }
    run(&s);
    assert_in_range(stats(&s, 0).thaws, 1, 6);
    sim_fini(&s);
}

/* A mesh has a limited number of generations: after the last thaw the schedule stays negotiated,
 * and the job goes on. */
static void test_thaws_have_an_end(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.thaws_max = 2;
    sim_init(&s, 5, &o);
    for (int k = 0; k < 4; k++) {
        add_rounds(&s, 60, 3);
        run(&s);
        assert_int_equal(all_frozen(&s), k < 2);
        for (int i = 0; i < s.n; i++)
            add(&s.ranks[i], 20, 1);
    }
    run(&s);
    for (int i = 0; i < s.n; i++)
        assert_int_equal(stats(&s, i).thaws, 2);
    sim_fini(&s);
}

/* Each tensor is waited for before the next is submitted, and the timer separates them: the plan
 * must not fuse tensors that cannot be submitted together. */
static void test_never_merges_what_depends(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.cycle_ns = 10;
    sim_init(&s, 6, &o);
    for (int k = 0; k < 40; k++)
        for (int i = 0; i < s.n; i++)
            for (int name = 0; name < 4; name++) {
                struct signature sig = sim_allreduce(10);
                sim_submit(&s.ranks[i], name, &sig, 0);
                sim_sleep(&s.ranks[i], 2 * CLOCK_MS);
                sim_wait(&s.ranks[i], name);
            }
    run(&s);
    assert_true(all_frozen(&s));
    assert_int_equal(stats(&s, 0).thaws, 0);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freezes_and_is_silent),
        cmocka_unit_test(test_does_not_freeze_early),
        cmocka_unit_test(test_long_period),
        cmocka_unit_test(test_fast_path),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_group_in_several_batches),
        cmocka_unit_test(test_backs_off),
        cmocka_unit_test(test_thaws_have_an_end),
        cmocka_unit_test(test_never_merges_what_depends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
