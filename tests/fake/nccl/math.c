/* SPDX-License-Identifier: Apache-2.0
 *
 * math: the arithmetic of collectives. Integers in 64 bits, cut to the type at the end, so that
 * they wrap; floats in double, rounded once. Elements are read, combined and written in blocks, so
 * that a loop has one type and one operation. See fake.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/half.h"
#include "tests/fake/nccl/fake.h"

size_t type_size(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < (int)(sizeof(sizes) / sizeof(*sizes)) ? sizes[type] : 0;
}

#define BLOCK 256 /* elements */

/* The accesses to a block are not instrumented: TSan sees the copies of whole blocks, in which a
 * race shows as well. */
#define PLAIN __attribute__((no_sanitize("thread")))

union raw { /* a block as the type stores it */
    int8_t i8[BLOCK];
    uint8_t u8[BLOCK];
    int32_t i32[BLOCK];
    uint32_t u32[BLOCK];
    uint64_t u64[BLOCK];
    uint16_t f16[BLOCK];
    float f32[BLOCK];
};

union block { /* the same, widened; signed integers are extended */
    uint64_t i[BLOCK];
    double f[BLOCK];
};

static bool is_float(int type)
{
    return type >= NCCL_ABI_FLOAT16;
}

double math_load(const void *at, int type)
{
    uint16_t half;
    float f;
    double d;
    memcpy(&half, at, sizeof(half));
    switch (type) {
    case NCCL_ABI_FLOAT16:
        return half_to_float(half);
    case NCCL_ABI_BFLOAT16:
        return bfloat_to_float(half);
    case NCCL_ABI_FLOAT32:
        memcpy(&f, at, sizeof(f));
        return f;
    default:
        memcpy(&d, at, sizeof(d));
        return d;
    }
}

static bool is_signed(int type)
{
    return type == NCCL_ABI_INT8 || type == NCCL_ABI_INT32 || type == NCCL_ABI_INT64;
}

/* to[i] = value for all elements of a block. */
#define EACH(to, value)                                                                            \
    for (size_t i = 0; i < n; i++)                                                                 \
    (to)[i] = (value)

PLAIN static void widen(union block *to, const union raw *from, size_t n, int type)
{
    switch (type) {
    case NCCL_ABI_INT8:
        EACH(to->i, (uint64_t)from->i8[i]);
        break;
    case NCCL_ABI_UINT8:
        EACH(to->i, from->u8[i]);
        break;
    case NCCL_ABI_INT32:
        EACH(to->i, (uint64_t)from->i32[i]);
        break;
    case NCCL_ABI_UINT32:
        EACH(to->i, from->u32[i]);
        break;
    case NCCL_ABI_FLOAT16:
        EACH(to->f, half_to_float(from->f16[i]));
        break;
    case NCCL_ABI_BFLOAT16:
        EACH(to->f, bfloat_to_float(from->f16[i]));
        break;
    case NCCL_ABI_FLOAT32:
        EACH(to->f, from->f32[i]);
        break;
    default: /* 8 bytes */
        EACH(to->i, from->u64[i]);
        break;
    }
}

PLAIN static void narrow(union raw *to, const union block *from, size_t n, int type)
{
    switch (type) {
    case NCCL_ABI_INT8:
    case NCCL_ABI_UINT8:
        EACH(to->u8, (uint8_t)from->i[i]);
        break;
    case NCCL_ABI_INT32:
    case NCCL_ABI_UINT32:
        EACH(to->u32, (uint32_t)from->i[i]);
        break;
    case NCCL_ABI_FLOAT16:
        EACH(to->f16, half_from_float((float)from->f[i]));
        break;
    case NCCL_ABI_BFLOAT16:
        EACH(to->f16, bfloat_from_float((float)from->f[i]));
        break;
    case NCCL_ABI_FLOAT32:
        EACH(to->f32, (float)from->f[i]);
        break;
    default:
        EACH(to->u64, from->i[i]);
        break;
    }
}

static bool is_less(uint64_t a, uint64_t b, bool with_sign)
{
    return with_sign ? (int64_t)a < (int64_t)b : a < b;
}

PLAIN static void combine_ints(uint64_t *a, const uint64_t *b, size_t n, int op, bool with_sign)
{
    switch (op) {
    case NCCL_ABI_PROD:
        EACH(a, a[i] * b[i]);
        break;
    case NCCL_ABI_MAX:
        EACH(a, is_less(a[i], b[i], with_sign) ? b[i] : a[i]);
        break;
    case NCCL_ABI_MIN:
        EACH(a, is_less(a[i], b[i], with_sign) ? a[i] : b[i]);
        break;
    default:
        EACH(a, a[i] + b[i]);
        break;
    }
}

PLAIN static void combine_floats(double *a, const double *b, size_t n, int op)
{
    switch (op) {
    case NCCL_ABI_PROD:
        EACH(a, a[i] * b[i]);
        break;
    case NCCL_ABI_MAX:
        EACH(a, a[i] < b[i] ? b[i] : a[i]);
        break;
    case NCCL_ABI_MIN:
        EACH(a, a[i] < b[i] ? a[i] : b[i]);
        break;
    default:
        EACH(a, a[i] + b[i]);
        break;
    }
}

PLAIN static void multiply(double *a, size_t n, double factor)
{
    EACH(a, a[i] * factor);
}

/* The average from the sum of so many ranks. */
PLAIN static void divide(union block *a, size_t n, int ranks, int type)
{
    if (is_float(type))
        EACH(a->f, a->f[i] / ranks);
    else if (is_signed(type))
        EACH(a->i, (uint64_t)((int64_t)a->i[i] / ranks));
    else
        EACH(a->i, a->i[i] / (uint64_t)ranks);
}

/* n elements of one rank, at `from`; an operation of PreMulSum multiplies them. */
static void load(union block *to, const uint8_t *from, size_t n, int type, int op, double scalar)
{
    union raw raw;
    memcpy(&raw, from, n * type_size(type));
    widen(to, &raw, n, type);
    if (is_float(type) && op >= NCCL_ABI_OPS)
        multiply(to->f, n, scalar);
}

void math_reduce(uint8_t *out, const uint8_t *const *in, int ranks, size_t count, int type, int op,
                 double scalar)
{
    size_t size = type_size(type);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        union block sum, next;
        union raw raw;
        load(&sum, in[0] + at * size, n, type, op, scalar);
        for (int r = 1; r < ranks; r++) {
            load(&next, in[r] + at * size, n, type, op, scalar);
            if (is_float(type))
                combine_floats(sum.f, next.f, n, op);
            else
                combine_ints(sum.i, next.i, n, op, is_signed(type));
        }
        if (op == NCCL_ABI_AVG)
            divide(&sum, n, ranks, type);
        narrow(&raw, &sum, n, type);
        memcpy(out + at * size, &raw, n * size);
    }
}
