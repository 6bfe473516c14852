/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_template: the source text of a table of kernels. A file that includes it defines KERNELS,
 * the name of its table, and KERNELS_NAME, and is compiled for its instruction set.
 *
 * Loops over unaligned elements that the compiler turns into vectors. The operations on one element
 * are in the order of the text, so that the bits do not depend on the vector width.
 */
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/coll/half.h"
#include "core/coll/reduce_eight.h"
#include "core/coll/reduce_kernels.h"

/* dst may be a source: the same element, never a neighbour. */
#if defined(__clang__)
#define EACH _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < n; i++)
#else
#define EACH _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)
#endif

#define UNALIGNED __attribute__((aligned(1), may_alias))

typedef uint8_t t_uint8 UNALIGNED;
typedef int8_t t_int8 UNALIGNED;
typedef uint16_t t_uint16 UNALIGNED;
typedef int16_t t_int16 UNALIGNED;
typedef int32_t t_int32 UNALIGNED;
typedef int64_t t_int64 UNALIGNED;
typedef float t_float32 UNALIGNED;
typedef double t_float64 UNALIGNED;

/* ---- native types --------------------------------------------------------------------------- */

#define COMBINE(type, op, expr)                                                                    \
    static void combine_##type##_##op(void *dst, const void *av, const void *bv, size_t n)         \
    {                                                                                              \
        t_##type *d = dst;                                                                         \
        const t_##type *as = av, *bs = bv;                                                         \
        EACH                                                                                       \
        {                                                                                          \
            t_##type a = as[i], b = bs[i];                                                         \
            d[i] = (t_##type)(expr);                                                               \
        }                                                                                          \
    }

/* wide: unsigned, at least int, so that it wraps whatever the type */
#define INTEGER(type, wide, lowest, highest)                                                       \
    COMBINE(type, sum, (wide)a + (wide)b)                                                          \
    COMBINE(type, min, a < b ? a : b)                                                              \
    COMBINE(type, max, a > b ? a : b)                                                              \
    COMBINE(type, product, (wide)a *(wide)b)                                                       \
    COMBINE(type, and, a &b)                                                                       \
    COMBINE(type, or, a | b)                                                                       \
    COMBINE(type, xor, a ^ b)                                                                      \
    static void scale_##type(void *dst, const void *src, double factor, size_t n)                  \
    {                                                                                              \
        t_##type *d = dst;                                                                         \
        const t_##type *s = src;                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            double x = (double)s[i] * factor;                                                      \
            d[i] = x != x                 ? 0                                                      \
                   : x <= (double)lowest  ? lowest                                                 \
                   : x >= (double)highest ? highest                                                \
                                          : (t_##type)x;                                           \
        }                                                                                          \
    }                                                                                              \
    static void divide_##type(void *dst, const void *src, int divisor, size_t n)                   \
    {                                                                                              \
        t_##type *d = dst;                                                                         \
        const t_##type *s = src;                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            d[i] = (t_##type)(s[i] / (int64_t)divisor);                                            \
    }

INTEGER(uint8, uint32_t, 0, UINT8_MAX)
INTEGER(int8, uint32_t, INT8_MIN, INT8_MAX)
INTEGER(uint16, uint32_t, 0, UINT16_MAX)
INTEGER(int16, uint32_t, INT16_MIN, INT16_MAX)
INTEGER(int32, uint32_t, INT32_MIN, INT32_MAX)
INTEGER(int64, uint64_t, INT64_MIN, INT64_MAX)

/* A NaN wins: the first one there is. */
#define LESSER(a, b)  ((a) < (b) || (a) != (a) ? (a) : (b))
#define GREATER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define FLOATING(type, scalar)                                                                     \
    COMBINE(type, sum, a + b)                                                                      \
    COMBINE(type, min, LESSER(a, b))                                                               \
    COMBINE(type, max, GREATER(a, b))                                                              \
    COMBINE(type, product, a *b)                                                                   \
    static void scale_##type(void *dst, const void *src, double factor, size_t n)                  \
    {                                                                                              \
        t_##type *d = dst;                                                                         \
        const t_##type *s = src;                                                                   \
        const scalar f = (scalar)factor;                                                           \
        EACH d[i] = s[i] * f;                                                                      \
    }                                                                                              \
    static void divide_##type(void *dst, const void *src, int divisor, size_t n)                   \
    {                                                                                              \
        t_##type *d = dst;                                                                         \
        const t_##type *s = src;                                                                   \
        const scalar f = (scalar)divisor;                                                          \
        EACH d[i] = s[i] / f;                                                                      \
    }

FLOATING(float32, float)
FLOATING(float64, double)

static void combine_bool_or(void *dst, const void *av, const void *bv, size_t n)
{
    t_uint8 *d = dst;
    const t_uint8 *a = av, *b = bv;
    EACH d[i] = (a[i] | b[i]) != 0;
}

static void combine_bool_and(void *dst, const void *av, const void *bv, size_t n)
{
    t_uint8 *d = dst;
    const t_uint8 *a = av, *b = bv;
    EACH d[i] = (a[i] != 0) & (b[i] != 0);
}

static void combine_bool_xor(void *dst, const void *av, const void *bv, size_t n)
{
    t_uint8 *d = dst;
    const t_uint8 *a = av, *b = bv;
    EACH d[i] = (a[i] != 0) ^ (b[i] != 0);
}

/* ---- 16-bit floats --------------------------------------------------------------------------
 * load and store of eight (reduce_eight.h) or of one at a time. */

#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))

/* The elements that combine8 and fold8 leave, one at a time. The compiler vectorizes these loops
 * for bfloat16. */
#define SIXTEEN(type, op, f)                                                                       \
    static void combine_##type##_##op(void *dst, const void *av, const void *bv, size_t n)         \
    {                                                                                              \
        t_uint16 *d = dst;                                                                         \
        const t_uint16 *as = av, *bs = bv;                                                         \
        size_t i = combine8_##type##_##op(dst, av, bv, n);                                         \
        REST                                                                                       \
        {                                                                                          \
            float a = type##_load(as[i]), b = type##_load(bs[i]);                                  \
            d[i] = type##_store(f(a, b));                                                          \
        }                                                                                          \
    }                                                                                              \
    static void fold_##type##_##op(void *dst, const void *av, const void *bv, size_t n)            \
    {                                                                                              \
        t_float32 *d = dst;                                                                        \
        const t_float32 *as = av;                                                                  \
        const t_uint16 *bs = bv;                                                                   \
        size_t i = fold8_##type##_##op(dst, av, bv, n);                                            \
        REST                                                                                       \
        {                                                                                          \
            float a = as[i], b = type##_load(bs[i]);                                               \
            d[i] = f(a, b);                                                                        \
        }                                                                                          \
    }

#define CONVERT(type)                                                                              \
    static void widen_##type(void *dst, const void *src, size_t n)                                 \
    {                                                                                              \
        t_float32 *d = dst;                                                                        \
        const t_uint16 *s = src;                                                                   \
        size_t i = widen8_##type(dst, src, n);                                                     \
        REST d[i] = type##_load(s[i]);                                                             \
    }                                                                                              \
    static void narrow_##type(void *dst, const void *src, size_t n)                                \
    {                                                                                              \
        t_uint16 *d = dst;                                                                         \
        const t_float32 *s = src;                                                                  \
        size_t i = narrow8_##type(dst, src, n);                                                    \
        REST d[i] = type##_store(s[i]);                                                            \
    }

#if defined(__clang__)
#define REST _Pragma("clang loop vectorize(assume_safety)") for (; i < n; i++)
#else
#define REST _Pragma("GCC ivdep") for (; i < n; i++)
#endif

#define float16_load   half_to_float
#define float16_store  half_from_float
#define bfloat16_load  bfloat_to_float
#define bfloat16_store bfloat_from_float

/* Process elements in vectors of eight. Return how many elements were processed. */
#if defined(REDUCE_EIGHT)

#define EIGHT(op)                                                                                  \
    static size_t combine8_float16_##op(void *dst, const void *a, const void *b, size_t n)         \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8)                                                                 \
            eight_store_half(dst, i, eight_##op(eight_load_half(a, i), eight_load_half(b, i)));    \
        return i;                                                                                  \
    }                                                                                              \
    static size_t fold8_float16_##op(void *dst, const void *a, const void *b, size_t n)            \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8)                                                                 \
            eight_store(dst, i, eight_##op(eight_load(a, i), eight_load_half(b, i)));              \
        return i;                                                                                  \
    }

EIGHT(sum)
EIGHT(min)
EIGHT(max)
EIGHT(product)

static size_t widen8_float16(void *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        eight_store(dst, i, eight_load_half(src, i));
    return i;
}

static size_t narrow8_float16(void *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        eight_store_half(dst, i, eight_load(src, i));
    return i;
}

#else

#define combine8_float16_sum(dst, a, b, n)     0
#define combine8_float16_min(dst, a, b, n)     0
#define combine8_float16_max(dst, a, b, n)     0
#define combine8_float16_product(dst, a, b, n) 0
#define fold8_float16_sum(dst, a, b, n)        0
#define fold8_float16_min(dst, a, b, n)        0
#define fold8_float16_max(dst, a, b, n)        0
#define fold8_float16_product(dst, a, b, n)    0
#define widen8_float16(dst, src, n)            0
#define narrow8_float16(dst, src, n)           0

#endif

#define combine8_bfloat16_sum(dst, a, b, n)     0
#define combine8_bfloat16_min(dst, a, b, n)     0
#define combine8_bfloat16_max(dst, a, b, n)     0
#define combine8_bfloat16_product(dst, a, b, n) 0
#define fold8_bfloat16_sum(dst, a, b, n)        0
#define fold8_bfloat16_min(dst, a, b, n)        0
#define fold8_bfloat16_max(dst, a, b, n)        0
#define fold8_bfloat16_product(dst, a, b, n)    0
#define widen8_bfloat16(dst, src, n)            0
#define narrow8_bfloat16(dst, src, n)           0

SIXTEEN(float16, sum, SUM)
SIXTEEN(float16, min, LESSER)
SIXTEEN(float16, max, GREATER)
SIXTEEN(float16, product, PRODUCT)
SIXTEEN(bfloat16, sum, SUM)
SIXTEEN(bfloat16, min, LESSER)
SIXTEEN(bfloat16, max, GREATER)
SIXTEEN(bfloat16, product, PRODUCT)
CONVERT(float16)
CONVERT(bfloat16)

/* ---- copies ---------------------------------------------------------------------------------
 * Not memcpy(): on some processors its "rep movsb" is many times slower when dst lies just above
 * src modulo 4096, as a tensor of its own pages does beside staging (measured on Zen 3: 5 times).
 */

#if defined(__AVX2__)

#define COPY(name, store)                                                                          \
    static void name(void *dst, const void *src, size_t bytes)                                     \
    {                                                                                              \
        uint8_t *d = dst;                                                                          \
        const uint8_t *s = src;                                                                    \
        size_t head = (0 - (uintptr_t)d) & 63;                                                     \
        if (bytes < 256) {                                                                         \
            memcpy(d, s, bytes);                                                                   \
            return;                                                                                \
        }                                                                                          \
        memcpy(d, s, head);                                                                        \
        d += head;                                                                                 \
        s += head;                                                                                 \
        bytes -= head;                                                                             \
        for (; bytes >= 128; bytes -= 128, d += 128, s += 128) {                                   \
            __m256i v0 = _mm256_loadu_si256((const void *)s);                                      \
            __m256i v1 = _mm256_loadu_si256((const void *)(s + 32));                               \
            __m256i v2 = _mm256_loadu_si256((const void *)(s + 64));                               \
            __m256i v3 = _mm256_loadu_si256((const void *)(s + 96));                               \
            store((void *)d, v0);                                                                  \
            store((void *)(d + 32), v1);                                                           \
            store((void *)(d + 64), v2);                                                           \
            store((void *)(d + 96), v3);                                                           \
        }                                                                                          \
        memcpy(d, s, bytes);                                                                       \
    }

COPY(copy_near, _mm256_store_si256)
COPY(copy_far, _mm256_stream_si256)

#else

static void copy_near(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#define copy_far copy_near

#endif

/* ---- the table ------------------------------------------------------------------------------ */

#define OPS(family, type)                                                                          \
    {                                                                                              \
        family##_##type##_sum, family##_##type##_min, family##_##type##_max,                       \
            family##_##type##_product                                                              \
    }

#define INTEGER_OPS(type)                                                                          \
    {                                                                                              \
        combine_##type##_sum, combine_##type##_min, combine_##type##_max,                          \
            combine_##type##_product, combine_##type##_and, combine_##type##_or,                   \
            combine_##type##_xor                                                                   \
    }

const struct reduce_kernels KERNELS = {
    .name = KERNELS_NAME,
    .combine =
        {
            [HVD_UINT8] = INTEGER_OPS(uint8),
            [HVD_INT8] = INTEGER_OPS(int8),
            [HVD_UINT16] = INTEGER_OPS(uint16),
            [HVD_INT16] = INTEGER_OPS(int16),
            [HVD_INT32] = INTEGER_OPS(int32),
            [HVD_INT64] = INTEGER_OPS(int64),
            [HVD_FLOAT16] = OPS(combine, float16),
            [HVD_FLOAT32] = OPS(combine, float32),
            [HVD_FLOAT64] = OPS(combine, float64),
            [HVD_BFLOAT16] = OPS(combine, bfloat16),
            [HVD_BOOL] = {combine_bool_or, combine_bool_and, combine_bool_or, combine_bool_and,
                          combine_bool_and, combine_bool_or, combine_bool_xor},
        },
    .fold = {[HVD_FLOAT16] = OPS(fold, float16), [HVD_BFLOAT16] = OPS(fold, bfloat16)},
    .widen = {[HVD_FLOAT16] = widen_float16, [HVD_BFLOAT16] = widen_bfloat16},
    .narrow = {[HVD_FLOAT16] = narrow_float16, [HVD_BFLOAT16] = narrow_bfloat16},
    .scale = {[HVD_UINT8] = scale_uint8,
              [HVD_INT8] = scale_int8,
              [HVD_UINT16] = scale_uint16,
              [HVD_INT16] = scale_int16,
              [HVD_INT32] = scale_int32,
              [HVD_INT64] = scale_int64,
              [HVD_FLOAT32] = scale_float32,
              [HVD_FLOAT64] = scale_float64},
    .divide = {[HVD_UINT8] = divide_uint8,
               [HVD_INT8] = divide_int8,
               [HVD_UINT16] = divide_uint16,
               [HVD_INT16] = divide_int16,
               [HVD_INT32] = divide_int32,
               [HVD_INT64] = divide_int64,
               [HVD_FLOAT32] = divide_float32,
               [HVD_FLOAT64] = divide_float64},
    .copy = copy_near,
    .stream = copy_far,
};
