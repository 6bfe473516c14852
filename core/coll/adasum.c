/* SPDX-License-Identifier: Apache-2.0
 *
 * adasum: see adasum.h.
 */
#include "core/coll/adasum.h"

#include <float.h>
#include <math.h>

/* The largest power of two that is not larger than n. */
static int power_below(int n)
{
    int p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

int adasum_levels(int n)
{
    int levels = 0, p = power_below(n);
    for (int k = p; k > 1; k /= 2)
        levels++;
    return levels + (p < n);
}

int adasum_pairs(int n, int level, struct adasum_pair *ret)
{
    int p = power_below(n), count = 0;
    if (p < n && level == 0) {
        for (; count < n - p; count++)
            ret[count] = (struct adasum_pair){count, p + count};
        return count;
    }
    int distance = 1 << (level - (p < n));
    for (int at = 0; at < p; at += 2 * distance)
        ret[count++] = (struct adasum_pair){at, at + distance};
    return count;
}

/* Compiled for wider vectors, too; the loader chooses. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                 \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define FAST __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define FAST
#endif

enum { LANES = 16, BLOCK = 64 * LANES };

/* Sums in LANES lanes, because each addition waits for the one before it, and in blocks, so that
 * sums of float stay short. */
#define DOTS(type)                                                                                 \
    FAST static void dots_##type(const type *a, const type *b, size_t n, double ret[3])            \
    {                                                                                              \
        double aa = 0, ab = 0, bb = 0;                                                             \
        for (size_t at = 0; at < n; at += BLOCK) {                                                 \
            type x[LANES] = {0}, y[LANES] = {0}, z[LANES] = {0};                                   \
            size_t end = n - at < BLOCK ? n - at : BLOCK, i = 0;                                   \
            for (; i + LANES <= end; i += LANES)                                                   \
                for (size_t k = 0; k < LANES; k++) {                                               \
                    type p = a[at + i + k], q = b[at + i + k];                                     \
                    x[k] += p * p;                                                                 \
                    y[k] += p * q;                                                                 \
                    z[k] += q * q;                                                                 \
                }                                                                                  \
            for (; i < end; i++) {                                                                 \
                x[0] += a[at + i] * a[at + i];                                                     \
                y[0] += a[at + i] * b[at + i];                                                     \
                z[0] += b[at + i] * b[at + i];                                                     \
            }                                                                                      \
            for (size_t k = 0; k < LANES; k++) {                                                   \
                aa += x[k];                                                                        \
                ab += y[k];                                                                        \
                bb += z[k];                                                                        \
            }                                                                                      \
        }                                                                                          \
        ret[0] = aa;                                                                               \
        ret[1] = ab;                                                                               \
        ret[2] = bb;                                                                               \
    }

#define COMBINE(type)                                                                              \
    FAST static void combine_##type(type *restrict a, const type *restrict b, size_t n, type fa,   \
                                    type fb)                                                       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = fa * a[i] + fb * b[i];                                                          \
    }

DOTS(float)
DOTS(double)
COMBINE(float)
COMBINE(double)

void adasum_dots(bool wide, const void *a, const void *b, size_t n, double ret[3])
{
    if (wide)
        dots_double(a, b, n, ret);
    else
        dots_float(a, b, n, ret);
}

/* A vector that is 0, or so small that its square is, is added as it is. */
static double factor(double product, double square)
{
    return square >= sqrt(DBL_MIN) ? 1 - product / square / 2 : 1;
}

void adasum_combine(bool wide, void *a, const void *b, size_t n, const double dots[3])
{
    double fa = factor(dots[1], dots[0]), fb = factor(dots[1], dots[2]);
    if (wide)
        combine_double(a, b, n, fa, fb);
    else
        combine_float(a, b, n, (float)fa, (float)fb);
}
