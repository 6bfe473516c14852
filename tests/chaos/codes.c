/* SPDX-License-Identifier: Apache-2.0
 *
 * codes: see codes.h.
 */
#include "tests/chaos/codes.h"

#include <math.h>
#include <string.h>

#include "core/base/hash.h"

/* Bits of a rank's digit, and whether contributions have a weight. */
struct digits {
    int bits;
    bool weighted;
};

/* bits 0: not supported. A float holds integers up to 2 to the number of its significant bits: 24,
 * 53; 11 for float16, 8 for bfloat16. An average of float32 keeps 8 bits for the division. */
static struct digits digits_of(enum hvd_dtype dtype, enum hvd_op op)
{
    bool average = op == HVD_AVERAGE;
    switch (dtype) {
    case HVD_FLOAT64:
        return (struct digits){3, true};
    case HVD_FLOAT32:
        return average ? (struct digits){2, false} : (struct digits){3, true};
    case HVD_INT32:
    case HVD_INT64:
        return average ? (struct digits){0, false} : (struct digits){3, true};
    case HVD_INT16:
    case HVD_UINT16:
        return average ? (struct digits){0, false} : (struct digits){2, false};
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
    case HVD_INT8:
    case HVD_UINT8:
        return average ? (struct digits){0, false} : (struct digits){1, false};
    default:
        return (struct digits){0, false};
    }
}

bool codes_can(enum hvd_dtype dtype, enum hvd_op op)
{
    bool known = op == HVD_SUM || op == HVD_AVERAGE || op == HVD_MIN || op == HVD_MAX;
    return known && digits_of(dtype, op).bits > 0;
}

static uint32_t weight_of(struct digits d, uint64_t salt, int64_t i)
{
    if (!d.weighted)
        return 1;
    return 1 + (uint32_t)(((salt + (uint64_t)i) * 0x9e3779b97f4a7c15ULL) >> 40) % 3;
}

/* float16 of an integer below 2048, which it holds exactly. */
static uint16_t half_of(uint32_t n)
{
    if (n == 0)
        return 0;
    int e = 31 - __builtin_clz(n);
    return (uint16_t)((e + 15) << 10 | (int)(n << (10 - e) & 0x3ff));
}

static double half_value(uint16_t h)
{
    int e = (h >> 10 & 31) - 15, m = h & 0x3ff;
    double v = e == -15 ? ldexp(m, -24) : ldexp(m | 0x400, e - 10);
    return h & 0x8000 ? -v : v;
}

static float bfloat_value(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t bfloat_of(uint32_t n)
{
    float f = (float)n;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

/* By memcpy: tensors may have any alignment. */
#define PUT(type, value)                                                                           \
    do {                                                                                           \
        type v_ = (type)(value);                                                                   \
        memcpy((char *)data + (size_t)i * sizeof(type), &v_, sizeof(type));                        \
    } while (0)

static inline void put(void *data, enum hvd_dtype dtype, int64_t i, uint32_t n)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
        PUT(uint8_t, n);
        break;
    case HVD_UINT16:
    case HVD_INT16:
        PUT(uint16_t, n);
        break;
    case HVD_FLOAT16:
        PUT(uint16_t, half_of(n));
        break;
    case HVD_BFLOAT16:
        PUT(uint16_t, bfloat_of(n));
        break;
    case HVD_INT32:
        PUT(uint32_t, n);
        break;
    case HVD_FLOAT32:
        PUT(float, n);
        break;
    case HVD_INT64:
        PUT(uint64_t, n);
        break;
    default:
        PUT(double, n);
    }
}

#define GET(type)                                                                                  \
    ({                                                                                             \
        type v_;                                                                                   \
        memcpy(&v_, (const char *)data + (size_t)i * sizeof(type), sizeof(type));                  \
        v_;                                                                                        \
    })

static inline double get(const void *data, enum hvd_dtype dtype, int64_t i)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
        return GET(uint8_t);
    case HVD_UINT16:
    case HVD_INT16:
        return GET(uint16_t);
    case HVD_FLOAT16:
        return half_value(GET(uint16_t));
    case HVD_BFLOAT16:
        return (double)bfloat_value(GET(uint16_t));
    case HVD_INT32:
        return GET(int32_t);
    case HVD_FLOAT32:
        return (double)GET(float);
    case HVD_INT64:
        return (double)GET(int64_t);
    default:
        return GET(double);
    }
}

static uint32_t code_of(struct digits d, enum hvd_op op, int rank, uint32_t weight)
{
    if (op == HVD_MIN || op == HVD_MAX)
        return weight * 16 + (uint32_t)rank;
    return weight << (d.bits * rank);
}

/* The loops over all elements are compiled for the types of large tensors. Checking takes most of a
 * worker's time, and faults should hit operations. */
#define FOR_TYPE(dtype, call)                                                                      \
    switch (dtype) {                                                                               \
    case HVD_FLOAT32:                                                                              \
        call(HVD_FLOAT32);                                                                         \
        break;                                                                                     \
    case HVD_FLOAT64:                                                                              \
        call(HVD_FLOAT64);                                                                         \
        break;                                                                                     \
    default:                                                                                       \
        call(dtype);                                                                               \
    }

static inline __attribute__((always_inline)) void fill_loop(void *data, enum hvd_dtype dtype,
                                                            enum hvd_op op, int64_t count, int rank,
                                                            uint64_t salt)
{
    struct digits d = digits_of(dtype, op);
    for (int64_t i = 0; i < count; i++)
        put(data, dtype, i, code_of(d, op, rank, weight_of(d, salt, i)));
}

void codes_fill(void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int rank,
                uint64_t salt)
{
#define CALL(type) fill_loop(data, type, op, count, rank, salt)
    FOR_TYPE(dtype, CALL);
#undef CALL
}

/* 1 in the digit of each rank of the set. */
static uint32_t spread(struct digits d, uint32_t mask)
{
    uint32_t sum = 0;
    for (int r = 0; mask >> r; r++)
        sum |= (mask >> r & 1) << (d.bits * r);
    return sum;
}

/* The set whose digits n has, or 0. */
static uint32_t mask_of(struct digits d, double n, uint32_t weight, int size)
{
    if (!(n >= 1) || n >= 16777216.0 * 2 || n != floor(n))
        return 0;
    uint32_t rest = (uint32_t)n, mask = 0;
    for (int r = 0; r < size; r++, rest >>= d.bits) {
        uint32_t digit = rest & ((1U << d.bits) - 1);
        if (digit == weight)
            mask |= 1U << r;
        else if (digit != 0)
            return 0;
    }
    return rest == 0 ? mask : 0;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* Reads one element into *ret (without its count). False: it names no set of ranks. */
static bool decode(struct digits d, bool average, double value, uint32_t weight, int size,
                   struct codes_set *ret)
{
    struct codes_set found = {0};
    for (int n = 1; n <= (average ? size : 1); n++) {
        double sum = average ? round(value * n) : value;
        uint32_t mask = mask_of(d, sum, weight, size);
        if (!mask || (average && !close_to(value, sum / n)))
            continue;
        if (!found.mask || __builtin_popcount(mask) == n)
            found = (struct codes_set){mask, n, 0};
    }
    *ret = found;
    return found.mask != 0;
}

static void note_bad(struct codes_verdict *v, int64_t i, double value)
{
    if (v->bad++ == 0) {
        v->first_bad = i;
        v->bad_value = value;
    }
}

/* Adds count elements that name this set; i is the last of them. */
static void note_set(struct codes_verdict *v, struct codes_set set, int64_t count, int64_t i,
                     double value)
{
    if (count == 0)
        return;
    for (int s = 0; s < v->nsets; s++) {
        if (v->sets[s].mask == set.mask && v->sets[s].divisor == set.divisor) {
            v->sets[s].count += count;
            return;
        }
    }
    if (v->nsets == CODES_MAX_SETS) {
        note_bad(v, i, value);
        return;
    }
    set.count = count;
    v->sets[v->nsets++] = set;
}

static void verify_extreme(const void *data, enum hvd_dtype dtype, int64_t count, int size,
                           uint64_t salt, struct codes_verdict *v)
{
    struct digits d = digits_of(dtype, HVD_MAX);
    for (int64_t i = 0; i < count; i++) {
        double value = get(data, dtype, i), rank = value - weight_of(d, salt, i) * 16.0;
        if (!(rank >= 0) || rank >= size || rank != floor(rank))
            note_bad(v, i, value);
    }
}

static inline __attribute__((always_inline)) void verify_loop(const void *data,
                                                              enum hvd_dtype dtype, enum hvd_op op,
                                                              int64_t count, int size,
                                                              uint64_t salt,
                                                              struct codes_verdict *v)
{
    struct digits d = digits_of(dtype, op);
    bool average = op == HVD_AVERAGE;
    /* Nearly always an element names the same set as the previous one. */
    struct codes_set last = {(1U << size) - 1, average ? size : 1, 0};
    uint32_t digits = spread(d, last.mask);
    int64_t same = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = get(data, dtype, i);
        uint32_t weight = weight_of(d, salt, i);
        double want = (double)(weight * digits);
        if (average)
            want /= last.divisor;
        if (value == want || (average && close_to(value, want))) {
            same++;
            continue;
        }
        struct codes_set set;
        if (!decode(d, average, value, weight, size, &set)) {
            note_bad(v, i, value);
            continue;
        }
        note_set(v, last, same, i, value);
        last = set;
        digits = spread(d, last.mask);
        same = 1;
    }
    note_set(v, last, same, count - 1, 0);
}

static void verify_sum(const void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count,
                       int size, uint64_t salt, struct codes_verdict *v)
{
#define CALL(type) verify_loop(data, type, op, count, size, salt, v)
    FOR_TYPE(dtype, CALL);
#undef CALL
}

void codes_verify(const void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int size,
                  uint64_t salt, struct codes_verdict *ret)
{
    *ret = (struct codes_verdict){.first_bad = -1};
    ret->hash = hash_bytes(data, (size_t)count * hvd_dtype_size(dtype));
    if (op == HVD_MIN || op == HVD_MAX)
        verify_extreme(data, dtype, count, size, salt, ret);
    else
        verify_sum(data, dtype, op, count, size, salt, ret);
}

int64_t codes_rows(int rank, uint64_t salt)
{
    return 1 + (int64_t)((salt + (uint64_t)rank) % 3);
}

static int64_t row_value(int rank, uint64_t salt, int64_t i)
{
    return (int64_t)rank << 32 | (int64_t)((salt + (uint64_t)i) & 0xffffffff);
}

void codes_fill_rows(void *data, int64_t width, int rank, uint64_t salt)
{
    int64_t n = codes_rows(rank, salt) * width;
    for (int64_t i = 0; i < n; i++)
        PUT(int64_t, row_value(rank, salt, i));
}

void codes_verify_rows(const int64_t *data, int64_t rows, int64_t width, int size, uint64_t salt,
                       struct codes_verdict *ret)
{
    *ret = (struct codes_verdict){.first_bad = -1};
    ret->hash = hash_bytes(data, (size_t)(rows * width) * sizeof(*data));
    int64_t at = 0;
    uint32_t mask = 0;
    for (int r = 0; r < size; r++) {
        int64_t n = codes_rows(r, salt);
        if (at + n > rows || data[at * width] >> 32 != r)
            continue;
        for (int64_t i = 0; i < n * width; i++)
            if (data[at * width + i] != row_value(r, salt, i))
                note_bad(ret, at * width + i, (double)data[at * width + i]);
        mask |= 1U << r;
        at += n;
    }
    if (at != rows)
        note_bad(ret, at * width, at < rows ? (double)data[at * width] : 0);
    if (mask)
        ret->sets[ret->nsets++] = (struct codes_set){mask, 1, at * width};
}
