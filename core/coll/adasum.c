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

/* Four sums at a time, because each addition waits for the one before it. */
#define DOTS(type)                                                                                 \
    static void dots_##type(const type *a, const type *b, size_t n, double ret[3])                 \
    {                                                                                              \
        double aa[4] = {0}, ab[4] = {0}, bb[4] = {0};                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            double x = a[i], y = b[i];                                                             \
            aa[i % 4] += x * x;                                                                    \
            ab[i % 4] += x * y;                                                                    \
            bb[i % 4] += y * y;                                                                    \
        }                                                                                          \
        ret[0] = aa[0] + aa[1] + aa[2] + aa[3];                                                    \
        ret[1] = ab[0] + ab[1] + ab[2] + ab[3];                                                    \
        ret[2] = bb[0] + bb[1] + bb[2] + bb[3];                                                    \
    }

#define COMBINE(type)                                                                              \
    static void combine_##type(type *a, const type *b, size_t n, double fa, double fb)             \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = (type)(fa * a[i] + fb * b[i]);                                                  \
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
        combine_float(a, b, n, fa, fb);
}
