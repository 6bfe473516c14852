/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_join(): ranks whose data has run out take part in every kind of operation of the others,
 * before and after a schedule has frozen. On one host, on several in name, and on fake GPUs.
 * test_join_beside.c has sets, threads and the end of ranks.
 *
 * timeout: 300
 * takes: 5 s
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/coll/reduce.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/join_rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define MOST  6
#define COUNT 1003
#define STEPS 25 /* until a schedule is frozen, and some more */

/* Which ranks have data: a bit each. */
struct crew {
    unsigned active;
};

static int count_of(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* This rank's number among those with data. */
static int number_of(unsigned active, int rank)
{
    return count_of(active & ((1U << rank) - 1));
}

/* ---- every kind ----------------------------------------------------------------------------- */

/* As if the ranks with data were the only ones. */
static int reductions(unsigned active, int rank)
{
    static uint8_t in[COUNT * 8], out[COUNT * 8];
    const int64_t n = COUNT;
    int m = count_of(active), me = number_of(active, rank), salt = 0;
    for (int t = 0; t < HVD_DTYPES; t++)
        for (int op = 0; op < HVD_OPS; op++) {
            enum hvd_dtype dtype = (enum hvd_dtype)t;
            if (op == HVD_AVERAGE || op == HVD_ADASUM || !reduce_possible(dtype, (enum hvd_op)op))
                continue;
            struct hvd_request r = join_request(HVD_ALLREDUCE, "reduce", in, out, &n);
            r.dtype = dtype;
            r.op = (enum hvd_op)op;
            values_fill(dtype, r.op, me, m, in, COUNT, ++salt);
            if (join_wait(&r) != 0)
                return 1;
            long bad = values_check(dtype, r.op, m, out, 0, COUNT, salt);
            if (bad >= 0)
                return FAIL("%s %s: element %ld is wrong", hvd_dtype_name(dtype), hvd_op_name(r.op),
                            bad);
        }
    return 0;
}

/* An average divides by all ranks. Minimum and product with a prescale. */
static int scaled(int m, int size)
{
    const int64_t n = 3;
    float in[3] = {6, 12, -6}, out[3];
    struct hvd_request r = join_request(HVD_ALLREDUCE, "scaled", in, out, &n);
    r.op = HVD_AVERAGE;
    if (join_wait(&r) != 0 || fabsf(out[1] - 12.0F * (float)m / (float)size) > 1e-5F)
        return FAIL("the average is %g", (double)out[1]);
    r.op = HVD_MIN;
    r.prescale = -2;
    if (join_wait(&r) != 0 || out[0] != -12 || out[2] != 12)
        return FAIL("the smallest are %g and %g", (double)out[0], (double)out[2]);
    r.op = HVD_PRODUCT;
    r.prescale = 0.5;
    if (join_wait(&r) != 0 || out[0] != powf(3, (float)m))
        return FAIL("the product is %g", (double)out[0]);
    r.op = HVD_ADASUM;
    r.prescale = 1;
    if (join_wait(&r) != 0 || fabsf(out[0] - 6) > 1e-4F) /* of equal tensors, and of zeros */
        return FAIL("adasum is %g", (double)out[0]);
    return 0;
}

/* Each rank with data has 2 rows, and gives one to every rank. */
static int rows(unsigned active, int rank, int size)
{
    float in[2 * MOST], out[2 * MOST];
    int64_t two = 2, all = size, splits[MOST], even = 2 * size;
    struct hvd_result result;
    hvd_handle h;
    for (int i = 0; i < 2 * MOST; i++)
        in[i] = (float)(rank + 1);
    struct hvd_request r = join_request(HVD_ALLGATHER, "gather", in, NULL, &two);
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &result) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < size; i++)
        if (result.splits[i] != (active >> i & 1 ? 2 : 0))
            return FAIL("%d rows from rank %d", (int)result.splits[i], i);
    hvd_release(h);
    for (int i = 0; i < size; i++)
        splits[i] = 1;
    r = join_request(HVD_ALLTOALL, "exchange", in, NULL, &all);
    r.splits = splits;
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &result) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < size; i++)
        if (result.splits[i] != (active >> i & 1))
            return FAIL("%d rows from rank %d by alltoall", (int)result.splits[i], i);
    hvd_release(h);
    r = join_request(HVD_REDUCESCATTER, "scatter", in, out, &even);
    if (join_wait(&r) != 0)
        return 1;
    float sum = 0;
    for (int i = 0; i < size; i++)
        sum += active >> i & 1 ? (float)(i + 1) : 0;
    return out[0] == sum && out[1] == sum ? 0 : FAIL("a part of the sum is %g", (double)out[0]);
}

static int roots(unsigned active, int rank, int size)
{
    const int64_t n = 5;
    for (int root = 0; root < size; root++) {
        float data[5] = {(float)(rank + 7)};
        hvd_handle h;
        struct hvd_request r = join_request(HVD_BROADCAST, "tell", data, data, &n);
        r.root = root;
        int rc = rank_wait(&r, &h);
        if (active >> root & 1) {
            if (rc < 0 || data[0] != (float)(root + 7))
                return FAIL("from rank %d: %g, %s", root, (double)data[0], hvd_error());
        } else if (rc != -EINVAL ||
                   !strstr(hvd_error(), "has joined (hvd_join()) and has no data")) {
            return FAIL("from rank %d, which has joined: %d %s", root, rc, hvd_error());
        }
    }
    return hvd_barrier("all") < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* A group is asked for one by one. */
static int group(unsigned active, int rank)
{
    enum { N = 4 };
    const int64_t n = 10;
    float data[N][10];
    struct hvd_request r[N];
    hvd_handle h[N];
    char names[N][8];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        for (int k = 0; k < 10; k++)
            data[i][k] = (float)(rank + i);
        r[i] = join_request(HVD_ALLREDUCE, names[i], data[i], data[i], &n);
    }
    if (hvd_submit(r, N, h) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int k = 0; k < MOST; k++)
            sum += active >> k & 1 ? (float)(k + i) : 0;
        if (hvd_wait(h[i]) < 0 || data[i][3] != sum)
            return FAIL("member %d of the group: %g, %s", i, (double)data[i][3], hvd_error());
    }
    return 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* All ranks get the same rank, one of those with data. */
static int join(unsigned active)
{
    int64_t crew[MOST];
    int last = hvd_join();
    if (last < 0)
        return FAIL("hvd_join: %s", hvd_error());
    if (!(active >> last & 1))
        return FAIL("rank %d joined last, which was first", last);
    if (rank_crew(last, crew) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < hvd_size(); i++)
        if (crew[i] != last)
            return FAIL("the last one is rank %d, on rank %d it is %d", last, i, (int)crew[i]);
    return 0;
}

static int all_kinds(unsigned active, int rank, int size)
{
    int rc = 0;
    if (active >> rank & 1) {
        rc = reductions(active, rank);
        rc = rc ? rc : scaled(count_of(active), size);
        rc = rc ? rc : rows(active, rank, size);
        rc = rc ? rc : roots(active, rank, size);
        rc = rc ? rc : group(active, rank);
    }
    return rc ? rc : join(active);
}

static int kinds_rank(int rank, int size, void *arg)
{
    const struct crew *crew = arg;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    int rc = all_kinds(crew->active, rank, size);
    rc = rc ? rc : all_kinds(crew->active, rank, size); /* once more: nothing is left behind */
    rc = rc ? rc : all_kinds((1U << size) - 1, rank, size);
    return join_end(rc);
}

static void test_kinds(void **state)
{
    static const struct {
        int size;
        unsigned active;
    } of[] = {{2, 1}, {2, 2}, {4, 1}, {4, 6}, {3, 6}, {6, 0x29}};
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        struct crew crew = {.active = of[i].active};
        assert_int_equal(world_run(of[i].size, kinds_rank, &crew), 0);
    }
    assert_int_equal(world_run(1, kinds_rank, &(struct crew){.active = 1}), 0);
}

static int on_hosts(int rank, int size, void *arg)
{
    setenv("HVD_LOCALITY", rank < size / 2 ? "a" : "b", 1);
    return kinds_rank(rank, size, arg);
}

static void test_hosts(void **state)
{
    static const unsigned active[] = {1, 4, 8, 6, 12, 3};
    for (size_t i = 0; i < sizeof(active) / sizeof(*active); i++)
        assert_int_equal(world_run(4, on_hosts, &(struct crew){.active = active[i]}), 0);
}

/* ---- HVD_JOIN_ALL=0 ------------------------------------------------------------------------- */

static int zeros_count(enum hvd_op op, float value, float want)
{
    const int64_t n = 3;
    float in[3] = {value, value, value}, out[3];
    struct hvd_request r = join_request(HVD_ALLREDUCE, "zeros", in, out, &n);
    r.op = op;
    if (join_wait(&r) != 0)
        return 1;
    return out[0] == want && out[2] == want
               ? 0
               : FAIL("the %s is %g, not %g", hvd_op_name(op), (double)out[0], (double)want);
}

static int refused(enum hvd_kind kind, int size, bool joined)
{
    float in[MOST] = {0}, out[MOST];
    const int64_t n = size;
    hvd_handle h;
    struct hvd_request r = join_request(kind, hvd_kind_name(kind), in, out, &n);
    r.root = size - 1;
    int rc = rank_wait(&r, &h), want = joined ? -EINVAL : 0;
    if (rc != want || (joined && !strstr(hvd_error(), "while a rank has joined")))
        return FAIL("%s: %d, not %d: %s", hvd_kind_name(kind), rc, want, hvd_error());
    if (rc == 0 && (kind == HVD_ALLGATHER || kind == HVD_ALLTOALL))
        hvd_release(h);
    return 0;
}

/* joined: rank 0 has joined, and the others call this. */
static int by_the_rule(int size, bool joined)
{
    static const enum hvd_kind kinds[] = {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL,
                                          HVD_REDUCESCATTER, HVD_REDUCE};
    int rc = zeros_count(HVD_MAX, -2, joined ? 0 : -2);
    rc = rc ? rc : zeros_count(HVD_MIN, 3, joined ? 0 : 3);
    rc = rc ? rc : zeros_count(HVD_PRODUCT, 1, joined ? 0 : 1);
    rc = rc ? rc : zeros_count(HVD_SUM, 1, (float)(joined ? size - 1 : size));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && rc == 0; i++)
        rc = refused(kinds[i], size, joined);
    return rc ? rc : hvd_barrier("rule") < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int rule_rank(int rank, int size, void *arg)
{
    int rc = 0;
    setenv("HVD_JOIN_ALL", "0", 1);
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int round = 0; round < 2 && rc == 0; round++) {
        for (int k = 0; k < 2 && rank != 0 && rc == 0; k++)
            rc = by_the_rule(size, true);
        rc = rc ? rc : join((1U << size) - 2);
        rc = rc ? rc : by_the_rule(size, false);
    }
    return join_end(rc);
}

static void test_rule_of_horovod(void **state)
{
    assert_int_equal(world_run(3, rule_rank, NULL), 0);
}

/* ---- steps that freeze ---------------------------------------------------------------------- */

#define TENSORS 5

/* `wait` false: the last operations are in flight when this rank joins. */
static int step(int rank, int k, bool wait)
{
    static float data[TENSORS][COUNT];
    static char names[TENSORS][8];
    static hvd_handle h[TENSORS];
    const int64_t n = COUNT;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof(names[i]), "g%d", i);
        for (int c = 0; c < COUNT; c++)
            data[i][c] = (float)(1 << rank);
        struct hvd_request r = join_request(HVD_ALLREDUCE, names[i], data[i], data[i], &n);
        if (hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("step %d: %s", k, hvd_error());
    }
    for (int i = 0; i < TENSORS && wait; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("step %d: %s", k, hvd_error());
    int ranks = (int)data[0][0];
    for (int i = 0; i < TENSORS && wait; i++)
        for (int c = 0; c < COUNT; c++)
            if (data[i][c] != (float)ranks || !(ranks >> rank & 1))
                return FAIL("step %d: element %d of tensor %d is %g, the first %d", k, c, i,
                            (double)data[i][c], ranks);
    return 0;
}

/* Rank r has r more steps than rank 0. */
static int uneven_rank(int rank, int size, void *arg)
{
    bool wait = !arg;
    struct hvd_stats before = {.size = sizeof(before)}, after = before;
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int epoch = 0; epoch < 3 && rc == 0; epoch++) {
        int steps = STEPS + rank * (epoch + 1);
        hvd_stats(&before);
        for (int k = 0; k < steps && rc == 0; k++)
            rc = step(rank, k, wait || k + 1 < steps);
        hvd_stats(&after);
        int last = rc == 0 ? hvd_join() : 0;
        if (rc == 0 && last != size - 1)
            rc = FAIL("hvd_join: %d %s", last, last < 0 ? hvd_error() : "");
        if (rc == 0 && epoch > 0 && rank == 0 && after.frozen == before.frozen)
            rc = FAIL("nothing froze any more after hvd_join()");
    }
    return join_end(rc);
}

static void test_frozen(void **state)
{
    for (int size = 2; size <= 4; size++)
        assert_int_equal(world_run(size, uneven_rank, NULL), 0);
}

static void test_in_flight(void **state)
{
    assert_int_equal(world_run(3, uneven_rank, &(int){1}), 0);
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

static int gpu_sums(struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    for (int round = 0; round < 2 && rc == 0; round++) {
        for (int k = 0; k < STEPS + rank && rc == 0; k++) {
            const int64_t n = COUNT;
            hvd_handle h;
            float *f = (float *)g->host;
            for (int i = 0; i < COUNT; i++)
                f[i] = (float)(1 << rank);
            struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
            if (gpu_side_send(g, 0, COUNT * 4) < 0 || rank_wait(&r, &h) < 0 ||
                gpu_side_read(g, g->in.at, COUNT * 4) < 0)
                return FAIL("%s %s", g->err.msg, hvd_error());
            int ranks = (int)f[0], all = (1 << size) - 1;
            int want = k < STEPS ? all : all & ~((1 << (k - STEPS + 1)) - 1);
            if (ranks != want || f[COUNT - 1] != f[0])
                rc = FAIL("step %d: of ranks %x, not %x", k, (unsigned)ranks, (unsigned)want);
        }
        int last = rc == 0 ? hvd_join() : 0;
        if (rc == 0 && last != size - 1)
            rc = FAIL("hvd_join: %d %s", last, hvd_error());
    }
    return rc;
}

static void test_gpus(void **state)
{
    gpu_job_run(3, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, gpu_sums});
    gpu_job_run(3, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, gpu_sums});
    gpu_job_run(2, gpu_job_nccl("2.18", NULL), (struct gpu_job){"nccl", NULL, 200, -1, gpu_sums});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),           cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_rule_of_horovod), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_in_flight),       cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("multi/test_join", tests, NULL, NULL);
}
