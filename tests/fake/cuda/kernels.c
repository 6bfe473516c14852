/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels: the kernels of hvd_kernels.cu for the host, one element after the other, as kernels.h
 * and reduce.h specify them. Types are data here, not templates.
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

/* A value, by the class of its type. */
struct number {
    int64_t i;
    float f;
    double d;
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

/* Little-endian. Sizes are constants for memcpy(), which a sanitizer would else call for each
 * element. */
static uint64_t bits_of(const void *at, size_t bytes)
{
    uint64_t bits = 0;
    switch (bytes) {
    case 1:
        memcpy(&bits, at, 1);
        break;
    case 2:
        memcpy(&bits, at, 2);
        break;
    case 4:
        memcpy(&bits, at, 4);
        break;
    default:
        memcpy(&bits, at, 8);
        break;
    }
    return bits;
}

static void put_bits(void *at, uint64_t bits, size_t bytes)
{
    switch (bytes) {
    case 1:
        memcpy(at, &bits, 1);
        break;
    case 2:
        memcpy(at, &bits, 2);
        break;
    case 4:
        memcpy(at, &bits, 4);
        break;
    default:
        memcpy(at, &bits, 8);
        break;
    }
}

static struct number load(const struct type *t, const void *at)
{
    struct number x = {0};
    uint64_t bits = bits_of(at, t->bytes);
    switch (t->class) {
    case INTEGER:
        x.i = wrapped(t, bits);
        break;
    case TRUTH:
        x.i = bits != 0;
        break;
    case DOUBLE:
        memcpy(&x.d, &bits, sizeof(x.d));
        break;
    case SINGLE:
        memcpy(&x.f, &bits, sizeof(x.f));
        break;
    case HALF:
        x.f = half_to_float((uint16_t)bits);
        break;
    case BFLOAT:
        x.f = bfloat_to_float((uint16_t)bits);
        break;
    }
    return x;
}

static void store(const struct type *t, void *at, struct number x)
{
    uint64_t bits = 0;
    switch (t->class) {
    case INTEGER:
    case TRUTH:
        bits = (uint64_t)x.i;
        break;
    case DOUBLE:
        memcpy(&bits, &x.d, sizeof(x.d));
        break;
    case SINGLE:
        memcpy(&bits, &x.f, sizeof(x.f));
        break;
    case HALF:
        bits = half_from_float(x.f);
        break;
    case BFLOAT:
        bits = bfloat_from_float(x.f);
        break;
    }
    put_bits(at, bits, t->bytes);
}

static void scale(const struct type *t, struct number *x, double factor)
{
    if (is_single(t)) {
        x->f *= (float)factor;
    } else if (t->class == DOUBLE) {
        x->d *= factor;
    } else {
        double y = (double)x->i * factor;
        if (isnan(y))
            x->i = 0;
        else if (y <= (double)t->low)
            x->i = t->low;
        else if (y >= (double)t->high)
            x->i = t->high;
        else
            x->i = (int64_t)y;
    }
}

static void divide(const struct type *t, struct number *x, int64_t divisor)
{
    if (is_single(t))
        x->f /= (float)divisor;
    else if (t->class == DOUBLE)
        x->d /= (double)divisor;
    else
        x->i /= divisor;
}

static void begin(const struct type *t, struct number *x, const struct kernel_change *c)
{
    if (c->flags & KERNEL_PRESCALE)
        scale(t, x, c->prescale);
}

static void end(const struct type *t, struct number *x, const struct kernel_change *c)
{
    if (c->flags & KERNEL_DIVIDE)
        divide(t, x, c->divisor);
    if (c->flags & KERNEL_POSTSCALE)
        scale(t, x, c->postscale);
}

/* ---- moving ---- */

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
    for (uint64_t i = 0; i < n; i++) {
        struct number x = load(from, src + i * a);
        const struct type *in = from;
        if (from->class == INTEGER && b < a) {
            x.i = wrapped(to, (uint64_t)x.i);
            in = to;
        }
        begin(in, &x, &m->change);
        end(in, &x, &m->change);
        store(to, dst + i * b, x);
    }
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

/* ---- combining ---- */

static int64_t two_integers(const struct type *t, int64_t a, int64_t b, uint32_t op)
{
    if (t->class == TRUTH)
        return op == KERNEL_SUM || op == KERNEL_MAX ? a || b : a && b;
    switch (op) {
    case KERNEL_SUM:
        return wrapped(t, (uint64_t)a + (uint64_t)b);
    case KERNEL_MIN:
        return a < b ? a : b;
    case KERNEL_MAX:
        return a > b ? a : b;
    default:
        return wrapped(t, (uint64_t)a * (uint64_t)b);
    }
}

static float two_floats(float a, float b, uint32_t op)
{
    switch (op) {
    case KERNEL_SUM:
        return a + b;
    case KERNEL_MIN:
        return isnan(a) || a < b ? a : b;
    case KERNEL_MAX:
        return isnan(a) || a > b ? a : b;
    default:
        return a * b;
    }
}

static double two_doubles(double a, double b, uint32_t op)
{
    switch (op) {
    case KERNEL_SUM:
        return a + b;
    case KERNEL_MIN:
        return isnan(a) || a < b ? a : b;
    case KERNEL_MAX:
        return isnan(a) || a > b ? a : b;
    default:
        return a * b;
    }
}

static bool combine(const char *name, const void *parameters)
{
    const struct kernel_combine *m = parameters;
    const struct type *t = type_named(name + strlen("hvd_combine_"), strlen(name) - 12);
    size_t bytes = m->count * t->bytes;
    bool good = fake_mapped(m->to, bytes);
    for (uint32_t s = 0; s < m->sources; s++)
        good = good && fake_mapped(m->from[s], bytes);
    for (uint64_t i = 0; i < m->count && good; i++) {
        struct number x = load(t, (const uint8_t *)m->from[0] + i * t->bytes), y;
        begin(t, &x, &m->change);
        for (uint32_t s = 1; s < m->sources; s++) {
            y = load(t, (const uint8_t *)m->from[s] + i * t->bytes);
            begin(t, &y, &m->change);
            x.i = two_integers(t, x.i, y.i, m->op);
            x.f = two_floats(x.f, y.f, m->op);
            x.d = two_doubles(x.d, y.d, m->op);
        }
        end(t, &x, &m->change);
        store(t, (uint8_t *)m->to + i * t->bytes, x);
    }
    return good;
}

fake_kernel_f *fake_kernel(const char *name, size_t *ret_size)
{
    const struct type *from, *to;
    if (strncmp(name, "hvd_move_", 9) == 0 && move_types(name + 9, &from, &to)) {
        *ret_size = sizeof(struct kernel_move);
        return move;
    }
    if (strncmp(name, "hvd_combine_", 12) == 0 && type_named(name + 12, strlen(name + 12))) {
        *ret_size = sizeof(struct kernel_combine);
        return combine;
    }
    return NULL;
}
