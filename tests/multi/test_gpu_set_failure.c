/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that NCCL cannot run, and ranks that shut down, while NCCL runs operations of the same
 * set that come before in the log. These end well on all ranks. An impossible operation fails
 * alone.
 *
 * takes: 5 s, waiting
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"

enum { ELEMENTS = 1000, RANKS = 3, SLOW_US = 1500000 };

static int make_set(struct gpu_side *g, int size, int *ret)
{
    const int all[RANKS] = {0, 1, 2};
    return hvd_set_add(all, size, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Rank r adds r + 1. */
static int begin(struct gpu_side *g, int rank, const char *name, int set, enum hvd_op op,
                 hvd_handle *ret)
{
    const int64_t n = ELEMENTS;
    enum hvd_dtype dtype = op == HVD_SUM ? HVD_FLOAT32 : HVD_INT32;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, dtype, 1, &n);
    r.op = op;
    r.input = (uint8_t *)g->in.at;
    r.output = (uint8_t *)g->out.at + (op == HVD_SUM ? 0 : 2 * ELEMENTS * 4);
    r.set = set;
    for (int i = 0; i < ELEMENTS && op == HVD_SUM; i++)
        ((float *)(void *)g->host)[i] = (float)(rank + 1);
    if (op == HVD_SUM && gpu_side_send(g, 0, ELEMENTS * 4) < 0)
        return FAIL("%s", g->err.msg);
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int end(struct gpu_side *g, int size, hvd_handle h)
{
    const float want = (float)(size * (size + 1) / 2), *sum = (float *)(void *)g->host;
    if (hvd_wait(h) < 0)
        return FAIL("%s", hvd_error());
    if (gpu_side_read(g, g->out.at, ELEMENTS * 4) < 0)
        return FAIL("%s", g->err.msg);
    return sum[0] == want && sum[ELEMENTS - 1] == want ? 0 : FAIL("the sum is %g", (double)sum[0]);
}

static int whole(struct gpu_side *g, int rank, int size, const char *name, int set)
{
    hvd_handle h;
    int rc = begin(g, rank, name, set, HVD_SUM, &h);
    return rc == 0 ? end(g, size, h) : rc;
}

static int fails(hvd_handle h, int want)
{
    int rc = hvd_wait(h);
    return rc == want ? 0 : FAIL("%d: %s", rc, hvd_error());
}

/* NCCL has no exclusive or, and this job does not let it go through the host's memory. That
 * operation fails, and the set goes on. */
static int refused(struct gpu_side *g, int rank, int size)
{
    hvd_handle sum, bits;
    int set, rc = make_set(g, size, &set);
    rc = rc == 0 ? whole(g, rank, size, "first", set) : rc;
    g->fake->delay(rank == 1 ? SLOW_US : 0);
    rc = rc == 0 ? begin(g, rank, "slow", set, HVD_SUM, &sum) : rc;
    rc = rc == 0 ? begin(g, rank, "bits", set, HVD_BXOR, &bits) : rc;
    g->fake->delay(0);
    rc = rc == 0 ? end(g, size, sum) : rc;
    rc = rc == 0 ? fails(bits, -ENOTSUP) : rc;
    rc = rc == 0 ? whole(g, rank, size, "after", set) : rc;
    return rc == 0 ? whole(g, rank, size, "world", 0) : rc;
}

/* It is among the first operations, when no rank knows yet that NCCL runs them. */
static int refused_first(struct gpu_side *g, int rank, int size)
{
    hvd_handle sum, bits, behind;
    int set, rc = make_set(g, size, &set);
    g->fake->delay(rank == 1 ? SLOW_US : 0);
    rc = rc == 0 ? begin(g, rank, "slow", set, HVD_SUM, &sum) : rc;
    rc = rc == 0 ? begin(g, rank, "bits", set, HVD_BXOR, &bits) : rc;
    rc = rc == 0 ? begin(g, rank, "behind", set, HVD_BXOR, &behind) : rc;
    g->fake->delay(0);
    rc = rc == 0 ? end(g, size, sum) : rc;
    rc = rc == 0 ? fails(bits, -ENOTSUP) : rc;
    rc = rc == 0 ? fails(behind, -ENOTSUP) : rc;
    return rc == 0 ? whole(g, rank, size, "world", 0) : rc;
}

static int host_sum(int set, hvd_handle *ret)
{
    static float one = 1;
    static const int64_t n = 1;
    struct hvd_request r = rank_request("lacks", &one, &n);
    r.set = set;
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* All ranks submit the impossible operation so often that the log repeats itself: no plan may have
 * that operation. */
static int refused_often(struct gpu_side *g, int rank, int size)
{
    hvd_handle bits, host;
    int rc = 0;
    for (int i = 0; i < 40 && rc == 0; i++) {
        rc = begin(g, rank, "bits", 0, HVD_BXOR, &bits);
        rc = rc == 0 ? fails(bits, -ENOTSUP) : rc;
        hvd_release(bits);
    }
    rc = rc == 0 ? host_sum(0, &host) : rc;
    return rc == 0 && hvd_wait(host) < 0 ? FAIL("%s", hvd_error()) : rc;
}

/* As refused_first(), in the world. */
static int refused_world(struct gpu_side *g, int rank, int size)
{
    hvd_handle sum, bits;
    g->fake->delay(rank == 1 ? SLOW_US : 0);
    int rc = begin(g, rank, "slow", 0, HVD_SUM, &sum);
    rc = rc == 0 ? begin(g, rank, "bits", 0, HVD_BXOR, &bits) : rc;
    g->fake->delay(0);
    rc = rc == 0 ? end(g, size, sum) : rc;
    return rc == 0 ? fails(bits, -ENOTSUP) : rc;
}

/* Sums of two tensors in one operation, whose results are copied out of a buffer. */
static int begin_two(struct gpu_side *g, int rank, int set, hvd_handle ret[2])
{
    const int64_t n = ELEMENTS;
    struct hvd_request r[2];
    for (int i = 0; i < ELEMENTS; i++)
        ((float *)(void *)g->host)[i] = (float)(rank + 1);
    if (gpu_side_send(g, 0, ELEMENTS * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < 2; i++) {
        r[i] = gpu_side_request(g, HVD_ALLREDUCE, i ? "slow" : "other", HVD_FLOAT32, 1, &n);
        r[i].input = (uint8_t *)g->in.at;
        r[i].output = (uint8_t *)g->out.at + (i ? 0 : 4 * ELEMENTS * 4);
        r[i].set = set;
    }
    return hvd_submit(r, 2, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* The last rank shuts down after the sums. The first one, whose GPU still copies their results, has
 * an operation in the host's memory that lacks that rank. */
static int departed(struct gpu_side *g, int rank, int size)
{
    hvd_handle sums[2], lacking;
    int set, rc = make_set(g, size, &set);
    rc = rc == 0 ? whole(g, rank, size, "first", set) : rc;
    g->fake->delay(rank == 0 ? SLOW_US : 0);
    rc = rc == 0 ? begin_two(g, rank, set, sums) : rc;
    g->fake->delay(0);
    rc = rc == 0 && rank == 0 ? host_sum(set, &lacking) : rc;
    rc = rc == 0 && hvd_wait(sums[0]) < 0 ? FAIL("%s", hvd_error()) : rc;
    rc = rc == 0 ? end(g, size, sums[1]) : rc;
    return rc == 0 && rank == 0 ? fails(lacking, -ESHUTDOWN) : rc;
}

/* Regression: the last rank shuts down when it has announced a sum, and has not heard yet that all
 * ranks have. It does not run the sum, and the others waited for it for ever. */
static int early(struct gpu_side *g, int rank, int size)
{
    hvd_handle sum;
    int set, rc = make_set(g, size, &set);
    rc = rc == 0 ? whole(g, rank, size, "first", set) : rc;
    rc = rc == 0 ? begin(g, rank, "second", set, HVD_SUM, &sum) : rc;
    if (rc != 0 || rank == size - 1)
        return rc;
    uint64_t before = clock_ns();
    rc = hvd_wait(sum);
    if ((rc != 0 && rc != -ESHUTDOWN && rc != -ECONNRESET) || strstr(hvd_error(), "not known"))
        return FAIL("%d: %s", rc, hvd_error());
    return clock_ns() - before < 30 * CLOCK_S ? 0 : FAIL("it took long");
}

static void run(int (*body)(struct gpu_side *g, int rank, int size))
{
    const struct gpu_job job = {.way = "nccl", .gpu = -1, .body = body};
    gpu_job_run(RANKS, gpu_job_nccl("2.27", NULL), job);
}

static void test_refused(void **state)
{
    run(refused);
}

static void test_refused_first(void **state)
{
    run(refused_first);
    run(refused_world);
    run(refused_often);
}

static void test_departed(void **state)
{
    run(departed);
}

static void test_early(void **state)
{
    for (int i = 0; i < 5; i++)
        run(early);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_first),
        cmocka_unit_test(test_departed),
        cmocka_unit_test(test_early),
    };
    return cmocka_run_group_tests_name("multi/gpu_set_failure", tests, NULL, NULL);
}
