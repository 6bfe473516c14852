/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums across hosts (coll_op.across) on real meshes, without the engine. Each rank's tensors are
 * summed with those of the same local rank on the other hosts, while ranks of one host differ in
 * counts. Every dtype and operation, sizes on both sides of each change of algorithm, and the same
 * bits whatever is fused. Buffers are overwritten as soon as an operation is done.
 *
 * timeout: 300
 * takes: 15 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/harness/coll_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MOST  400000 /* elements of a tensor */
#define FUSED 40

static uint8_t in[MOST * 8 + 64], out[MOST * 8 + 64], again[MOST * 8 + 64];

/* Starts the operation with all ranks marked as arrived. */
static int across(struct coll_rank *r, struct coll_op *op)
{
    struct coll_op barrier = coll_rank_op(r, HVD_BARRIER, HVD_FLOAT32, HVD_SUM, NULL, 0);
    int rc = coll_rank_run(r, &barrier);
    op->across = true;
    return rc < 0 ? rc : coll_rank_run(r, op);
}

static int one(struct coll_rank *r, enum hvd_dtype dtype, enum hvd_op o, size_t n, bool in_place,
               unsigned salt)
{
    const struct mesh *mesh = r->mesh;
    size_t bytes = n * hvd_dtype_size(dtype);
    struct coll_tensor t = {in, in_place ? in : out, n};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, dtype, o, &t, 1);
    op.contributors = mesh->hosts;
    salt = salt * 8 + (unsigned)mesh->local_rank; /* another lane's data would be wrong */
    pattern_fill(dtype, o, mesh->host, mesh->hosts, 0, n, salt, in);
    memset(out, 0xee, sizeof(out));
    if (across(r, &op) < 0)
        return FAIL("%s %s of %zu", hvd_dtype_name(dtype), hvd_op_name(o), n);
    memset(in_place ? out : in, 0xdd, bytes);
    size_t bad = pattern_check(dtype, o, mesh->hosts, 0, n, salt, t.out);
    if (bad < n)
        return FAIL("%s %s: element %zu of %zu (%s)", hvd_dtype_name(dtype), hvd_op_name(o), bad, n,
                    coll_algorithm(r->coll));
    if (((uint8_t *)t.out)[bytes] != (in_place ? in[bytes] : 0xee))
        return FAIL("%zu elements: something is written behind them", n);
    return 0;
}

static int sums(struct coll_rank *r)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const size_t counts[] = {0, 1, 7, 4099, 100001, MOST};
    unsigned salt = 0;
    int rc = 0;
    for (int d = 0; d < HVD_DTYPES; d++)
        for (size_t o = 0; o < sizeof(ops) / sizeof(*ops); o++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) && rc == 0; c++) {
                /* Sometimes the second rank of each host has fewer elements, or none. */
                size_t n = r->mesh->local_rank == 1 ? counts[(c * 5 + 1) % 6] : counts[c];
                salt++;
                if (d != HVD_BOOL && (n < MOST || o == 0))
                    rc = one(r, (enum hvd_dtype)d, ops[o], n, salt % 2, salt);
            }
    return rc;
}

/* Values whose sum depends on the order. */
static void fill(struct coll_rank *r, size_t n)
{
    uint64_t random = (uint64_t)r->mesh->rank + 77;
    float *f = (float *)in;
    for (size_t i = 0; i < n; i++)
        f[i] = (float)(int64_t)rank_random(&random) * 1e-13f;
}

/* All tensors as one batch, then one by one: large ones use the ring, small ones the direct
 * exchange. */
static int fused(struct coll_rank *r)
{
    struct coll_tensor t[FUSED];
    size_t at = 0;
    for (size_t i = 0; i < FUSED; i++) {
        t[i] = (struct coll_tensor){in + at * 4, out + at * 4, i * i * 37 % 9001 + i % 3};
        at += t[i].count;
    }
    fill(r, at);
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, t, FUSED);
    int rc = across(r, &op);
    const char *first = coll_algorithm(r->coll);
    for (size_t i = 0; i < FUSED && rc == 0; i++) {
        t[i].out = again + ((uint8_t *)t[i].out - out);
        op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t[i], 1);
        rc = across(r, &op);
    }
    if (rc == 0 && memcmp(out, again, at * 4) != 0)
        rc = FAIL("other bits where it is fused (%s)", first);
    return rc;
}

static int rank_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    if (coll_rank_open(&r, rank, arg) < 0)
        return 10;
    int rc = sums(&r);
    if (rc == 0)
        rc = fused(&r);
    coll_rank_close(&r);
    return rc;
}

static void test_across(void **state)
{
    static char worlds[][9] = {"aabb", "abab", "aaabbb", "aabbcc", "abcdabcd", "ab"};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
        printf("ranks on hosts %s\n", worlds[i]);
        assert_int_equal(world_run((int)strlen(worlds[i]), rank_main, worlds[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_across)};
    return cmocka_run_group_tests_name("multi/test_coll_across", tests, NULL, NULL);
}
