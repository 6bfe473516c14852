/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank calls hvd_shutdown() while its NCCL waits in a sum, and so aborts NCCL. The other ranks'
 * NCCL then ends the sum without that rank's data (FAKE_NCCL_RUNS_ON). These ranks must not return
 * the sum: a job of fixed size fails, and an elastic job computes the sum again. A job of fixed
 * size is on three hosts, between which a message takes milliseconds and NCCL's data does not.
 *
 * timeout: 100
 * takes: 16 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define RANKS    3
#define COUNT    1000
#define FROZEN   60 /* rounds; then the schedule is frozen, and a rank waits for no other */
#define DELAY_US 40000
#define LATE_MS  2 /* the other ranks submit so much later, before they can have heard */
#define GIVES_UP 1

static struct hvd_request request(struct gpu_side *g, const char *name, enum hvd_dtype dtype)
{
    static const int64_t n = COUNT;
    return gpu_side_request(g, HVD_ALLREDUCE, name, dtype, 1, &n);
}

/* ---- a job of fixed size -------------------------------------------------------------------- */

/* Begins a sum of this rank's own values of round k. */
static int begin(struct gpu_side *g, int rank, int size, int k, hvd_handle *ret)
{
    const struct hvd_request r = request(g, "sum", HVD_FLOAT32);
    values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host, COUNT, k);
    if (gpu_side_send(g, 0, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("round %d: %s", k, hvd_error()) : 0;
}

/* Begins a sum that goes through the host's memory. Its result does not matter. */
static int begin_staged(struct gpu_side *g, hvd_handle *ret)
{
    struct hvd_request r = request(g, "staged", HVD_INT16);
    r.input = r.output = g->out.at;
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("staged: %s", hvd_error()) : 0;
}

static int check(struct gpu_side *g, int size, int k)
{
    if (gpu_side_read(g, g->in.at, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    return values_check(HVD_FLOAT32, HVD_SUM, size, g->host, 0, COUNT, k) < 0
               ? 0
               : FAIL("round %d: a wrong sum was returned", k);
}

static int sum(struct gpu_side *g, int rank, int size, int k)
{
    hvd_handle h;
    int rc = begin(g, rank, size, k, &h);
    if (rc == 0 && hvd_wait(h) < 0)
        rc = FAIL("round %d: %s", k, hvd_error());
    return rc ? rc : check(g, size, k);
}

/* staged: such a sum is in flight beside the one by NCCL. */
static int give_up(struct gpu_side *g, int rank, int size, bool staged)
{
    hvd_handle h, beside;
    if (rank != GIVES_UP)
        nap_ms(LATE_MS);
    int rc = begin(g, rank, size, FROZEN, &h);
    if (rc == 0 && staged)
        rc = begin_staged(g, &beside);
    if (rc || rank == GIVES_UP)
        return rc; /* hvd_shutdown() follows */
    if (hvd_wait(h) == 0)
        return check(g, size, FROZEN);
    return strstr(hvd_error(), "rank 1") ? 0 : FAIL("%s", hvd_error());
}

static int body(struct gpu_side *g, int rank, int size, bool staged)
{
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_handle h;
    int rc = staged ? begin_staged(g, &h) : 0;
    if (rc == 0 && staged && hvd_wait(h) < 0)
        rc = FAIL("staged: %s", hvd_error());
    for (int k = 0; k < FROZEN && rc == 0; k++)
        rc = sum(g, rank, size, k);
    hvd_stats(&s);
    if (rc == 0 && s.frozen == 0)
        rc = FAIL("the schedule is not frozen");
    return rc ? rc : give_up(g, rank, size, staged);
}

static int rank_main(int rank, int size, void *arg)
{
    const bool *staged = arg;
    struct gpu_side g;
    const char *script = *staged ? "count=8;cuModuleLoadData=209" : NULL; /* no kernels */
    if (gpu_side_open(&g, rank, GPU_JOB_ROOM, script) < 0 || hvd_init() < 0)
        return FAIL("%s %s", g.err.msg, hvd_error());
    int rc = body(&g, rank, size, *staged);
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

static void run(bool staged)
{
    const struct world_options o = {.size = RANKS,
                                    .hosts = RANKS,
                                    .delay_us = DELAY_US,
                                    .env = gpu_job_nccl("2.27", "HVD_GPU_FALLBACK=1")};
    if (!world_can_netns("multi/gpu_given_up"))
        return;
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_run_options(&o, rank_main, &staged), 0);
}

static void test_given_up(void **state)
{
    run(false);
}

static void test_staged_beside(void **state)
{
    run(true);
}

/* ---- an elastic job ------------------------------------------------------------------------- */

struct board {
    _Atomic int sums[RANKS]; /* the sum in which rank GIVES_UP left, on each member; 0: none yet */
};

/* A sum of powers of two, one for each member: tells who has taken part. Returns it, or < 0. */
static int crew(struct gpu_side *g, int member, bool leaves)
{
    const struct hvd_request r = request(g, "sum", HVD_FLOAT32);
    float *host = (float *)g->host;
    hvd_handle h;
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(1 << member);
    if (gpu_side_send(g, 0, COUNT * 4) < 0 || hvd_submit(&r, 1, &h) < 0)
        return -FAIL("%s %s", g->err.msg, hvd_error());
    if (leaves)
        return 0;
    if (hvd_wait(h) < 0 || gpu_side_read(g, g->in.at, COUNT * 4) < 0)
        return -FAIL("%s %s", g->err.msg, hvd_error());
    for (int i = 1; i < COUNT; i++)
        if (host[i] != host[0])
            return -FAIL("element %d is %g, and the first %g", i, (double)host[i], (double)host[0]);
    return (int)host[0];
}

static int train(struct gpu_side *g, int member, struct board *b)
{
    const int all = (1 << RANKS) - 1, left = all - (1 << GIVES_UP);
    struct hvd_stats s = {.size = sizeof(s)};
    for (int k = 0; k < FROZEN; k++)
        if (crew(g, member, false) != all)
            return FAIL("round %d is not a sum of all", k);
    hvd_stats(&s);
    if (s.frozen == 0)
        return FAIL("the schedule is not frozen");
    if (member != GIVES_UP)
        nap_ms(LATE_MS);
    int rc = crew(g, member, member == GIVES_UP);
    if (member == GIVES_UP || rc < 0)
        return rc;
    atomic_store(&b->sums[member], rc);
    rc = rc == all || rc == left ? crew(g, member, false) : FAIL("%d", rc);
    return rc == left ? 0 : FAIL("afterwards: %d", rc);
}

static int member_main(int member, void *arg)
{
    static struct gpu_side g;
    if (gpu_side_open(&g, member, GPU_JOB_ROOM, NULL) < 0 || hvd_init() < 0 || hvd_enter() < 0)
        return FAIL("%s %s", g.err.msg, hvd_error());
    int rc = train(&g, member, arg);
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

static void test_elastic(void **state)
{
    struct board *b = world_shared(sizeof(*b));
    struct elastic job;
    for (int i = 0; i < 3; i++) {
        memset(b, 0, sizeof(*b));
        elastic_init(&job);
        for (int m = 0; m < RANKS; m++)
            elastic_add(&job, member_main, b, gpu_job_nccl("2.27", NULL));
        assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
        for (int m = 0; m < RANKS; m++)
            assert_int_equal(job.members[m].status, 0);
        assert_int_equal(atomic_load(&b->sums[0]), atomic_load(&b->sums[2]));
        elastic_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_given_up),
                                       cmocka_unit_test(test_staged_beside),
                                       cmocka_unit_test(test_elastic)};
    return cmocka_run_group_tests_name("multi/gpu_given_up", tests, NULL, NULL);
}
