/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the root's decisions: mismatches reported on every rank, when batches are flushed,
 * groups, fusion, cache ids that are given and evicted.
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
    .n = 5,
    .fan = 3,
    .fusion_bytes = 4000,
    .cycle_ns = 1000 * CLOCK_S, /* so that nothing is flushed by the timer unseen */
    .cache_capacity = 100,
};

static void run(struct sim *s)
{
    if (!sim_run(s))
        fail_msg("%s", s->why);
}

static void submit_all(struct sim *s, int name, const struct signature *sig)
{
    for (int i = 0; i < s->n; i++)
        sim_submit(&s->ranks[i], name, sig, 0);
}

static void wait_all(struct sim *s, int name)
{
    for (int i = 0; i < s->n; i++)
        sim_wait(&s->ranks[i], name);
}

static void expect_everywhere(const struct sim *s, int name, const char *text)
{
    for (int i = 0; i < s->n; i++) {
        assert_int_equal(s->ranks[i].tensors[name].failed, 1);
        assert_string_equal(s->ranks[i].tensors[name].text, text);
    }
}

static void test_mismatch_of_shape(void **state)
{
    struct sim s;
    sim_init(&s, 1, &options);
    struct signature right = sim_allreduce(10), wrong = right;
    right.ndim = wrong.ndim = 2;
    right.shape[1] = 4;
    wrong.shape[1] = 5;
    for (int i = 0; i < s.n; i++) {
        sim_submit(&s.ranks[i], 3, i == 1 ? &wrong : &right, 0);
        sim_wait(&s.ranks[i], 3);
    }
    run(&s);
    for (int i = 0; i < s.n; i++) {
        const char *text = s.ranks[i].tensors[3].text;
        assert_non_null(strstr(text, "allreduce 't3':"));
        assert_non_null(strstr(text, "rank 0,2-4: float32 [10,4] sum"));
        assert_non_null(strstr(text, "rank 1: float32 [10,5] sum"));
    }
    sim_fini(&s);
}

/* A mismatch after all ranks have agreed once: most announce the id, one the full request. */
static void test_mismatch_after_caching(void **state)
{
    struct sim s;
    sim_init(&s, 2, &options);
    struct signature sum = sim_allreduce(10), max = sum;
    max.op = HVD_MAX;
    submit_all(&s, 3, &sum);
    wait_all(&s, 3);
    for (int i = 0; i < s.n; i++) {
        sim_submit(&s.ranks[i], 3, i == 4 ? &max : &sum, 0);
        sim_wait(&s.ranks[i], 3);
    }
    submit_all(&s, 3, &sum); /* a valid round follows */
    wait_all(&s, 3);
    run(&s);
    expect_everywhere(&s, 3,
                      "ranks do not agree: allreduce 't3': rank 0-3: float32 [10] sum; "
                      "rank 4: float32 [10] max");
    assert_int_equal(s.ranks[0].tensors[3].ran, 2);
    sim_fini(&s);
}

static void test_mismatch_of_kind_and_root(void **state)
{
    struct sim s;
    sim_init(&s, 3, &options);
    struct signature a = sim_allreduce(10), b = a, barrier = {.kind = HVD_BARRIER};
    a.kind = b.kind = HVD_BROADCAST;
    b.root = 2;
    for (int i = 0; i < s.n; i++)
        sim_submit(&s.ranks[i], 1, i < 2 ? &a : &b, 0);
    wait_all(&s, 1);
    for (int i = 0; i < s.n; i++)
        sim_submit(&s.ranks[i], 2, i == 0 ? &barrier : &a, 0);
    wait_all(&s, 2);
    run(&s);
    for (int i = 0; i < s.n; i++) {
        assert_non_null(strstr(s.ranks[i].tensors[1].text, "broadcast 't1':"));
        assert_non_null(strstr(s.ranks[i].tensors[1].text, "rank 2-4: float32 [10] root 2"));
        assert_non_null(strstr(s.ranks[i].tensors[2].text, "rank 0: barrier"));
        assert_non_null(strstr(s.ranks[i].tensors[2].text, "rank 1-4: broadcast float32 [10]"));
    }
    sim_fini(&s);
}

/* Dimension 0 of an allgather may differ between ranks, the other dimensions may not. */
static void test_mismatch_of_allgather(void **state)
{
    struct sim s;
    sim_init(&s, 4, &options);
    struct signature a = sim_allgather(), b = a;
    b.shape[1] = 6;
    submit_all(&s, 1, &a);
    wait_all(&s, 1);
    for (int i = 0; i < s.n; i++)
        sim_submit(&s.ranks[i], 1, i == 3 ? &b : &a, 1);
    wait_all(&s, 1);
    run(&s);
    for (int i = 0; i < s.n; i++) {
        assert_non_null(strstr(s.ranks[i].tensors[1].text, "rank 0-2,4: float32 [*,5]"));
        assert_non_null(strstr(s.ranks[i].tensors[1].text, "rank 3: float32 [*,6]"));
    }
    sim_fini(&s);
}

/* With a cycle of 1000 s: a tensor for which a caller waits does not wait for the timer. */
static void test_lone_tensor_goes_at_once(void **state)
{
    struct sim s;
    sim_init(&s, 5, &options);
    struct signature sig = sim_allreduce(10);
    for (int k = 0; k < 20; k++) {
        submit_all(&s, k, &sig);
        wait_all(&s, k);
    }
    run(&s);
    assert_true(s.now < CLOCK_S);
    sim_fini(&s);
}

/* No caller waits: a batch is flushed when all tensors of the last round are there. The first
 * round needs the timer. */
static void test_last_expected_tensor_flushes(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.cycle_ns = CLOCK_S;
    sim_init(&s, 6, &o);
    struct signature sig = sim_allreduce(10);
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 5; k++)
            submit_all(&s, k, &sig);
        for (int i = 0; i < s.n; i++) /* long enough for the timer */
            sim_sleep(&s.ranks[i], 3 * CLOCK_S);
    }
    for (int k = 0; k < 5; k++)
        wait_all(&s, k);
    run(&s);
    /* One batch in each of the later rounds. */
    assert_true(sim_executed(&s.ranks[0]) <= 5 + 2);
    assert_int_equal(s.ranks[0].tensors[4].ran, 3);
    sim_fini(&s);
}

static void test_group_in_one_batch(void **state)
{
    struct sim s;
    sim_init(&s, 7, &options);
    for (int i = 0; i < s.n; i++) {
        for (int k = 0; k < 6; k++) {
            struct sim_step step = {.what = SIM_SUBMIT, .name = k, .sig = sim_allreduce(100)};
            step.group = k == 0 ? 6 : 0;
            step.sig.group_size = 6;
            step.sig.group_index = (uint32_t)k;
            step.sig.group_hash = 99;
            sim_add(&s.ranks[i], &step);
        }
        sim_wait(&s.ranks[i], 3);
    }
    for (int k = 0; k < 6; k++)
        wait_all(&s, k);
    run(&s);
    assert_int_equal(sim_executed(&s.ranks[0]), 1);
    assert_string_equal(s.logs[SIM_HOST].texts[0], " t0#0 t1#0 t2#0 t3#0 t4#0 t5#0");
    sim_fini(&s);
}

/* If one member of a group fails, the whole group fails. */
static void test_group_fails_together(void **state)
{
    struct sim s;
    sim_init(&s, 8, &options);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < s.n; i++) {
            for (int k = 0; k < 3; k++) {
                struct sim_step step = {.what = SIM_SUBMIT, .name = k, .sig = sim_allreduce(100)};
                step.group = k == 0 ? 3 : 0;
                step.sig.group_size = 3;
                step.sig.group_index = (uint32_t)k;
                step.sig.group_hash = 98;
                if (round == 0 && k == 1 && i == 2)
                    step.sig.dtype = HVD_INT32;
                sim_add(&s.ranks[i], &step);
            }
            for (int k = 0; k < 3; k++)
                sim_wait(&s.ranks[i], k);
        }
    run(&s);
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < 3; k++) {
            assert_int_equal(s.ranks[i].tensors[k].failed, 1);
            assert_int_equal(s.ranks[i].tensors[k].ran, 1);
            assert_non_null(strstr(s.ranks[i].tensors[k].text, "'t1': rank 0-1,3-4: float32"));
        }
    sim_fini(&s);
}

/* Each use of a tensor that the root refuses fails on every rank, and its group fails with it. The
 * others run, and are frozen once the program does without it. */
static void test_refused(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.freeze_after = 3;
    sim_init(&s, 11, &o);
    for (int round = 0; round < 40; round++)
        for (int i = 0; i < s.n; i++) {
            for (int k = 0; k < 3; k++) {
                struct sim_step step = {.what = SIM_SUBMIT, .name = k, .sig = sim_allreduce(100)};
                if (k == 1)
                    step.sig.op = HVD_BXOR;
                if (k < 2) {
                    step.group = k == 0 ? 2 : 0;
                    step.sig.group_size = 2;
                    step.sig.group_index = (uint32_t)k;
                    step.sig.group_hash = 99;
                }
                if (k == 2 || round < 20)
                    sim_add(&s.ranks[i], &step);
            }
            for (int k = 0; k < 3; k++)
                sim_wait(&s.ranks[i], k);
        }
    run(&s);
    for (int i = 0; i < s.n; i++) {
        assert_string_equal(s.ranks[i].tensors[0].text, "t1: no exclusive or");
        assert_int_equal(s.ranks[i].tensors[0].failed, 20);
        assert_int_equal(s.ranks[i].tensors[1].failed, 20);
        assert_int_equal(s.ranks[i].tensors[2].ran, 40);
        assert_true(negotiate_frozen(s.ranks[i].n));
    }
    sim_fini(&s);
}

static void test_same_name_twice(void **state)
{
    struct sim s;
    sim_init(&s, 9, &options);
    struct signature sig = sim_allreduce(1);
    uint64_t id;
    struct err err;
    assert_int_equal(negotiate_submit(s.ranks[1].n, "x", &sig, 0, &id, &err), 0);
    assert_int_equal(negotiate_submit(s.ranks[1].n, "x", &sig, 0, &id, &err), -EEXIST);
    assert_non_null(strstr(err.msg, "'x'"));
    sim_fini(&s);
}

static void test_bad_arguments(void **state)
{
    struct sim s;
    sim_init(&s, 10, &options);
    struct negotiate *n = s.ranks[0].n;
    struct signature sig = sim_allreduce(1);
    struct err err;
    uint64_t id = 7;
    char name[HVD_MAX_NAME + 2];
    memset(name, 'x', sizeof(name));
    name[HVD_MAX_NAME + 1] = '\0';
    assert_int_equal(negotiate_submit(n, name, &sig, 0, &id, &err), -EINVAL);
    assert_int_equal(negotiate_submit(n, "", &sig, 0, &id, &err), -EINVAL);
    sig.root = -1;
    assert_int_equal(negotiate_submit(n, "x", &sig, 0, &id, &err), -EINVAL);
    sig.root = 0;
    sig.kind = HVD_ALLTOALL; /* with a dimension 0 */
    assert_int_equal(negotiate_submit(n, "x", &sig, 0, &id, &err), -EINVAL);
    assert_int_equal(id, 7);
    negotiate_prioritize(n, 12345, true, 0);
    negotiate_done(n, 0);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch_of_shape),
        cmocka_unit_test(test_mismatch_after_caching),
        cmocka_unit_test(test_mismatch_of_kind_and_root),
        cmocka_unit_test(test_mismatch_of_allgather),
        cmocka_unit_test(test_lone_tensor_goes_at_once),
        cmocka_unit_test(test_last_expected_tensor_flushes),
        cmocka_unit_test(test_group_in_one_batch),
        cmocka_unit_test(test_group_fails_together),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_same_name_twice),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
