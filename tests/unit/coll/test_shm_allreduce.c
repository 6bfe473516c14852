/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shm_allreduce: forked ranks of one host against the reference of tests/harness/pattern:
 * every dtype and operation around every boundary, fused lists, cancelled and aborted operations.
 * Every rank overwrites inputs and outputs as soon as an operation is done.
 *
 * takes: 12 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/coll/reduce.h"
#include "tests/harness/shm_host.h"
#include "tests/harness/shm_rank.h"

enum { SECONDS = 200 };

static int run_fused(struct shm_rank *r, enum hvd_dtype dtype, enum hvd_op op, const size_t *counts,
                     size_t n, bool in_place)
{
    struct shm_fused f;
    shm_fused_init(&f, r, dtype, op, counts, n, in_place);
    shm_allreduce_start(r->all, &f.op);
    if (shm_rank_drive(r) != 0)
        return 2;
    int rc = shm_fused_check(&f, r);
    shm_fused_spoil(&f);
    return rc;
}

/* ---- every dtype and operation -------------------------------------------------------------- */

static int matrix(struct mesh *mesh, void *ctx)
{
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 3 << 20);
    for (int d = 0; rc == 0 && d < REDUCE_DTYPES; d++) {
        size_t size = hvd_dtype_size((enum hvd_dtype)d);
        size_t inline_most = SHM_INLINE_MAX / size;
        size_t symmetric_most = (3u << 18) / size / (unsigned)(mesh->size - 1);
        size_t counts[] = {0,
                           1,
                           3,
                           inline_most - 1,
                           inline_most,
                           inline_most + 1,
                           1000,
                           symmetric_most,
                           symmetric_most + 1};
        for (int op = 0; rc == 0 && op < HVD_OPS; op++)
            for (size_t c = 0; rc == 0 && c < sizeof(counts) / sizeof(counts[0]); c++) {
                bool large = c >= 7 && (op != HVD_SUM || (d != HVD_FLOAT16 && d != HVD_FLOAT64));
                if (!reduce_possible((enum hvd_dtype)d, (enum hvd_op)op) || large)
                    continue;
                rc = run_fused(&r, (enum hvd_dtype)d, (enum hvd_op)op, &counts[c], 1, false);
                if (rc == 0)
                    rc = run_fused(&r, (enum hvd_dtype)d, (enum hvd_op)op, &counts[c], 1, true);
            }
    }
    return shm_rank_fini(&r, rc);
}

static void test_matrix(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks += ranks < 5 ? 1 : 3)
        assert_int_equal(shm_host_run(ranks, matrix, NULL, SECONDS), 0);
}

/* ---- operations one after the other, without a pause or with one ----------------------------- */

static int stress(struct mesh *mesh, void *ctx)
{
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 3 << 19);
    unsigned own = (unsigned)mesh->rank * 77 + 1;
    for (int i = 0; rc == 0 && i < 80; i++) {
        size_t counts[SHM_FUSED_MOST], n = 1 + shm_rank_random(&r) % (i % 2 ? SHM_FUSED_MOST : 2);
        enum hvd_dtype dtype = (enum hvd_dtype)(shm_rank_random(&r) % REDUCE_DTYPES);
        shm_rank_counts(&r, hvd_dtype_size(dtype), counts, n);
        rc = run_fused(&r, dtype, HVD_SUM, counts, n, shm_rank_random(&r) % 2);
        own = own * 1664525 + 1013904223;
        if (own >> 28 == 0)
            usleep(own >> 8 & 1023);
        if (shm_rank_random(&r) % 50 == 0)
            mesh->generation++;
    }
    return shm_rank_fini(&r, rc);
}

static void test_stress(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks += ranks < 4 ? 1 : 3)
        assert_int_equal(shm_host_run(ranks, stress, NULL, SECONDS), 0);
}

/* Sizes of slices, cells and cache lines, and one element more or less. */
static int boundaries(struct mesh *mesh, void *ctx)
{
    static const size_t bytes[] = {4096,    65536,          131072,    262144,
                                   1 << 20, 3 * 131072 * 2, 3 * 699008};
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    for (size_t i = 0; rc == 0 && i < sizeof(bytes) / sizeof(bytes[0]); i++)
        for (int d = -1; rc == 0 && d <= 1; d++) {
            size_t count = bytes[i] / 4 + (size_t)d;
            rc = run_fused(&r, HVD_FLOAT32, HVD_AVERAGE, &count, 1, i % 2);
        }
    return shm_rank_fini(&r, rc);
}

static void test_boundaries(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        assert_int_equal(shm_host_run(ranks, boundaries, NULL, SECONDS), 0);
}

/* ---- barriers, cancel, abort ---------------------------------------------------------------- */

static int barrier(struct mesh *mesh, void *ctx)
{
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 4096);
    struct coll_op op = {.kind = HVD_BARRIER};
    for (uint64_t i = 1; rc == 0 && i <= 50; i++) {
        /* A word of staging that the barrier does not use. */
        *(volatile uint64_t *)shm_staging_of(mesh->shm, mesh->rank) = i;
        shm_allreduce_start(r.all, &op);
        rc = shm_rank_drive(&r);
        for (int k = 0; rc == 0 && k < mesh->size; k++)
            rc = *(volatile uint64_t *)shm_staging_of(mesh->shm, k) < i;
    }
    return shm_rank_fini(&r, rc);
}

static void test_barrier(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(2, barrier, NULL, SECONDS), 0);
    assert_int_equal(shm_host_run(6, barrier, NULL, SECONDS), 0);
}

/* All ranks but the last start an operation and cancel it: no output is written. Then a new
 * generation begins. */
static int cancelled(struct shm_rank *r, size_t count)
{
    struct shm_fused f;
    bool starts = r->mesh->rank != r->mesh->size - 1;
    int rc = 0;
    shm_fused_init(&f, r, HVD_FLOAT32, HVD_SUM, &count, 1, false);
    memset(f.tensors[0].out, 0x33, count * 4);
    if (starts)
        shm_allreduce_start(r->all, &f.op);
    for (int i = 0; starts && i < 100; i++) {
        if (shm_allreduce_progress(r->all) != 1)
            return 3;
        usleep(50);
    }
    for (size_t i = 0; i < count * 4; i++)
        if (((uint8_t *)f.tensors[0].out)[i] != 0x33)
            rc = 4;
    if (starts)
        shm_allreduce_cancel(r->all);
    r->mesh->generation++;
    return rc;
}

static int cancel(struct mesh *mesh, void *ctx)
{
    static const size_t counts[] = {1, 64, 65, 100000, 1000000};
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    for (size_t i = 0; rc == 0 && i < 15; i++) {
        size_t count = counts[i % 5], other = counts[(i + 1 + i / 5) % 5];
        rc = cancelled(&r, count);
        if (rc == 0)
            rc = run_fused(&r, HVD_FLOAT32, HVD_SUM, &other, 1, i % 2);
    }
    return shm_rank_fini(&r, rc);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        assert_int_equal(shm_host_run(ranks, cancel, NULL, SECONDS), 0);
}

static int abort_one(struct mesh *mesh, void *ctx)
{
    const size_t *count = ctx;
    struct shm_rank r;
    struct shm_fused f;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    shm_fused_init(&f, &r, HVD_FLOAT32, HVD_SUM, count, 1, true);
    if (rc == 0 && mesh->rank == 1) {
        usleep(20000);
        shm_abort(mesh->shm, 1);
    } else if (rc == 0) {
        shm_allreduce_start(r.all, &f.op);
        rc = shm_rank_drive(&r) == -ECONNRESET ? 0 : 5;
    }
    return shm_rank_fini(&r, rc);
}

static void test_abort(void **state)
{
    (void)state;
    static size_t counts[] = {1, 1000, 1000000};
    for (int i = 0; i < 3; i++)
        assert_int_equal(shm_host_run(3, abort_one, &counts[i], SECONDS), 0);
}

/* ---- scale ---------------------------------------------------------------------------------- */

static int scaled(struct mesh *mesh, void *ctx)
{
    static const size_t counts[] = {5, 5000, 700001};
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    for (size_t c = 0; rc == 0 && c < 3; c++) {
        struct shm_fused f;
        shm_fused_init(&f, &r, HVD_FLOAT32, HVD_AVERAGE, &counts[c], 1, c % 2);
        f.op.prescale = 4.0;
        f.op.postscale = 0.25;
        shm_allreduce_start(r.all, &f.op);
        rc = shm_rank_drive(&r);
        if (rc == 0)
            rc = shm_fused_check(&f, &r);
    }
    return shm_rank_fini(&r, rc);
}

static void test_scale(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(3, scaled, NULL, SECONDS), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),     cmocka_unit_test(test_stress),
        cmocka_unit_test(test_boundaries), cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_cancel),     cmocka_unit_test(test_abort),
        cmocka_unit_test(test_scale),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
