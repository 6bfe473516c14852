/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern: see pattern.h.
 */
#include "tests/harness/pattern.h"

#include <string.h>

#define BLOCK 512 /* elements that are made and compared at once */

int64_t pattern_value(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t i,
                      unsigned salt)
{
    unsigned v = (unsigned)(i * 7 + i / 1000 + (unsigned)rank * 3 + salt);
    if (dtype == HVD_BOOL)
        return op == HVD_PRODUCT || op == HVD_MIN || op == HVD_BAND ? v % 9 != 0 : v % 9 == 0;
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
        else if (op == HVD_BAND)
            sum &= v;
        else if (op == HVD_BOR)
            sum |= v;
        else if (op == HVD_BXOR)
            sum ^= v;
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

/* Writes n elements that memory holds as `type`. */
#define STORE(type, dst, convert)                                                                  \
    for (size_t i = 0; i < n; i++) {                                                               \
        type v = (type)(convert);                                                                  \
        memcpy((uint8_t *)(dst) + i * sizeof(type), &v, sizeof(type));                             \
    }

static void store_block(enum hvd_dtype dtype, void *dst, const int64_t *values, size_t n)
{
    size_t size = hvd_dtype_size(dtype);
    if (dtype == HVD_FLOAT32)
        STORE(float, dst, values[i])
    else if (dtype == HVD_FLOAT64)
        STORE(double, dst, values[i])
    else if (dtype == HVD_FLOAT16)
        STORE(uint16_t, dst, float16_bits((float)values[i]))
    else if (dtype == HVD_BFLOAT16)
        STORE(uint16_t, dst, bfloat16_bits((float)values[i]))
    else if (size == 1)
        STORE(uint8_t, dst, values[i])
    else if (size == 2)
        STORE(uint16_t, dst, values[i])
    else if (size == 4)
        STORE(uint32_t, dst, values[i])
    else
        STORE(uint64_t, dst, values[i])
}

void pattern_store(enum hvd_dtype dtype, void *dst, size_t i, int64_t value)
{
    store_block(dtype, (uint8_t *)dst + i * hvd_dtype_size(dtype), &value, 1);
}

void pattern_fill(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t first,
                  size_t count, unsigned salt, void *dst)
{
    size_t bytes = hvd_dtype_size(dtype), n;
    for (size_t at = 0; at < count; at += n) {
        int64_t values[BLOCK];
        uint8_t block[BLOCK * 8];
        n = count - at < BLOCK ? count - at : BLOCK;
        for (size_t i = 0; i < n; i++)
            values[i] = pattern_value(dtype, op, rank, size, first + at + i, salt);
        store_block(dtype, block, values, n);
        memcpy((uint8_t *)dst + at * bytes, block, n * bytes);
    }
}

size_t pattern_check(enum hvd_dtype dtype, enum hvd_op op, int size, size_t first, size_t count,
                     unsigned salt, const void *got)
{
    size_t bytes = hvd_dtype_size(dtype), n;
    for (size_t at = 0; at < count; at += n) {
        int64_t values[BLOCK];
        uint8_t want[BLOCK * 8];
        const uint8_t *have = (const uint8_t *)got + at * bytes;
        n = count - at < BLOCK ? count - at : BLOCK;
        for (size_t i = 0; i < n; i++)
            values[i] = pattern_result(dtype, op, size, first + at + i, salt);
        store_block(dtype, want, values, n);
        if (memcmp(want, have, n * bytes) == 0)
            continue;
        size_t bad = 0;
        while (memcmp(want + bad * bytes, have + bad * bytes, bytes) == 0)
            bad++;
        return at + bad;
    }
    return count;
}
