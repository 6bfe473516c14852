/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the stall inspector in simulated worlds: the missing ranks, the calls in which they
 * wait, when a stall is reported, and when a tensor fails.
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
    .fusion_bytes = 1 << 20,
    .cycle_ns = CLOCK_MS,
    .stall_ns = 60 * CLOCK_S,
    .cache_capacity = 100,
    .freeze_after = 3,
};

static void check(struct sim *s, bool ok)
{
    if (!ok)
        print_error("%s\n", s->why);
    assert_true(ok);
}

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("the report '%s' lacks '%s'", text, part);
}

static void late(struct sim_rank *r, int name, uint64_t ns)
{
    struct signature sig = sim_allreduce(10);
    if (ns)
        sim_sleep(r, ns);
    sim_submit(r, name, &sig, 0);
    sim_wait(r, name);
}

static void test_names_the_missing(void **state)
{
    struct sim s;
    sim_init(&s, 1, &options);
    for (int i = 0; i < 6; i++)
        late(&s.ranks[i], 7, i == 2 || i == 4 ? (uint64_t)(90 + i) * CLOCK_S : 0);
    check(&s, sim_run(&s));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(s.ranks[i].nstalls, 1);
        expect_text(s.ranks[i].stall, "allreduce 't7' has waited 60 s: missing ranks 2,4 (");
        expect_text(s.ranks[i].stall, "rank 4 has not called anything for 6");
        assert_string_equal(s.ranks[i].lacks, i == 2 || i == 4 ? "t7 " : "");
    }
    sim_fini(&s);
}

static void test_says_what_the_missing_wait_in(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.n = 2;
    sim_init(&s, 2, &o);
    struct signature sig = sim_allreduce(10);
    /* Rank 0 submits t1 and then t2; rank 1 submits t2, and t1 from another thread 70 s later. */
    late(&s.ranks[0], 1, 0);
    late(&s.ranks[0], 2, 0);
    sim_submit(&s.ranks[1], 2, &sig, 0);
    sim_wait(&s.ranks[1], 2);
    for (int i = 0; i < 4000; i++)
        sim_step_once(&s);
    s.now += 61 * CLOCK_S;
    for (int i = 0; i < 4000; i++)
        sim_step_once(&s);
    expect_text(s.ranks[1].stall,
                "'t1' has waited 61 s: missing rank 1 (rank 1 waits in hvd_wait(t2))");
    sim_fini(&s);
}

/* Two ranks of one host have submitted, the third has not: the root does not know of the tensor
 * yet. */
static void test_stall_inside_a_host(void **state)
{
    struct sim s;
    sim_init(&s, 3, &options);
    late(&s.ranks[3], 5, 0);
    late(&s.ranks[4], 5, 0);
    for (int i = 0; i < 4000; i++)
        sim_step_once(&s);
    s.now += 61 * CLOCK_S;
    for (int i = 0; i < 8000; i++)
        sim_step_once(&s);
    expect_text(s.ranks[0].stall, "'t5' has waited 61 s: missing ranks 0-2,5 (rank 0 has not");
    sim_fini(&s);
}

static void test_repeats(void **state)
{
    struct sim s;
    sim_init(&s, 4, &options);
    for (int i = 0; i < 6; i++)
        late(&s.ranks[i], 7, i == 5 ? 200 * CLOCK_S : 0);
    check(&s, sim_run(&s));
    assert_int_equal(s.ranks[0].nstalls, 3);
    expect_text(s.ranks[1].stall, "180 s: missing rank 5 (");
    sim_fini(&s);
}

static void test_gives_up(void **state)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim s;
        struct sim_options o = options;
        o.stall_shutdown_ns = 90 * CLOCK_S;
        sim_init(&s, seed, &o);
        for (int i = 0; i < 6; i++)
            late(&s.ranks[i], 7, i == 5 ? 80 * CLOCK_S : 0);
        for (int i = 0; i < 6; i++)
            late(&s.ranks[i], 8, i == 5 ? 100 * CLOCK_S : 0);
        check(&s, sim_run(&s) || strstr(s.why, "t8 submitted 1, ran 0"));
        assert_int_equal(s.ranks[0].tensors[7].ran, 1);
        assert_int_equal(s.ranks[0].tensors[8].failed, 1);
        expect_text(s.ranks[0].tensors[8].text, "t8' has waited 90 s: missing rank 5 (");
        expect_text(s.ranks[3].tensors[8].text, "t8' has waited 90 s: missing rank 5 (");
        sim_fini(&s);
    }
}

/* A stopped rank answers nothing, while the other ranks follow the plan. */
static void test_stopped_while_frozen(void **state)
{
    struct sim s;
    sim_init(&s, 5, &options);
    for (int k = 0; k < 20; k++)
        for (int i = 0; i < 6; i++)
            late(&s.ranks[i], 1, 0);
    check(&s, sim_run(&s));
    assert_true(negotiate_frozen(s.ranks[4].n));
    s.ranks[4].deaf = true;
    for (int i = 0; i < 6; i++)
        late(&s.ranks[i], 1, 0);
    for (int k = 0; k < 200; k++) {
        for (int i = 0; i < 300; i++)
            sim_step_once(&s);
        s.now += CLOCK_S;
    }
    expect_text(s.ranks[0].stall, "missing rank 4 (rank 4 does not answer)");
    expect_text(s.ranks[5].stall, "missing rank 4 (rank 4 does not answer)");
    s.ranks[4].deaf = false; /* SIGCONT */
    check(&s, sim_run(&s));
    sim_fini(&s);
}

/* As before, but for longer than stall_shutdown: everything fails on every rank. */
static void test_stopped_for_good(void **state)
{
    struct sim s;
    struct sim_options o = options;
    o.stall_shutdown_ns = 90 * CLOCK_S;
    sim_init(&s, 5, &o);
    for (int k = 0; k < 20; k++)
        for (int i = 0; i < 6; i++)
            late(&s.ranks[i], 1, 0);
    check(&s, sim_run(&s));
    s.ranks[4].deaf = true;
    for (int i = 0; i < 6; i++)
        late(&s.ranks[i], 1, 0);
    for (int k = 0; k < 150; k++) {
        for (int i = 0; i < 300 && !s.why[0]; i++)
            sim_step_once(&s);
        s.now += CLOCK_S;
    }
    for (int i = 0; i < 6; i++) {
        if (i == 4)
            continue;
        expect_text(s.ranks[i].lost, "missing rank 4 (rank 4 does not answer)");
        assert_int_equal(s.ranks[i].lost_rank, 4);
    }
    sim_fini(&s);
}

/* One rank is late: the other ranks leave the plan, and the tensor is named. */
static void test_late_while_frozen(void **state)
{
    struct sim s;
    sim_init(&s, 6, &options);
    for (int k = 0; k < 20; k++)
        for (int i = 0; i < 6; i++)
            late(&s.ranks[i], 1, 0);
    for (int i = 0; i < 6; i++)
        late(&s.ranks[i], 1, i == 2 ? 80 * CLOCK_S : 0);
    check(&s, sim_run(&s));
    assert_int_equal(s.ranks[0].nstalls, 1);
    expect_text(s.ranks[0].stall, "'t1' has waited 60 s: missing rank 2 (");
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_the_missing),
        cmocka_unit_test(test_says_what_the_missing_wait_in),
        cmocka_unit_test(test_stall_inside_a_host),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_stopped_while_frozen),
        cmocka_unit_test(test_stopped_for_good),
        cmocka_unit_test(test_late_while_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
