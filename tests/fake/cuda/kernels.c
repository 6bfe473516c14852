/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels: the kernels of hvd_kernels.cu for the host, as kernels.h and reduce.h specify them.
 * Types are data here, not templates; elements are read, computed and written in blocks, so that a
 * loop has one type and one operation.
 */
#include "core/backend/kernels/kernels.h"

#include <math.h>

#include "core/coll/half.h"
#include "tests/fake/cuda/fake.h"

enum class { INTEGER, TRUTH, HALF, BFLOAT, SINGLE, DOUBLE };

static const struct type {
    const char *name;
    enum class class;
    size_t bytes;
    int64_t low, high; /* range of an integer type */
} types[] = {
    {"uint8", INTEGER, 1, 0, UINT8_MAX},
    {"int8", INTEGER, 1, INT8_MIN, INT8_MAX},
    {"uint16", INTEGER, 2, 0, UINT16_MAX},
    {"int16", INTEGER, 2, INT16_MIN, INT16_MAX},
    {"int32", INTEGER, 4, INT32_MIN, INT32_MAX},
    {"int64", INTEGER, 8, INT64_MIN, INT64_MAX},
    {"float16", HALF, 2, 0, 0},
    {"bfloat16", BFLOAT, 2, 0, 0},
    {"float32", SINGLE, 4, 0, 0},
    {"float64", DOUBLE, 8, 0, 0},
    {"bool", TRUTH, 1, 0, 0},
};

#define BLOCK 256 /* elements */

/* The accesses to a block are not instrumented: TSan sees the copies of whole blocks, in which a
 * race shows as well. */
#define PLAIN __attribute__((no_sanitize("thread")))

/* For each element of a block. */
#define EACH(statement)                                                                            \
    for (size_t k = 0; k < n; k++) {                                                               \
        statement;                                                                                 \
    }

union raw { /* a block as its type stores it */
    uint8_t u8[BLOCK];
    uint16_t u16[BLOCK];
    uint32_t u32[BLOCK];
    uint64_t u64[BLOCK];
};

union block { /* values, by the class of their type */
    int64_t i[BLOCK];
    float f[BLOCK];
    double d[BLOCK];
};

static const struct type *type_named(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strlen(types[i].name) == len && memcmp(types[i].name, name, len) == 0)
            return &types[i];
    return NULL;
}

/* Whether values of this type are computed as float. */
static bool is_single(const struct type *t)
{
    return t->class == SINGLE || t->class == HALF || t->class == BFLOAT;
}

/* The low bytes as the type stores them: integers wrap. */
static int64_t wrapped(const struct type *t, uint64_t bits)
{
    unsigned shift = 64 - 8 * (unsigned)t->bytes;
    return t->low < 0 ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

/* n elements as integers, with the sign of their type. */
PLAIN static void load_integers(const struct type *t, int64_t *to, const union raw *from, size_t n)
{
    switch (t->bytes) {
    case 1:
        EACH(to[k] = wrapped(t, from->u8[k]))
        break;
    case 2:
        EACH(to[k] = wrapped(t, from->u16[k]))
        break;
    case 4:
        EACH(to[k] = wrapped(t, from->u32[k]))
        break;
    default:
        EACH(to[k] = (int64_t)from->u64[k])
        break;
    }
}

PLAIN static void load(const struct type *t, union block *to, const void *at, size_t n)
{
    union raw raw;
    memcpy(&raw, at, n * t->bytes);
    switch (t->class) {
    case INTEGER:
        load_integers(t, to->i, &raw, n);
        break;
    case TRUTH:
        EACH(to->i[k] = raw.u8[k] != 0)
        break;
    case DOUBLE:
    case SINGLE:
        memcpy(to, &raw, n * t->bytes);
        break;
    case HALF:
        EACH(to->f[k] = half_to_float(raw.u16[k]))
        break;
    case BFLOAT:
        EACH(to->f[k] = bfloat_to_float(raw.u16[k]))
        break;
    }
}

PLAIN static void store_integers(const struct type *t, union raw *to, const int64_t *from, size_t n)
{
    switch (t->bytes) {
    case 1:
        EACH(to->u8[k] = (uint8_t)from[k])
        break;
    case 2:
        EACH(to->u16[k] = (uint16_t)from[k])
        break;
    case 4:
        EACH(to->u32[k] = (uint32_t)from[k])
        break;
    default:
        EACH(to->u64[k] = (uint64_t)from[k])
        break;
    }
}

PLAIN static void store(const struct type *t, void *at, const union block *from, size_t n)
{
    union raw raw;
    switch (t->class) {
    case INTEGER:
    case TRUTH:
        store_integers(t, &raw, from->i, n);
        break;
    case DOUBLE:
    case SINGLE:
        memcpy(&raw, from, n * t->bytes);
        break;
    case HALF:
        EACH(raw.u16[k] = half_from_float(from->f[k]))
        break;
    case BFLOAT:
        EACH(raw.u16[k] = bfloat_from_float(from->f[k]))
        break;
    }
    memcpy(at, &raw, n * t->bytes);
}

/* Saturates; a NaN becomes 0. */
static int64_t scaled(const struct type *t, int64_t i, double factor)
{
    double y = (double)i * factor;
    if (isnan(y))
        return 0;
    if (y <= (double)t->low)
        return t->low;
    return y >= (double)t->high ? t->high : (int64_t)y;
}

PLAIN static void scale(const struct type *t, union block *x, size_t n, double factor)
{
    float single = (float)factor;
    if (is_single(t))
        EACH(x->f[k] *= single)
    else if (t->class == DOUBLE)
        EACH(x->d[k] *= factor)
    else
        EACH(x->i[k] = scaled(t, x->i[k], factor))
}

PLAIN static void divide(const struct type *t, union block *x, size_t n, int64_t divisor)
{
    float single = (float)divisor;
    if (is_single(t))
        EACH(x->f[k] /= single)
    else if (t->class == DOUBLE)
        EACH(x->d[k] /= (double)divisor)
    else
        EACH(x->i[k] /= divisor)
}

static void begin(const struct type *t, union block *x, size_t n, const struct kernel_change *c)
{
    if (c->flags & KERNEL_PRESCALE)
        scale(t, x, n, c->prescale);
}

static void end(const struct type *t, union block *x, size_t n, const struct kernel_change *c)
{
    if (c->flags & KERNEL_DIVIDE)
        divide(t, x, n, c->divisor);
    if (c->flags & KERNEL_POSTSCALE)
        scale(t, x, n, c->postscale);
}

/* ---- moving ---- */

PLAIN static void wrap(const struct type *t, int64_t *x, size_t n)
{
    EACH(x[k] = wrapped(t, (uint64_t)x[k]))
}

static void move_block(const struct type *from, const struct type *to, const uint8_t *src,
                       uint8_t *dst, size_t n, const struct kernel_change *change)
{
    union block x;
    const struct type *in = from;
    load(from, &x, src, n);
    if (from->class == INTEGER && to->bytes < from->bytes) {
        wrap(to, x.i, n);
        in = to;
    }
    begin(in, &x, n, change);
    end(in, &x, n, change);
    store(to, dst, &x, n);
}

static bool move_chunk(const struct type *from, const struct type *to, const struct kernel_move *m,
                       uint32_t chunk)
{
    uint32_t p = m->pieces - 1;
    while (p > 0 && m->first[p] > chunk)
        p--;
    uint64_t at = (uint64_t)(chunk - m->first[p]) * m->chunk;
    size_t a = from ? from->bytes : 1, b = to ? to->bytes : 1;
    if (at >= m->count[p] || chunk < m->first[p])
        return false; /* an invalid table */
    uint64_t n = m->count[p] - at < m->chunk ? m->count[p] - at : m->chunk;
    const uint8_t *src = (const uint8_t *)m->from[p] + at * a;
    uint8_t *dst = (uint8_t *)m->to[p] + at * b;
    if (!fake_mapped(src, n * a) || !fake_mapped(dst, n * b))
        return false;
    if (!from) {
        memmove(dst, src, n);
        return true;
    }
    for (uint64_t i = 0; i < n; i += BLOCK)
        move_block(from, to, src + i * a, dst + i * b, n - i < BLOCK ? n - i : BLOCK, &m->change);
    return true;
}

/* "bytes", "TYPE" or "TYPE_TYPE". */
static bool move_types(const char *name, const struct type **from, const struct type **to)
{
    size_t len = strcspn(name, "_");
    *from = *to = NULL;
    if (strcmp(name, "bytes") == 0)
        return true;
    *from = *to = type_named(name, len);
    if (name[len] == '_')
        *to = type_named(name + len + 1, strlen(name + len + 1));
    return *from && *to;
}

static bool move(const char *name, const void *parameters)
{
    const struct kernel_move *m = parameters;
    const struct type *from, *to;
    bool good = move_types(name + strlen("hvd_move_"), &from, &to);
    for (uint32_t chunk = 0; chunk < m->chunks && good; chunk++)
        good = move_chunk(from, to, m, chunk);
    return good;
}

fake_kernel_f *fake_kernel(const char *name, size_t *ret_size)
{
    const struct type *from, *to;
    if (strncmp(name, "hvd_move_", 9) == 0 && move_types(name + 9, &from, &to)) {
        *ret_size = sizeof(struct kernel_move);
        return move;
    }
    return NULL;
}

size_t fake_kernel_bytes(const char *name, const void *parameters)
{
    const struct kernel_move *m = parameters;
    const struct type *from = NULL, *to = NULL;
    uint64_t count = 0;
    move_types(name + 9, &from, &to);
    for (uint32_t p = 0; p < m->pieces; p++)
        count += m->count[p];
    return (size_t)count * ((from ? from->bytes : 1) + (to ? to->bytes : 1)) / 2;
}
