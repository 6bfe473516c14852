/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kind of operation through hvd.h in worlds of 1 to 8 ranks, compared with an exact
 * reference.
 *
 * timeout: 300
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

#include "core/coll/reduce.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};

enum layout { IN_PLACE, APART, UNALIGNED, LAYOUTS };

static int one_allreduce(int rank, int size, enum hvd_dtype dtype, enum hvd_op op, size_t count,
                         enum layout layout)
{
    static char *memory[2];
    size_t bytes = count * hvd_dtype_size(dtype);
    char name[64];
    snprintf(name, sizeof(name), "%s.%s.%zu.%d", hvd_dtype_name(dtype), hvd_op_name(op), count,
             layout);
    for (int i = 0; i < 2; i++) {
        free(memory[i]);
        memory[i] = malloc(bytes + 16);
    }
    char *in = memory[0] + (layout == UNALIGNED ? 1 : 0);
    char *out = layout == IN_PLACE ? in : memory[1] + (layout == UNALIGNED ? 3 : 0);
    memset(out, 0x5a, bytes + 8);
    values_fill(dtype, op, rank, size, in, count, layout);
    if (hvd_allreduce(name, in, out, (int64_t)count, dtype, op) != 0)
        return FAIL("%s: %s", name, hvd_error());
    long bad = values_check(dtype, op, size, out, 0, count, layout);
    if (bad >= 0)
        return FAIL("%s: element %ld is wrong", name, bad);
    if (layout != IN_PLACE && memcmp(out + bytes, "\x5a\x5a\x5a\x5a", 4) != 0)
        return FAIL("%s: wrote behind the end", name);
    return 0;
}

static int allreduce_matrix(int rank, int size, void *arg)
{
    size_t counts[] = {0, 1, (size_t)size - 1, (size_t)size, (size_t)size + 1, 63, 64, 65, 1000};
    size_t ncounts = sizeof(counts) / sizeof(counts[0]);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int d = 0; d < REDUCE_DTYPES; d++) {
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
            for (size_t c = 0; c < ncounts * LAYOUTS; c++) {
                if (d == HVD_BOOL && ops[o] == HVD_AVERAGE)
                    continue;
                int rc = one_allreduce(rank, size, (enum hvd_dtype)d, ops[o], counts[c / LAYOUTS],
                                       (enum layout)(c % LAYOUTS));
                if (rc)
                    return rc;
            }
        }
    }
    return hvd_shutdown() != 0;
}

/* Counts around the boundaries of the algorithms: beside the flags, symmetric, slices, chunks. */
static int allreduce_large(int rank, int size, void *arg)
{
    static const size_t counts[] = {16383,  16384,  16385,  65536,   262143,
                                    262144, 262145, 262147, 1000000, 3000001};
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int l = 0; l < LAYOUTS; l++) {
            int rc = one_allreduce(rank, size, HVD_FLOAT32, HVD_SUM, counts[c], (enum layout)l);
            if (!rc && c % 3 == 0)
                rc =
                    one_allreduce(rank, size, HVD_BFLOAT16, HVD_AVERAGE, counts[c], (enum layout)l);
            if (rc)
                return rc;
        }
    }
    return hvd_shutdown() != 0;
}

static int run(struct hvd_request *r, hvd_handle *ret)
{
    int rc = hvd_submit(r, 1, ret);
    return rc == 0 ? hvd_wait(*ret) : rc;
}

/* Every second operation brings memory for the result, sometimes too little. True if the result is
 * where it should be. */
static bool placed(const struct hvd_request *r, const struct hvd_result *res)
{
    return !r->output || (res->data == r->output) == (res->shape[0] <= r->output_rows);
}

static int one_allgather(int rank, int size, enum hvd_dtype dtype, int64_t base, int64_t inner)
{
    int64_t rows = base == 0 ? 0 : base + rank % 3;
    int64_t shape[2] = {rows, inner};
    size_t element = hvd_dtype_size(dtype), count = (size_t)(rows * inner);
    char name[64];
    snprintf(name, sizeof(name), "gather.%d.%d.%d", dtype, (int)base, (int)inner);
    int64_t room = (base + 2) * (dtype % 3 ? size : 1);
    char *in = malloc(count * element + 1), *out = malloc((size_t)(room * inner) * element + 1);
    values_fill(dtype, HVD_SUM, rank, size, in, count, 0);
    struct hvd_request r = {.kind = HVD_ALLGATHER,
                            .name = name,
                            .input = in,
                            .output = dtype % 2 ? out : NULL,
                            .output_rows = room,
                            .dtype = dtype,
                            .ndim = 2,
                            .shape = shape,
                            .device = -1};
    hvd_handle h;
    struct hvd_result res;
    if (run(&r, &h) != 0 || hvd_result(h, &res) != 0)
        return FAIL("%s: %s", name, hvd_error());
    memset(in, 0x77, count * element);
    const char *p = res.data;
    int64_t total = 0;
    for (int q = 0; q < size; q++) {
        int64_t theirs = base == 0 ? 0 : base + q % 3;
        if (res.splits[q] != theirs)
            return FAIL("%s: %d rows from rank %d", name, (int)res.splits[q], q);
        total += theirs;
        size_t n = (size_t)(theirs * inner);
        long bad = values_check_input(dtype, HVD_SUM, q, size, p, 0, n, 0);
        if (bad >= 0)
            return FAIL("%s: element %ld of rank %d is wrong", name, bad, q);
        p += n * element;
    }
    if (res.ndim != 2 || res.shape[0] != total || res.shape[1] != inner || !placed(&r, &res))
        return FAIL("%s: wrong shape or place", name);
    hvd_release(h);
    free(in);
    free(out);
    return 0;
}

static int one_alltoall(int rank, int size, enum hvd_dtype dtype, int64_t each, bool splits)
{
    /* With splits rank r sends each + (r + q) % 2 rows to rank q. */
    int64_t to[8], rows = 0, inner = 3;
    char name[64];
    snprintf(name, sizeof(name), "all2all.%d.%d.%d", dtype, (int)each, splits);
    for (int q = 0; q < size; q++)
        rows += to[q] = each + (splits ? (rank + q) % 2 : 0);
    int64_t shape[2] = {rows, inner};
    size_t element = hvd_dtype_size(dtype), count = (size_t)(rows * inner);
    int64_t room = (each + 1) * (dtype % 3 ? size : 1);
    char *in = malloc(count * element + 1), *out = malloc((size_t)(room * inner) * element + 1);
    values_fill(dtype, HVD_SUM, rank, size, in, count, 0);
    struct hvd_request r = {.kind = HVD_ALLTOALL,
                            .name = name,
                            .input = in,
                            .output = dtype % 2 ? out : NULL,
                            .output_rows = room,
                            .dtype = dtype,
                            .ndim = 2,
                            .shape = shape,
                            .splits = splits ? to : NULL,
                            .device = -1};
    hvd_handle h;
    struct hvd_result res;
    if (run(&r, &h) != 0 || hvd_result(h, &res) != 0)
        return FAIL("%s: %s", name, hvd_error());
    memset(in, 0x77, count * element);
    const char *p = res.data;
    for (int q = 0; q < size; q++) {
        size_t first = 0, n = (size_t)((each + (splits ? (rank + q) % 2 : 0)) * inner);
        for (int k = 0; k < rank; k++)
            first += (size_t)((each + (splits ? (q + k) % 2 : 0)) * inner);
        if (res.splits[q] * inner != (int64_t)n)
            return FAIL("%s: %d rows from rank %d", name, (int)res.splits[q], q);
        long bad = values_check_input(dtype, HVD_SUM, q, size, p, first, n, 0);
        if (bad >= 0)
            return FAIL("%s: element %ld from rank %d is wrong", name, bad, q);
        p += n * element;
    }
    if (!placed(&r, &res))
        return FAIL("%s: %d rows are not where they should be", name, (int)res.shape[0]);
    hvd_release(h);
    free(in);
    free(out);
    return 0;
}

static int one_reducescatter(int rank, int size, enum hvd_dtype dtype, enum hvd_op op, int64_t rows)
{
    int64_t inner = 5, shape[2] = {rows, inner}, first = 0, mine = 0;
    char name[64];
    snprintf(name, sizeof(name), "scatter.%d.%d.%d", dtype, op, (int)rows);
    for (int q = 0; q <= rank; q++) {
        first += mine;
        mine = rows / size + (q < rows % size);
    }
    size_t element = hvd_dtype_size(dtype);
    char *in = malloc((size_t)(rows * inner) * element + 1);
    char *out = malloc((size_t)(mine * inner) * element + 1);
    values_fill(dtype, op, rank, size, in, (size_t)(rows * inner), 0);
    struct hvd_request r = {.kind = HVD_REDUCESCATTER,
                            .name = name,
                            .input = in,
                            .output = out,
                            .dtype = dtype,
                            .ndim = 2,
                            .shape = shape,
                            .op = op,
                            .device = -1};
    hvd_handle h;
    if (run(&r, &h) != 0)
        return FAIL("%s: %s", name, hvd_error());
    long bad =
        values_check(dtype, op, size, out, (size_t)(first * inner), (size_t)(mine * inner), 0);
    if (bad >= 0)
        return FAIL("%s: element %ld is wrong", name, bad);
    free(in);
    free(out);
    return 0;
}

static int one_broadcast(int rank, int size, enum hvd_dtype dtype, int root, size_t count)
{
    char name[64];
    snprintf(name, sizeof(name), "bcast.%d.%d.%zu", dtype, root, count);
    size_t element = hvd_dtype_size(dtype);
    char *data = malloc(count * element + 1);
    memset(data, 0x11, count * element);
    if (rank == root)
        values_fill(dtype, HVD_SUM, root, size, data, count, 1);
    if (hvd_broadcast(name, data, (int64_t)count, dtype, root) != 0)
        return FAIL("%s: %s", name, hvd_error());
    long bad = values_check_input(dtype, HVD_SUM, root, size, data, 0, count, 1);
    if (bad >= 0)
        return FAIL("%s: element %ld is wrong", name, bad);
    free(data);
    return 0;
}

static int other_kinds(int rank, int size, void *arg)
{
    static const enum hvd_dtype dtypes[] = {HVD_UINT8, HVD_INT64, HVD_FLOAT16, HVD_FLOAT32};
    static const int64_t bases[] = {0, 1, 7, 4000};
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    for (int t = 0; t < 4 && !rc; t++) {
        enum hvd_dtype d = dtypes[t];
        for (int b = 0; b < 4 && !rc; b++) {
            rc = one_allgather(rank, size, d, bases[b], 1);
            rc = rc ? rc : one_allgather(rank, size, d, bases[b], 17);
            rc = rc ? rc : one_alltoall(rank, size, d, bases[b], false);
            rc = rc ? rc : one_alltoall(rank, size, d, bases[b], true);
            rc = rc ? rc : one_reducescatter(rank, size, d, HVD_SUM, bases[b] * 3);
            rc = rc ? rc : one_reducescatter(rank, size, d, HVD_AVERAGE, bases[b] + size);
            for (int root = 0; root < size && !rc; root++)
                rc = one_broadcast(rank, size, d, root, (size_t)bases[b] * 11);
        }
        rc = rc ? rc : hvd_barrier("barrier");
    }
    rc = rc ? rc : one_broadcast(rank, size, HVD_FLOAT64, size - 1, 1000001);
    return rc ? rc : hvd_shutdown() != 0;
}

static int scaling(int rank, int size, void *arg)
{
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    float x[3] = {1, 2, 3};
    int32_t n[2] = {rank ? 0 : -7, rank ? 0 : 7};
    int64_t three = 3, two = 2;
    struct hvd_request r = {.kind = HVD_ALLREDUCE,
                            .name = "scaled",
                            .input = x,
                            .output = x,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = &three,
                            .op = HVD_SUM,
                            .prescale = 2,
                            .postscale = 0.25,
                            .device = -1};
    hvd_handle h;
    if (run(&r, &h) != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 3; i++) {
        if (x[i] != (float)(i + 1) * 2 * (float)size * 0.25F)
            return FAIL("scaled: %g", (double)x[i]);
    }
    /* An integer average truncates toward zero. */
    struct hvd_request a = {.kind = HVD_ALLREDUCE,
                            .name = "toward.zero",
                            .input = n,
                            .output = n,
                            .dtype = HVD_INT32,
                            .ndim = 1,
                            .shape = &two,
                            .op = HVD_AVERAGE,
                            .device = -1};
    if (run(&a, &h) != 0)
        return FAIL("%s", hvd_error());
    if (n[0] != -7 / size || n[1] != 7 / size)
        return FAIL("average: %d %d", n[0], n[1]);
    return hvd_shutdown() != 0;
}

static void test_allreduce_matrix(void **state)
{
    static const int sizes[] = {1, 2, 3, 4};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(world_run(sizes[i], allreduce_matrix, NULL), 0);
}

static void test_allreduce_large(void **state)
{
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, allreduce_large, NULL), 0);
}

static void test_other_kinds(void **state)
{
    for (int size = 1; size <= 5; size++)
        assert_int_equal(world_run(size, other_kinds, NULL), 0);
}

static void test_eight_ranks(void **state)
{
    assert_int_equal(world_run(8, other_kinds, NULL), 0);
}

static void test_scaling(void **state)
{
    for (int size = 1; size <= 3; size++)
        assert_int_equal(world_run(size, scaling, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/engine/hosts"))
        return;
    struct world_options two = {.size = 2, .hosts = 2}, mixed = {.size = 3, .hosts = 2};
    assert_int_equal(world_run_options(&two, other_kinds, NULL), 0);
    assert_int_equal(world_run_options(&mixed, other_kinds, NULL), 0);
    assert_int_equal(world_run_options(&mixed, allreduce_large, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_matrix), cmocka_unit_test(test_allreduce_large),
        cmocka_unit_test(test_other_kinds),      cmocka_unit_test(test_eight_ranks),
        cmocka_unit_test(test_scaling),          cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
