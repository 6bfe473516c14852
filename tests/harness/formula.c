/* SPDX-License-Identifier: Apache-2.0
 *
 * formula: see formula.h.
 */
#include "tests/harness/formula.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/coll/half.h"
#include "tests/harness/rank.h"

const enum hvd_dtype formula_types[FORMULA_TYPES] = {HVD_FLOAT64, HVD_FLOAT32, HVD_FLOAT16,
                                                     HVD_BFLOAT16};

/* Part of the largest element, after as many combinations as there are levels. */
static double tolerance(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT64   ? 1e-13
           : dtype == HVD_FLOAT32 ? 1e-5
           : dtype == HVD_FLOAT16 ? 4e-3
                                  : 3e-2;
}

/* ---- elements ------------------------------------------------------------------------------- */

static double value(int rank, size_t i, int seed)
{
    uint64_t state = (uint64_t)rank * 7919 + (uint64_t)i * 104729 + (uint64_t)seed * 31;
    rank_random(&state);
    double x = (double)(rank_random(&state) % 2001) / 1000 - 1;
    return rank == 1 && seed % 3 == 2 ? 0 : x + 0.3; /* not orthogonal; now and then all 0 */
}

static void put(enum hvd_dtype dtype, void *to, size_t i, double x)
{
    if (dtype == HVD_FLOAT64)
        ((double *)to)[i] = x;
    else if (dtype == HVD_FLOAT32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] =
            dtype == HVD_FLOAT16 ? half_from_float((float)x) : bfloat_from_float((float)x);
}

static double get(enum hvd_dtype dtype, const void *from, size_t i)
{
    if (dtype == HVD_FLOAT64)
        return ((const double *)from)[i];
    if (dtype == HVD_FLOAT32)
        return ((const float *)from)[i];
    uint16_t h = ((const uint16_t *)from)[i];
    return dtype == HVD_FLOAT16 ? half_to_float(h) : bfloat_to_float(h);
}

void formula_fill(const struct formula *f, int rank, void *to)
{
    for (size_t i = 0; i < f->n; i++)
        put(f->dtype, to, i, value(rank, i, f->seed));
}

/* ---- the formula ---------------------------------------------------------------------------- */

static void combine(double *a, const double *b, size_t n)
{
    double aa = 0, ab = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        ab += a[i] * b[i];
        bb += b[i] * b[i];
    }
    double fa = aa > 0 ? 1 - ab / aa / 2 : 1, fb = bb > 0 ? 1 - ab / bb / 2 : 1;
    for (size_t i = 0; i < n; i++)
        a[i] = fa * a[i] + fb * b[i];
}

/* As published, for a power of two; the vectors above it are combined with the lowest ones first.
 */
static void reference(double **v, int vectors, size_t n)
{
    int power = 1;
    while (power * 2 <= vectors)
        power *= 2;
    for (int r = power; r < vectors; r++)
        combine(v[r - power], v[r], n);
    for (int distance = 1; distance < power; distance *= 2)
        for (int r = 0; r < power; r += 2 * distance)
            combine(v[r], v[r + distance], n);
}

/* Replaces the ranks' vectors by the hosts' averages. Returns the number of hosts. */
static int average(const char *hosts, double **v, int size, size_t n)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        int ranks = 1;
        if (memchr(hosts, hosts[r], (size_t)r))
            continue;
        for (int k = r + 1; k < size; k++) {
            if (hosts[k] != hosts[r])
                continue;
            ranks++;
            for (size_t i = 0; i < n; i++)
                v[r][i] += v[k][i];
        }
        for (size_t i = 0; i < n; i++)
            v[count][i] = v[r][i] / ranks;
        count++;
    }
    return count;
}

static double largest(const double *v, size_t n)
{
    double most = DBL_MIN;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(v[i]));
    return most;
}

/* unit: of which the error is a part. */
static int compare(const struct formula *f, const double *want, const void *got, double unit)
{
    double factor = f->postscale != 0 ? f->postscale : 1;
    for (size_t i = 0; i < f->n; i++) {
        double is = get(f->dtype, got, i);
        if (!(fabs(is - want[i] * factor) <= tolerance(f->dtype) * unit * factor))
            return FAIL("%s, element %zu of %zu, seed %d: %.17g, not %.17g",
                        hvd_dtype_name(f->dtype), i, f->n, f->seed, is, want[i] * factor);
    }
    return 0;
}

int formula_check(const struct formula *f, int size, const void *got)
{
    double *v[FORMULA_RANKS] = {0}, *memory = calloc(f->n * (size_t)size + 1, sizeof(*memory));
    char *own = calloc(f->n + 1, hvd_dtype_size(f->dtype));
    if (!memory || !own || size > FORMULA_RANKS)
        return FAIL("no memory for a formula of %d ranks", size);
    for (int r = 0; r < size; r++) {
        v[r] = memory + f->n * (size_t)r;
        formula_fill(f, r, own);
        for (size_t i = 0; i < f->n; i++)
            v[r][i] = get(f->dtype, own, i) * (f->prescale != 0 ? f->prescale : 1);
    }
    int vectors = f->hosts ? average(f->hosts, v, size, f->n) : size;
    double unit = DBL_MIN;
    for (int i = 0; i < vectors && f->hosts; i++) /* averages are rounded to the type */
        unit = fmax(unit, largest(v[i], f->n));
    reference(v, vectors, f->n);
    int rc = compare(f, v[0], got, fmax(unit, largest(v[0], f->n)));
    free(own);
    free(memory);
    return rc;
}

/* ---- while members are lost ----------------------------------------------------------------- */

static float orthogonal(int member, int step, size_t i)
{
    return i % FORMULA_MEMBERS == (size_t)member ? (float)((i + (size_t)step) % 17 + 1) : 0;
}

void formula_fill_orthogonal(int member, int step, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = orthogonal(member, step, i);
}

/* By how much the tensor of a member is divided: the members on its host that have taken part. */
static float divisor(const bool *in, int member, const char *hosts)
{
    int n = 0;
    for (int m = 0; m < FORMULA_MEMBERS; m++)
        n += in[m] && (hosts ? hosts[m] == hosts[member] : m == member);
    return (float)n;
}

int formula_check_orthogonal(int member, int step, const float *got, size_t n, const char *hosts)
{
    bool in[FORMULA_MEMBERS];
    for (size_t m = 0; m < FORMULA_MEMBERS; m++)
        in[m] = m == (size_t)member || (m < n && got[m] != 0);
    for (size_t i = 0; i < n; i++) {
        int m = (int)(i % FORMULA_MEMBERS);
        float whole = FORMULA_PRESCALE * orthogonal(m, step, i);
        float want = in[m] ? whole / divisor(in, m, hosts) : 0;
        if (!(fabsf(got[i] - want) <= 1e-4F))
            return FAIL("step %d: element %zu is %g, not %g", step, i, (double)got[i],
                        (double)want);
    }
    return 0;
}
