/* SPDX-License-Identifier: Apache-2.0
 *
 * values: see values.h.
 */
#include "tests/harness/values.h"

#include <stdbool.h>
#include <string.h>

static uint16_t half(int64_t v)
{
    uint16_t sign = v < 0 ? 0x8000 : 0;
    uint64_t m = (uint64_t)(v < 0 ? -v : v);
    if (m == 0)
        return sign;
    int e = 63 - __builtin_clzll(m);
    return (uint16_t)(sign | (unsigned)(e + 15) << 10 | ((m << 10 >> e) & 0x3ff));
}

static uint16_t bfloat(int64_t v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* memcpy for an element: of constant sizes, which the compiler turns into one store. */
static void put_bytes(char *dst, const void *src, size_t size)
{
    if (size == 1)
        memcpy(dst, src, 1);
    else if (size == 2)
        memcpy(dst, src, 2);
    else if (size == 4)
        memcpy(dst, src, 4);
    else
        memcpy(dst, src, 8);
}

/* Writes v, |v| <= 256, to element i of buf. */
static void put_value(enum hvd_dtype dtype, void *buf, size_t i, int64_t v)
{
    size_t size = hvd_dtype_size(dtype);
    float f32 = (float)v;
    double f64 = (double)v;
    uint16_t f16 = dtype == HVD_FLOAT16 ? half(v) : bfloat(v);
    uint8_t b = v != 0;
    const void *src = &v; /* little endian: the low bytes of an integer come first */
    if (dtype == HVD_FLOAT32)
        src = &f32;
    else if (dtype == HVD_FLOAT64)
        src = &f64;
    else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16)
        src = &f16;
    else if (dtype == HVD_BOOL)
        src = &b;
    put_bytes((char *)buf + i * size, src, size);
}

int64_t values_input(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t i, int salt)
{
    size_t k = i + (size_t)salt;
    if (dtype == HVD_BOOL)
        return ((size_t)rank + k) % 3 == 0;
    if (op == HVD_PRODUCT)
        return 1 + (int64_t)(((size_t)rank + k) % 2);
    if (op == HVD_AVERAGE)
        return (int64_t)(k % 4) + ((int)(k % (size_t)size) == rank ? size : 0);
    return (int64_t)((k * 7 + (size_t)rank * 3) % 13);
}

static int64_t combine(enum hvd_dtype dtype, enum hvd_op op, int64_t a, int64_t b)
{
    bool is_bool = dtype == HVD_BOOL;
    switch (op) {
    case HVD_MIN:
        return a < b ? a : b;
    case HVD_MAX:
        return a > b ? a : b;
    case HVD_PRODUCT:
        return a * b;
    case HVD_BAND:
        return a & b;
    case HVD_BXOR:
        return a ^ b;
    case HVD_BOR:
        return a | b;
    case HVD_SUM:
    case HVD_AVERAGE:
    case HVD_ADASUM:
    case HVD_OPS:
        break;
    }
    return is_bool ? (a | b) : a + b;
}

int64_t values_reduced(enum hvd_dtype dtype, enum hvd_op op, int size, size_t i, int salt)
{
    int64_t v = values_input(dtype, op, 0, size, i, salt);
    for (int r = 1; r < size; r++)
        v = combine(dtype, op, v, values_input(dtype, op, r, size, i, salt));
    return op == HVD_AVERAGE ? v / size : v;
}

/* A value depends on its index only through remainders by 13, 3, 4, 2 and size. So values repeat
 * with this period for sizes up to 8, and only the first period must be computed. */
#define PERIOD 10920
#define BLOCK  840 /* elements that are made or compared at once */

void values_fill(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, void *buf, size_t count,
                 int salt)
{
    size_t element = hvd_dtype_size(dtype), first = size <= 8 && count > PERIOD ? PERIOD : count;
    char *p = buf, block[BLOCK * 8];
    for (size_t at = 0, n; at < first; at += n) {
        n = first - at < BLOCK ? first - at : BLOCK;
        for (size_t i = 0; i < n; i++)
            put_value(dtype, block, i, values_input(dtype, op, rank, size, at + i, salt));
        memcpy(p + at * element, block, n * element);
    }
    for (size_t done = first; done < count;) {
        size_t n = count - done < PERIOD ? count - done : PERIOD;
        memcpy(p + done * element, p, n * element);
        done += n;
    }
}

/* The first of n elements that differ; n: none */
static size_t difference(const char *want, const char *have, size_t n, size_t element)
{
    size_t bad = 0;
    if (memcmp(want, have, n * element) == 0)
        return n;
    while (memcmp(want + bad * element, have + bad * element, element) == 0)
        bad++;
    return bad;
}

long values_check_input(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, const void *buf,
                        size_t first, size_t count, int salt)
{
    size_t element = hvd_dtype_size(dtype);
    for (size_t at = 0, n; at < count; at += n) {
        char want[BLOCK * 8];
        n = count - at < BLOCK ? count - at : BLOCK;
        for (size_t i = 0; i < n; i++)
            put_value(dtype, want, i, values_input(dtype, op, rank, size, first + at + i, salt));
        size_t bad = difference(want, (const char *)buf + at * element, n, element);
        if (bad < n)
            return (long)(at + bad);
    }
    return -1;
}

static long check_each(enum hvd_dtype dtype, enum hvd_op op, int size, const char *buf,
                       size_t first, size_t from, size_t to, int salt)
{
    size_t element = hvd_dtype_size(dtype), n;
    for (; from < to; from += n) {
        char want[BLOCK * 8];
        n = to - from < BLOCK ? to - from : BLOCK;
        for (size_t i = 0; i < n; i++)
            put_value(dtype, want, i, values_reduced(dtype, op, size, first + from + i, salt));
        size_t bad = difference(want, buf + from * element, n, element);
        if (bad < n)
            return (long)(from + bad);
    }
    return -1;
}

long values_check(enum hvd_dtype dtype, enum hvd_op op, int size, const void *buf, size_t first,
                  size_t count, int salt)
{
    size_t element = hvd_dtype_size(dtype), period = PERIOD;
    const char *p = buf;
    if (size > 8 || count <= period)
        return check_each(dtype, op, size, p, first, 0, count, salt);
    long bad = check_each(dtype, op, size, p, first, 0, period, salt);
    if (bad < 0 && memcmp(p, p + period * element, (count - period) * element) != 0)
        bad = check_each(dtype, op, size, p, first, period, count, salt);
    return bad;
}
