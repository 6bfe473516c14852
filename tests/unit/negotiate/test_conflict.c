/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of programs that cannot go on, because a rank does not submit what the other ranks have
 * begun in a bound batch: every rank ends with the reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "tests/harness/negotiate_sim.h"

enum { RANKS = 6 };

static const struct sim_options options = {
    .n = RANKS,
    .fan = 3,
    .fusion_bytes = 1,
    .cycle_ns = CLOCK_MS,
    .cache_capacity = 100,
    .freeze_after = 3,
};

static struct sim_options options_for(uint64_t seed)
{
    struct sim_options o = options;
    o.fan = (int[]){3, 0, 1}[seed % 3];
    return o;
}

static void submit(struct sim_rank *r, int name, int64_t count)
{
    struct signature sig = sim_on_gpu(sim_allreduce(count));
    sim_submit(r, name, &sig, 0);
}

/* Rounds of t0 and t1, until they are frozen. */
static void freeze(struct sim *s)
{
    for (int k = 0; k < 12; k++)
        for (int i = 0; i < s->n; i++) {
            submit(&s->ranks[i], 0, 10);
            submit(&s->ranks[i], 1, 11);
            sim_wait(&s->ranks[i], 0);
            sim_wait(&s->ranks[i], 1);
        }
    if (!sim_run(s))
        fail_msg("%s", s->why);
    assert_true(negotiate_frozen(s->ranks[RANKS - 1].n));
}

/* Runs the program to its end, which is this text, on every rank. */
static void expect_end(struct sim *s, int code, const char *text)
{
    if (!sim_run(s))
        fail_msg("%s", s->why);
    for (int i = 0; i < s->n; i++) {
        assert_string_equal(s->ranks[i].lost, text);
        assert_int_equal(s->ranks[i].lost_rank, -1);
        assert_int_equal(s->ranks[i].lost_code, code);
        assert_int_equal(negotiate_failed(s->ranks[i].n), code);
    }
}

static void expect_order(struct sim *s, int rank, int waited, int first)
{
    char text[400];
    snprintf(text, sizeof(text),
             "rank %d waits for 't%d', which comes after 't%d' on the other ranks: they have begun "
             "it on their GPUs, and NCCL cannot take that back; submit tensors in the same order "
             "on every rank",
             rank, waited, first);
    expect_end(s, -EINVAL, text);
}

/* One rank waits for t1 before it submits t0, which the other ranks have begun. They wait for t0,
 * or submit t1 too. */
static void test_other_order(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        sim_init(&s, seed, &o);
        freeze(&s);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i == odd) {
                sim_sleep(r, 5 * CLOCK_MS);
                submit(r, 1, 11);
                sim_wait(r, 1);
                submit(r, 0, 10);
            } else {
                submit(r, 0, 10);
                if (seed % 2)
                    sim_wait(r, 0);
                submit(r, 1, 11);
            }
            sim_wait(r, 0);
            sim_wait(r, 1);
        }
        expect_order(&s, odd, 1, 0);
        sim_fini(&s);
    }
}

/* One rank waits for a new tensor before it submits t0. In the log the new one is behind t0. */
static void test_new_tensor_behind(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        sim_init(&s, seed, &o);
        freeze(&s);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i == odd) {
                sim_sleep(r, 5 * CLOCK_MS);
                submit(r, 7, 5);
                sim_wait(r, 7);
            }
            submit(r, 0, 10);
            submit(r, 7, 5);
            sim_wait(r, 0);
        }
        for (int i = 0; i < s.n; i++)
            if (i == odd)
                s.ranks[i].nsteps -= 2; /* it does not submit t7 twice */
        expect_order(&s, odd, 7, 0);
        sim_fini(&s);
    }
}

/* t0 and t1 are one batch, and a rank waits for one of them before it submits the other. */
static void test_one_batch(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        char text[400];
        int odd = (int)(seed % RANKS);
        o.fusion_bytes = 1000;
        o.cycle_ns = 100 * CLOCK_MS;
        sim_init(&s, seed, &o);
        freeze(&s);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i == odd) {
                sim_sleep(r, 5 * CLOCK_MS);
                submit(r, 1, 11);
                sim_wait(r, 1);
                submit(r, 0, 10);
            } else {
                submit(r, 0, 10);
                submit(r, 1, 11);
            }
            sim_wait(r, 0);
            sim_wait(r, 1);
        }
        snprintf(text, sizeof(text),
                 "rank %d waits for 't1', which runs together with 't0' on the other ranks: they "
                 "have begun both on their GPUs, and NCCL cannot take that back; submit tensors in "
                 "the same order on every rank",
                 odd);
        expect_end(&s, -EINVAL, text);
        sim_fini(&s);
    }
}

/* Another thread submits what is lacking within a second. */
static void test_another_thread_is_late(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        sim_init(&s, seed, &o);
        freeze(&s);
        for (int i = 0; i < s.n; i++) {
            struct sim_rank *r = &s.ranks[i];
            if (i == odd) {
                sim_sleep(r, 5 * CLOCK_MS);
                submit(r, 1, 11);
                /* A wait in another thread: the program itself goes on. */
                sim_add(r, &(struct sim_step){.what = SIM_PRIORITIZE, .name = 1});
                sim_sleep(r, 900 * CLOCK_MS);
                submit(r, 0, 10);
            } else {
                submit(r, 0, 10);
                submit(r, 1, 11);
            }
            sim_wait(r, 0);
            sim_wait(r, 1);
        }
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        for (int i = 0; i < s.n; i++)
            assert_string_equal(s.ranks[i].lost, "");
        sim_fini(&s);
    }
}

/* One rank has another shape. before: it submits it before the thaw, which it asks for. */
static void other_shape(uint64_t seed, bool before)
{
    struct sim s;
    struct sim_options o = options_for(seed);
    char text[400];
    int odd = (int)(seed % RANKS);
    sim_init(&s, seed, &o);
    freeze(&s);
    for (int i = 0; i < s.n; i++) {
        struct sim_rank *r = &s.ranks[i];
        if (i == odd) {
            sim_sleep(r, 5 * CLOCK_MS);
            if (!before) {
                submit(r, 7, 5);
                sim_sleep(r, 20 * CLOCK_MS);
            }
            submit(r, 0, 12);
        } else {
            submit(r, 0, 10);
            sim_sleep(r, before ? 50 * CLOCK_MS : 0);
            submit(r, 7, 5);
        }
        sim_wait(r, 0);
    }
    snprintf(text, sizeof(text),
             "ranks do not agree: allreduce 't0': rank %d: float32 [12] sum on a GPU; other ranks: "
             "float32 [10] sum on a GPU, and they have begun it on their GPUs. NCCL cannot take "
             "that back; submit the same on every rank",
             odd);
    expect_end(&s, -EINVAL, text);
    sim_fini(&s);
}

static void test_other_shape(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        other_shape(seed, true);
        other_shape(seed, false);
    }
}

/* Random orders, and in some rounds a rank waits where the others do not: the programs end, or
 * every rank ends with the reason. */
static void test_random_orders(void **state)
{
    int ended = 0, conflicts = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        o.fusion_bytes = seed % 2 ? 1 : 100;
        sim_init(&s, seed, &o);
        int n = 2 + (int)sim_random(&s, 5);
        uint64_t rare = 2 + sim_random(&s, 300);
        for (int round = 0; round < 60; round++) {
            int odd = sim_random(&s, rare) ? -1 : (int)sim_random(&s, RANKS);
            for (int i = 0; i < s.n; i++) {
                struct sim_rank *r = &s.ranks[i];
                /* One rank submits a part of the round, waits for it, and submits the rest. */
                int turn = sim_random(&s, rare) ? 0 : (int)sim_random(&s, (uint64_t)n);
                int part = i == odd ? 1 + (int)sim_random(&s, (uint64_t)n) : n;
                if (i == odd)
                    sim_sleep(r, sim_random(&s, 3) * CLOCK_MS);
                for (int k = 0; k < part; k++)
                    submit(r, (k + turn) % n, 10 + (k + turn) % n);
                for (int k = 0; k < part; k++)
                    sim_wait(r, (k + turn) % n);
                for (int k = part; k < n; k++)
                    submit(r, (k + turn) % n, 10 + (k + turn) % n);
                for (int k = part; k < n; k++)
                    sim_wait(r, (k + turn) % n);
            }
        }
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        ended += !s.ranks[0].lost[0];
        conflicts += s.ranks[0].lost[0] != 0;
        for (int i = 0; i < s.n; i++) {
            assert_string_equal(s.ranks[i].lost, s.ranks[0].lost);
            assert_int_equal(s.ranks[i].lost_code, s.ranks[0].lost_code);
        }
        sim_fini(&s);
    }
    print_message("%d ended, %d conflicts\n", ended, conflicts);
    assert_true(ended > 10 && conflicts > 10);
}

/* ---- owed batches that stay incomplete ---------------------------------------------------------
 */

/* The other ranks have begun t0, and one rank does not submit it. */
static void add_missing(struct sim *s, int odd, uint64_t ns)
{
    for (int i = 0; i < s->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        if (i == odd)
            sim_sleep(r, ns);
        submit(r, 0, 10);
        sim_wait(r, 0);
    }
}

/* The same, while batches that are not bound go on. */
static void add_missing_beside_others(struct sim *s, int odd)
{
    struct signature host = sim_allreduce(5);
    for (int i = 0; i < s->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        if (i != odd)
            submit(r, 0, 10);
        for (int k = 0; k < 20; k++) {
            if (i == odd)
                sim_sleep(r, 10 * CLOCK_S);
            sim_submit(r, 9, &host, 0);
            sim_wait(r, 9);
        }
        if (i == odd)
            submit(r, 0, 10);
        sim_wait(r, 0);
    }
}

static void expect_part(const char *text, const char *before, int rank, const char *after)
{
    char part[200];
    snprintf(part, sizeof(part), "%s: missing rank %d (rank %d %s", before, rank, rank, after);
    if (!strstr(text, part))
        fail_msg("the text '%s' lacks '%s'", text, part);
}

static void test_stall_names_the_missing(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        o.stall_ns = 60 * CLOCK_S;
        sim_init(&s, seed, &o);
        freeze(&s);
        if (seed % 2)
            add_missing(&s, odd, 200 * CLOCK_S);
        else
            add_missing_beside_others(&s, odd);
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        for (int i = 0; i < s.n; i++) {
            const char *text = s.ranks[i].stall;
            assert_string_equal(s.ranks[i].lost, "");
            expect_part(text, "'t0' has waited 60 s", odd, "has not called anything");
            if (odd != 0) /* the root has begun t0 */
                expect_part(text, "'t0' has run for 60 s", odd, "has not called anything");
            assert_null(strstr(text, "every rank answers"));
        }
        sim_fini(&s);
    }
}

static void test_stall_ends_all(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = (int)(seed % RANKS);
        o.stall_ns = 60 * CLOCK_S;
        o.stall_shutdown_ns = 90 * CLOCK_S;
        sim_init(&s, seed, &o);
        freeze(&s);
        add_missing(&s, odd, 1000 * CLOCK_S);
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        for (int i = 0; i < s.n; i++) {
            assert_string_equal(s.ranks[i].lost, s.ranks[0].lost);
            expect_part(s.ranks[i].lost, " 90 s", odd, "has not called anything");
            assert_int_equal(s.ranks[i].lost_rank, -1);
            assert_int_equal(s.ranks[i].lost_code, -ETIMEDOUT);
        }
        sim_fini(&s);
    }
}

/* A rank is stopped after the thaw, while it owes t0. */
static void test_stopped_while_it_owes(void **state)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct sim s;
        struct sim_options o = options_for(seed);
        int odd = 1 + (int)(seed % (RANKS - 1));
        o.stall_ns = 60 * CLOCK_S;
        o.stall_shutdown_ns = 90 * CLOCK_S;
        sim_init(&s, seed, &o);
        freeze(&s);
        add_missing(&s, odd, 1000 * CLOCK_S);
        struct negotiate_stats st = {0};
        for (int k = 0; k < 60 && st.owed == 0; k++) {
            for (int i = 0; i < 300; i++)
                sim_step_once(&s);
            s.now += CLOCK_S;
            negotiate_get_stats(s.ranks[odd].n, &st);
        }
        assert_int_equal(st.owed, 1);
        s.ranks[odd].deaf = true;
        for (int k = 0; k < 200; k++) {
            for (int i = 0; i < 300; i++)
                sim_step_once(&s);
            s.now += CLOCK_S;
        }
        /* Ranks below the stopped one do not answer either, and do not hear of the end. */
        if (!strstr(s.ranks[0].lost, "does not answer"))
            fail_msg("'%s'", s.ranks[0].lost);
        assert_int_equal(s.ranks[0].lost_rank, odd);
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_new_tensor_behind),
        cmocka_unit_test(test_one_batch),
        cmocka_unit_test(test_another_thread_is_late),
        cmocka_unit_test(test_other_shape),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_stall_names_the_missing),
        cmocka_unit_test(test_stall_ends_all),
        cmocka_unit_test(test_stopped_while_it_owes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
