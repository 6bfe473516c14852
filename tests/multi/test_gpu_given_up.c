/* SPDX-License-Identifier: Apache-2.0
 *
 * A job on three hosts, between which a message takes milliseconds and NCCL's data does not. One
 * rank gives up while its NCCL waits in a sum. An aborted NCCL goes on without its data
 * (FAKE_NCCL_RUNS_ON), so that the sum ends on the other ranks. They must not return it.
 *
 * timeout: 100
 * takes: 8 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
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

/* Begins a sum of this rank's own values of round k. */
static int begin(struct gpu_side *g, int rank, int size, int k, hvd_handle *ret)
{
    const int64_t n = COUNT;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    r.input = r.output = g->in.at;
    values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host, COUNT, k);
    if (gpu_side_send(g, 0, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("round %d: %s", k, hvd_error()) : 0;
}

static int check(struct gpu_side *g, int size, int k)
{
    if (gpu_side_read(g, g->in.at, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    return values_check(HVD_FLOAT32, HVD_SUM, size, g->host, 0, COUNT, k) < 0
               ? 0
               : FAIL("round %d: a wrong sum was returned", k);
}

static int body(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_handle h;
    int rc = 0;
    for (int k = 0; k < FROZEN && rc == 0; k++) {
        rc = begin(g, rank, size, k, &h);
        if (rc == 0 && hvd_wait(h) < 0)
            rc = FAIL("round %d: %s", k, hvd_error());
        rc = rc ? rc : check(g, size, k);
    }
    hvd_stats(&s);
    if (rc == 0 && s.frozen == 0)
        rc = FAIL("the schedule is not frozen");
    if (rank != GIVES_UP)
        nap_ms(LATE_MS);
    rc = rc ? rc : begin(g, rank, size, FROZEN, &h);
    if (rc || rank == GIVES_UP)
        return rc; /* hvd_shutdown() follows */
    if (hvd_wait(h) == 0)
        return check(g, size, FROZEN);
    return strstr(hvd_error(), "rank 1") ? 0 : FAIL("%s", hvd_error());
}

static int rank_main(int rank, int size, void *arg)
{
    struct gpu_side g;
    if (gpu_side_open(&g, rank, GPU_JOB_ROOM, NULL) < 0 || hvd_init() < 0)
        return FAIL("%s %s", g.err.msg, hvd_error());
    int rc = body(&g, rank, size);
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

static void test_given_up(void **state)
{
    const struct world_options o = {
        .size = RANKS, .hosts = RANKS, .delay_us = DELAY_US, .env = gpu_job_nccl("2.27", NULL)};
    if (!world_can_netns("multi/gpu_given_up"))
        return;
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_run_options(&o, rank_main, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_given_up)};
    return cmocka_run_group_tests_name("multi/gpu_given_up", tests, NULL, NULL);
}
