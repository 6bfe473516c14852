/* SPDX-License-Identifier: Apache-2.0
 *
 * Adasum of one to eight ranks, in each type, beside the formula in double precision; and while
 * members die.
 *
 * timeout: 300
 * takes: 4 s
 */
#include <float.h>
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

#include "core/coll/half.h"
#include "tests/harness/deaths.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MOST = 8, LONGEST = 70000 };

static const enum hvd_dtype types[] = {HVD_FLOAT64, HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16};
/* Of the largest element, after as many combinations as there are levels. */
static const double tolerances[] = {1e-13, 1e-5, 4e-3, 3e-2};

/* ---- the formula ---------------------------------------------------------------------------- */

static double value(int rank, int i, int seed)
{
    uint64_t state = (uint64_t)rank * 7919 + (uint64_t)i * 104729 + (uint64_t)seed * 31;
    rank_random(&state);
    double x = (double)(rank_random(&state) % 2001) / 1000 - 1;
    return rank == 1 && seed % 3 == 2 ? 0 : x + 0.3; /* not orthogonal; now and then all 0 */
}

static void combine(double *a, const double *b, int n)
{
    double aa = 0, ab = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        aa += a[i] * a[i];
        ab += a[i] * b[i];
        bb += b[i] * b[i];
    }
    double fa = aa > 0 ? 1 - ab / aa / 2 : 1, fb = bb > 0 ? 1 - ab / bb / 2 : 1;
    for (int i = 0; i < n; i++)
        a[i] = fa * a[i] + fb * b[i];
}

/* As published, for a power of two; the ranks above it are combined with the lowest ones first. */
static void reference(double (*v)[LONGEST], int size, int n)
{
    int power = 1;
    while (power * 2 <= size)
        power *= 2;
    for (int r = power; r < size; r++)
        combine(v[r - power], v[r], n);
    for (int distance = 1; distance < power; distance *= 2)
        for (int r = 0; r < power; r += 2 * distance)
            combine(v[r], v[r + distance], n);
}

/* ---- one operation -------------------------------------------------------------------------- */

static void put(enum hvd_dtype type, void *to, int i, double x)
{
    if (type == HVD_FLOAT64)
        ((double *)to)[i] = x;
    else if (type == HVD_FLOAT32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] =
            type == HVD_FLOAT16 ? half_from_float((float)x) : bfloat_from_float((float)x);
}

static double get(enum hvd_dtype type, const void *from, int i)
{
    if (type == HVD_FLOAT64)
        return ((const double *)from)[i];
    if (type == HVD_FLOAT32)
        return ((const float *)from)[i];
    uint16_t h = ((const uint16_t *)from)[i];
    return type == HVD_FLOAT16 ? half_to_float(h) : bfloat_to_float(h);
}

static double in[LONGEST], out[LONGEST];
static double vectors[MOST][LONGEST];

static int one(int rank, int size, int t, int n, int seed, int set)
{
    int64_t count = n;
    bool in_place = seed % 2, scaled = seed % 4 == 1;
    struct hvd_request r = rank_request("a", (float *)(void *)in, &count);
    r.output = in_place ? (void *)in : (void *)out;
    r.dtype = types[t];
    r.op = HVD_ADASUM;
    r.prescale = scaled ? 0.5 : 0;
    r.postscale = scaled ? 3 : 0;
    r.set = set;
    for (int i = 0; i < n; i++)
        put(types[t], in, i, value(rank, i, seed));
    for (int k = 0; k < size; k++)
        for (int i = 0; i < n; i++) {
            put(types[t], out, i, value(k, i, seed));
            vectors[k][i] = get(types[t], out, i) * (scaled ? 0.5 : 1);
        }
    reference(vectors, size, n);
    hvd_handle h;
    if (rank_wait(&r, &h) != 0)
        return FAIL("%s", hvd_error());
    double most = DBL_MIN;
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(vectors[0][i]) * (scaled ? 3 : 1));
    for (int i = 0; i < n; i++) {
        double got = get(types[t], r.output, i), want = vectors[0][i] * (scaled ? 3 : 1);
        if (!(fabs(got - want) <= tolerances[t] * most))
            return FAIL("%s, %d of %d elements, seed %d: %.17g, not %.17g",
                        hvd_dtype_name(types[t]), i, n, seed, got, want);
    }
    return 0;
}

/* An alltoall, which also keeps memory for its ranks, in between. */
static int exchange(int size)
{
    float x[MOST] = {0};
    int64_t count = size;
    hvd_handle h;
    struct hvd_request r = rank_request("x", x, &count);
    r.kind = HVD_ALLTOALL;
    r.output = NULL;
    if (rank_wait(&r, &h) != 0)
        return FAIL("%s", hvd_error());
    hvd_release(h);
    return 0;
}

static int formula(int rank, int size, void *arg)
{
    static const int counts[] = {1, 2, 1000, LONGEST};
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 4; c++)
            for (int seed = 0; seed < (c == 3 ? 2 : 6) && !rc; seed++)
                rc = one(rank, size, t, counts[c], seed, 0);
    rc = rc ? rc : exchange(size);
    rc = rc ? rc : one(rank, size, 0, LONGEST, 0, 0);
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_formula(void **state)
{
    for (int size = 1; size <= MOST; size += size < 6 ? 1 : 2)
        assert_int_equal(world_run(size, formula, NULL), 0);
}

/* Rank 0 is in no set; the others number themselves from 0. */
static int in_set(int rank, int size, void *arg)
{
    const int ranks[] = {1, 2, 3};
    int set, rc = 0;
    if (hvd_init() != 0 || hvd_set_add(ranks, 3, &set) != 0)
        return FAIL("%s", hvd_error());
    for (int seed = 0; seed < 30 && !rc && rank > 0; seed++)
        rc = one(rank - 1, 3, seed % 4, 100, seed, set);
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_set(void **state)
{
    assert_int_equal(world_run(4, in_set, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/adasum/hosts"))
        return;
    for (int size = 3; size <= 5; size++) {
        struct world_options o = {.size = size, .hosts = 2};
        assert_int_equal(world_run_options(&o, formula, NULL), 0);
    }
}

/* ---- deaths --------------------------------------------------------------------------------- */

/* The Adasum of equal vectors is this vector, however many there are. */
static int death_step(int member, int step, void *arg)
{
    float x[300];
    int64_t count = 300;
    hvd_handle h;
    struct hvd_request r = rank_request("x", x, &count);
    r.op = HVD_ADASUM;
    for (int i = 0; i < 300; i++)
        x[i] = (float)((i + step) % 17 + 1);
    if (rank_wait(&r, &h) != 0)
        return FAIL("step %d: %s", step, hvd_error());
    for (int i = 0; i < 300; i++)
        if (fabsf(x[i] - (float)((i + step) % 17 + 1)) > 1e-4F)
            return FAIL("step %d: element %d is %g", step, i, (double)x[i]);
    return 0;
}

static void test_deaths(void **state)
{
    struct deaths *d = world_shared(sizeof(*d));
    d->step = death_step;
    d->gap = 16;
    d->within_us = 3000;
    deaths_run_all(d, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_deaths),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/adasum", tests, NULL, NULL);
}
