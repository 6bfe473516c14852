/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU tensors through hvd.h, on the fake driver, by each way to exchange them: every kind, in place
 * and not, results that the engine allocates, fused and frozen steps on a slow device that fills
 * its inputs late, beside tensors of the host, in sets. Refusals and failures are in
 * test_gpu_faults.c.
 *
 * With HVD_TEST_REAL_GPU=1 (make test-gpu) the tests use the first GPU of this machine and the real
 * NCCL: with one rank, and from NCCL 2.30 on with several that share the GPU.
 *
 * timeout: 300
 * takes: 12 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "core/coll/reduce.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/effort.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define OLDER      (size_t) effort(2) /* how many older versions of NCCL run */
#define MOST_RANKS (EFFORT_WHOLE ? 4 : EFFORT_LEAST ? 2 : 3)
#define TYPES      (EFFORT_LEAST ? 5 : 1) /* 5: only every fifth dtype */

#define TENSORS 60
#define LARGE   7 /* tensors 7, 27 and 47 are too large to be packed with the others */

/* ---- allreduce ---- */

static int sums(struct gpu_side *g, int rank, int size)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const size_t counts[] = {1, 7, 4096, 100001};
    int rc = 0, salt = 0;
    for (int t = 0; t < REDUCE_DTYPES && rc == 0; t += TYPES)
        for (size_t o = 0; o < sizeof(ops) / sizeof(*ops) && rc == 0; o++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) && rc == 0; c++) {
                bool none = t == HVD_BOOL && ops[o] == HVD_AVERAGE;
                salt++;
                if (!none)
                    rc = gpu_job_sum(g, rank, size, (enum hvd_dtype)t, ops[o], counts[c], salt % 2,
                                     salt);
            }
    return rc;
}

/* NCCL has only "and" and "or" of bool. */
static int bits(struct gpu_side *g, int rank, int size)
{
    int rc = gpu_job_sum(g, rank, size, HVD_INT32, HVD_BAND, 1000, true, 1);
    if (rc == 0)
        rc = gpu_job_sum(g, rank, size, HVD_UINT8, HVD_BOR, 1000, false, 2);
    for (int op = HVD_BAND; op <= HVD_BXOR && rc == 0; op++)
        rc = gpu_job_sum(g, rank, size, HVD_BOOL, (enum hvd_op)op, 1000, false, 3 + op);
    return rc;
}

static size_t size_of(int i)
{
    return i % 20 == LARGE ? 140000 + (size_t)i : (size_t)(i * 97 % 3000) + 1;
}

/* A step as a program makes it: many gradients, submitted one after the other and waited for at the
 * end. After some steps the schedule freezes. */
static int step(struct gpu_side *g, int rank, int size, int k)
{
    hvd_handle handles[TENSORS];
    size_t at[TENSORS], sum = 0;
    float mine = (float)rank;
    for (int i = 0; i < TENSORS; i++) {
        size_t n = size_of(i);
        at[i] = sum;
        values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host + sum, n, k + i);
        sum += n * 4;
    }
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = (int64_t)size_of(i);
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + at[i];
        if (gpu_side_send(g, at[i], (size_t)n * 4) < 0)
            return FAIL("%s", g->err.msg);
        if (hvd_submit(&r, 1, &handles[i]) < 0)
            return FAIL("%s", hvd_error());
    }
    if (hvd_allreduce("host", &mine, &mine, 1, HVD_FLOAT32, HVD_SUM) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < TENSORS; i++)
        if (hvd_wait(handles[i]) < 0)
            return FAIL("%s", hvd_error());
    if (gpu_side_read(g, g->in.at, sum) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < TENSORS; i++)
        if (values_check(HVD_FLOAT32, HVD_SUM, size, g->host + at[i], 0, size_of(i), k + i) >= 0)
            return FAIL("step %d: tensor %d is wrong", k, i);
    return mine == (float)(size * (size - 1) / 2) ? 0 : FAIL("the host's is %g", (double)mine);
}

static int steps(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    int rc = 0;
    for (int k = 0; k < 12 && rc == 0; k++)
        rc = step(g, rank, size, k);
    hvd_stats(&s);
    if (rc == 0 && size > 1 && s.frozen == 0)
        rc = FAIL("the schedule did not freeze");
    return rc;
}

/* ---- the other kinds ---- */

static int gather(struct gpu_side *g, int rank, int size, bool room)
{
    const int64_t shape[] = {rank % 2 ? 0 : rank + 1, 33};
    struct hvd_request r = gpu_side_request(g, HVD_ALLGATHER, "gather", HVD_INT32, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    int32_t *host = (int32_t *)g->host;
    for (int i = 0; i < (rank + 1) * 33; i++)
        host[i] = rank;
    r.output = room ? g->out.at : NULL;
    r.output_rows = room ? 1000 : 0;
    if (gpu_side_send(g, 0, (size_t)(rank + 1) * 132) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    hvd_result(h, &result);
    if (room && result.data != g->out.at)
        return FAIL("the result is not where there was room");
    if (gpu_side_read(g, result.data, (size_t)result.shape[0] * 132) < 0)
        return FAIL("%s", g->err.msg);
    for (int s = 0; s < size; s++) {
        if (result.splits[s] != (s % 2 ? 0 : s + 1))
            return FAIL("%d rows from rank %d", (int)result.splits[s], s);
        for (int64_t i = 0; i < result.splits[s] * 33; i++)
            if (*host++ != s)
                return FAIL("a row of rank %d", s);
    }
    hvd_release(h);
    return 0;
}

static int exchange(struct gpu_side *g, int rank, int size)
{
    const int64_t shape[] = {(int64_t)size * 3, 5};
    struct hvd_request r = gpu_side_request(g, HVD_ALLTOALL, "exchange", HVD_INT64, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    int64_t *host = (int64_t *)g->host;
    r.output = NULL;
    for (int i = 0; i < size * 15; i++)
        host[i] = rank * 100 + i / 15;
    if (gpu_side_send(g, 0, (size_t)size * 120) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    hvd_result(h, &result);
    if (result.shape[0] != 3 * size || gpu_side_read(g, result.data, (size_t)size * 120) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < size * 15; i++)
        if (host[i] != i / 15 * 100 + rank)
            return FAIL("element %d is %d", i, (int)host[i]);
    hvd_release(h);
    return 0;
}

static int spread(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 5003;
    struct hvd_request r = gpu_side_request(g, HVD_BROADCAST, "spread", HVD_FLOAT16, 1, &n);
    hvd_handle h;
    r.root = size - 1;
    memset(g->host, rank == r.root ? 0x21 : 0, (size_t)n * 2);
    if (gpu_side_send(g, 0, (size_t)n * 2) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    memset(g->host, 0, (size_t)n * 2);
    if (gpu_side_read(g, g->in.at, (size_t)n * 2) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < n * 2; i++)
        if (g->host[i] != 0x21)
            return FAIL("byte %d", i);
    return 0;
}

static int scatter(struct gpu_side *g, int rank, int size)
{
    const int64_t rows = 4 * size + 1, shape[] = {rows, 11};
    struct hvd_request r = gpu_side_request(g, HVD_REDUCESCATTER, "scatter", HVD_FLOAT32, 2, shape);
    hvd_handle h;
    size_t n = (size_t)rows * 11;
    r.output = g->out.at;
    values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host, n, 9);
    if (gpu_side_send(g, 0, n * 4) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    size_t mine = (rank == 0 ? 5 : 4) * 11, first = rank == 0 ? 0 : (size_t)(4 * rank + 1) * 11;
    if (gpu_side_read(g, g->out.at, mine * 4) < 0)
        return FAIL("%s", g->err.msg);
    return values_check(HVD_FLOAT32, HVD_SUM, size, g->host, first, mine, 9) < 0
               ? 0
               : FAIL("a sum is wrong");
}

static int kinds(struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    for (int i = 0; i < 6 && rc == 0; i++) {
        rc = gather(g, rank, size, i % 2);
        if (rc == 0)
            rc = exchange(g, rank, size);
        if (rc == 0)
            rc = spread(g, rank, size);
        if (rc == 0)
            rc = scatter(g, rank, size);
    }
    return rc;
}

/* ---- in sets ---- */

#define SETS 3

/* All kinds in sets that overlap, beside steps of the world. */
static int in_sets(struct gpu_side *g, int rank, int size)
{
    static const int ranks[SETS][4] = {{0, 2}, {1, 3}, {3, 1, 0}};
    static const int n[SETS] = {2, 2, 3};
    int set[SETS], rc = 0;
    for (int s = 0; s < SETS; s++)
        if (hvd_set_add(ranks[s], n[s], &set[s]) != 0)
            return FAIL("%s", hvd_error());
    for (int round = 0; round < 2 && rc == 0; round++) {
        for (int s = 0; s < SETS && rc == 0; s++) {
            int mine = hvd_set_rank(set[s]);
            g->set = set[s];
            if (mine >= 0)
                rc = kinds(g, mine, n[s]);
            if (mine >= 0 && rc == 0)
                rc = gpu_job_sum(g, mine, n[s], HVD_FLOAT32, HVD_AVERAGE, 1500000, round, round);
        }
        g->set = 0;
        if (rc == 0)
            rc = step(g, rank, size, round);
    }
    for (int s = 0; s < SETS && rc == 0; s++)
        if (hvd_set_remove(set[s]) != 0)
            rc = FAIL("%s", hvd_error());
    return rc;
}

/* ---- on the fake driver ---- */

static void both(int size, const char *const *env, const char *way)
{
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 0, -1, steps});
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 0, -1, kinds});
}

static void test_staged(void **state)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        both(size, gpu_job_fallback, "staged");
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, sums});
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, bits});
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 200, -1, steps});
    gpu_job_run(2, gpu_job_fallback,
                (struct gpu_job){"staged", "count=8;cuModuleLoadData=209", 0, -1, steps});
    gpu_job_run(3, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, 0, steps});
    gpu_job_run_on("aabb", gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, steps});
}

static void test_nccl(void **state)
{
    static const char *const older[] = {"2.14", "2.18"};
    for (size_t v = 0; v < OLDER; v++)
        both(2, gpu_job_nccl(older[v], NULL), "nccl");
    for (int size = 1; size <= MOST_RANKS; size++)
        both(size, gpu_job_nccl("2.27", NULL), "nccl");
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, sums});
    gpu_job_run(2, gpu_job_nccl("2.27", "HVD_GPU_FALLBACK=1"),
                (struct gpu_job){NULL, NULL, 0, -1, bits});
    gpu_job_run(2, gpu_job_nccl("2.27", NULL),
                (struct gpu_job){"nccl", "count=8;delay_us=200", 0, -1, steps});
    gpu_job_run_on("aabb", gpu_job_nccl("2.27", NULL),
                   (struct gpu_job){"nccl", NULL, 0, -1, steps});
    gpu_job_run_on("aab", gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, kinds});
    gpu_job_run(2, gpu_job_nccl("2.31", "NCCL_MULTI_RANK_GPU_ENABLE=1"),
                (struct gpu_job){"nccl", NULL, 0, 0, steps}); /* both on the first GPU */
    /* Without our kernels NCCL itself scales. */
    gpu_job_run(2, gpu_job_nccl("2.27", NULL),
                (struct gpu_job){"nccl", "count=8;cuModuleLoadData=209", 0, -1, steps});
    /* sums that NCCL cannot do go through the host, where that is allowed */
    gpu_job_run(2, gpu_job_nccl("2.27", "HVD_GPU_FALLBACK=1"),
                (struct gpu_job){"nccl", "count=8;cuModuleLoadData=209", 0, -1, sums});
}

static void test_sets(void **state)
{
    if (!EFFORT_LEAST) {
        gpu_job_run(4, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, in_sets});
        gpu_job_run(4, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, in_sets});
    }
    gpu_job_run_on("aabb", gpu_job_nccl("2.27", NULL),
                   (struct gpu_job){"nccl", "count=8;delay_us=200", 0, -1, in_sets});
}

/* On streams whose schedules are computed (tests/fake/README.md), with bytes that are moved. */
static void test_in_time(void **state)
{
#define IN_TIME "FAKE_CUDA_TIME=h2d=2e9,d2h=2e9,d2d=20e9,copy=2e-6,kernel=20e-6,launch=5e-6"
    static const char *const fallback[] = {"HVD_GPU_FALLBACK=1", "HVD_NCCL_LIB=/none", IN_TIME,
                                           NULL};
    both(EFFORT_LEAST ? 2 : 3, gpu_job_nccl("2.27", IN_TIME), "nccl");
    if (!EFFORT_LEAST)
        both(2, fallback, "staged");
}

/* A back end chosen by name, without permission to fall back. */
static void test_named(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    gpu_job_run(2, env, (struct gpu_job){"staged", NULL, 0, -1, steps});
}

/* ---- a real GPU ---- */

static void test_real_staged(void **state)
{
    for (int size = 1; size <= 4; size++) {
        gpu_job_run(size, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, 0, steps});
        gpu_job_run(size, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, 0, kinds});
    }
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, 0, sums});
    gpu_job_run(4, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, 0, in_sets});
}

/* CUDA's own packages do not contain NCCL. An NCCL that is broken is no reason to skip. */
static void test_real_nccl(void **state)
{
    struct err why;
    if (!gpu_side_has_nccl(&why) && (why.code == -ENOENT || why.code == -ENOTSUP)) {
        printf("SKIP: gpu/device/nccl: libnccl.so.2: %s\n", why.msg);
        skip();
    }
    gpu_job_run(1, NULL, (struct gpu_job){"nccl", NULL, 0, 0, steps});
    gpu_job_run(1, NULL, (struct gpu_job){"nccl", NULL, 0, 0, kinds});
    gpu_job_run(1, NULL, (struct gpu_job){"nccl", NULL, 0, 0, sums});
}

static void test_real_shared(void **state)
{
    static const char *const env[] = {"NCCL_MULTI_RANK_GPU_ENABLE=1", NULL};
    if (!gpu_side_nccl_shares()) {
        printf("SKIP: gpu/device/shared: nccl-2.30: no NCCL here lets ranks share a GPU\n");
        skip();
    }
    for (int size = 2; size <= 4; size++) {
        gpu_job_run(size, env, (struct gpu_job){"nccl", NULL, 0, 0, steps});
        gpu_job_run(size, env, (struct gpu_job){"nccl", NULL, 0, 0, kinds});
    }
    gpu_job_run(2, env, (struct gpu_job){"nccl", NULL, 0, 0, sums});
}

static int on_real_gpu(void)
{
    struct err why;
    if (!gpu_side_has_gpu(&why)) {
        printf("SKIP: gpu/device: GPU: %s\n", why.msg);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_staged),
        cmocka_unit_test(test_real_nccl),
        cmocka_unit_test(test_real_shared),
    };
    return cmocka_run_group_tests_name("gpu/device", tests, NULL, NULL);
}

int main(void)
{
    if (gpu_side_is_real())
        return on_real_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staged),  cmocka_unit_test(test_nccl),  cmocka_unit_test(test_sets),
        cmocka_unit_test(test_in_time), cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests_name("multi/test_gpu", tests, NULL, NULL);
}
