/* SPDX-License-Identifier: Apache-2.0
 *
 * math: the arithmetic of collectives. Integers in 64 bits, cut to the type at the end, so that
 * they wrap; floats in double, rounded once. See fake.h.
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

static void store_float(void *at, int type, double value)
{
    float f = (float)value;
    uint16_t half;
    switch (type) {
    case NCCL_ABI_FLOAT16:
        half = half_from_float(f);
        memcpy(at, &half, sizeof(half));
        break;
    case NCCL_ABI_BFLOAT16:
        half = bfloat_from_float(f);
        memcpy(at, &half, sizeof(half));
        break;
    case NCCL_ABI_FLOAT32:
        memcpy(at, &f, sizeof(f));
        break;
    default:
        memcpy(at, &value, sizeof(value));
    }
}

static bool is_signed(int type)
{
    return type == NCCL_ABI_INT8 || type == NCCL_ABI_INT32 || type == NCCL_ABI_INT64;
}

/* Little-endian: the low bytes are the value; a signed one is sign-extended. */
static uint64_t load_int(const uint8_t *at, int type)
{
    uint64_t v = 0;
    size_t size = type_size(type);
    memcpy(&v, at, size);
    if (is_signed(type) && size < 8 && v >> (8 * size - 1))
        v |= ~0ULL << (8 * size);
    return v;
}

static uint64_t combine_int(uint64_t a, uint64_t b, int op, bool with_sign)
{
    bool less = with_sign ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case NCCL_ABI_PROD:
        return a * b;
    case NCCL_ABI_MAX:
        return less ? b : a;
    case NCCL_ABI_MIN:
        return less ? a : b;
    default:
        return a + b;
    }
}

static double combine_float(double a, double b, int op)
{
    switch (op) {
    case NCCL_ABI_PROD:
        return a * b;
    case NCCL_ABI_MAX:
        return a < b ? b : a;
    case NCCL_ABI_MIN:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

static void reduce_int(uint8_t *out, const uint8_t *const *in, int n, size_t i, int type, int op)
{
    size_t size = type_size(type);
    bool with_sign = is_signed(type);
    uint64_t v = load_int(in[0] + i * size, type);
    for (int r = 1; r < n; r++)
        v = combine_int(v, load_int(in[r] + i * size, type), op, with_sign);
    if (op == NCCL_ABI_AVG)
        v = with_sign ? (uint64_t)((int64_t)v / n) : v / (uint64_t)n;
    memcpy(out + i * size, &v, size);
}

static void reduce_float(uint8_t *out, const uint8_t *const *in, int n, size_t i, int type, int op,
                         double scalar)
{
    size_t size = type_size(type);
    double factor = op >= NCCL_ABI_OPS ? scalar : 1;
    double v = math_load(in[0] + i * size, type) * factor;
    for (int r = 1; r < n; r++)
        v = combine_float(v, math_load(in[r] + i * size, type) * factor, op);
    store_float(out + i * size, type, op == NCCL_ABI_AVG ? v / n : v);
}

void math_reduce(uint8_t *out, const uint8_t *const *in, int n, size_t count, int type, int op,
                 double scalar)
{
    for (size_t i = 0; i < count; i++) {
        if (is_float(type))
            reduce_float(out, in, n, i, type, op, scalar);
        else
            reduce_int(out, in, n, i, type, op);
    }
}
