/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern: see pattern.h.
 */
#include "tests/harness/pattern.h"

#include <string.h>

int64_t pattern_value(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t i,
                      unsigned salt)
{
    unsigned v = (unsigned)(i * 7 + i / 1000 + (unsigned)rank * 3 + salt);
    if (dtype == HVD_BOOL)
        return op == HVD_PRODUCT || op == HVD_MIN ? v % 9 != 0 : v % 9 == 0;
    if (op == HVD_PRODUCT)
        return v % 5 == 0 ? 2 : 1;
    if (op == HVD_AVERAGE)
        return (int64_t)(v % 2) * size;
    return v % 5;
}

int64_t pattern_result(enum hvd_dtype dtype, enum hvd_op op, int size, size_t i, unsigned salt)
{
    int64_t sum = pattern_value(dtype, op, 0, size, i, salt);
    for (int r = 1; r < size; r++) {
        int64_t v = pattern_value(dtype, op, r, size, i, salt);
        if (op == HVD_PRODUCT)
            sum *= v;
        else if (op == HVD_MIN)
            sum = v < sum ? v : sum;
        else if (op == HVD_MAX)
            sum = v > sum ? v : sum;
        else
            sum += v;
    }
    if (dtype == HVD_BOOL)
        return sum != 0;
    return op == HVD_AVERAGE ? sum / size : sum;
}

/* Exact for integers that float16 can hold. */
static uint16_t float16_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (f == 0)
        return 0;
    uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

static uint16_t bfloat16_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

void pattern_store(enum hvd_dtype dtype, void *dst, size_t i, int64_t value)
{
    uint8_t raw[8] = {0};
    size_t size = hvd_dtype_size(dtype);
    if (dtype == HVD_FLOAT32) {
        float f = (float)value;
        memcpy(raw, &f, sizeof(f));
    } else if (dtype == HVD_FLOAT64) {
        double f = (double)value;
        memcpy(raw, &f, sizeof(f));
    } else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16) {
        uint16_t h =
            dtype == HVD_FLOAT16 ? float16_bits((float)value) : bfloat16_bits((float)value);
        memcpy(raw, &h, sizeof(h));
    } else {
        memcpy(raw, &value, sizeof(value)); /* little endian: the low bytes */
    }
    memcpy((uint8_t *)dst + i * size, raw, size);
}

void pattern_fill(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t first,
                  size_t count, unsigned salt, void *dst)
{
    for (size_t i = 0; i < count; i++)
        pattern_store(dtype, dst, i, pattern_value(dtype, op, rank, size, first + i, salt));
}

size_t pattern_check(enum hvd_dtype dtype, enum hvd_op op, int size, size_t first, size_t count,
                     unsigned salt, const void *got)
{
    size_t bytes = hvd_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint8_t want[8];
        pattern_store(dtype, want, 0, pattern_result(dtype, op, size, first + i, salt));
        if (memcmp(want, (const uint8_t *)got + i * bytes, bytes) != 0)
            return i;
    }
    return count;
}
