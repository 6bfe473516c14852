/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_adasum: see launch_adasum.h.
 */
#include "core/engine/launch_adasum.h"

#include <stdlib.h>
#include <string.h>

#include "core/coll/adasum.h"
#include "core/coll/half.h"
#include "core/engine/engine.h"

void launch_adasum_fini(struct launch_adasum *a)
{
    free(a->parts);
    free(a->values);
    free(a->whole);
    free(a->dots);
    free(a->pairs);
    *a = (struct launch_adasum){.ranks = 0};
}

unsigned launch_adasum_steps(const struct circle *c)
{
    return 2 + (unsigned)adasum_levels(c->size);
}

/* Elements of a rank's part. */
static size_t part_of(const struct circle *c, const struct slot *s, int rank)
{
    return (size_t)request_rows((int64_t)s->facts.count, rank, c->size);
}

static bool is_wide(const struct slot *s)
{
    return s->facts.sig.dtype == HVD_FLOAT64;
}

static bool is_half(const struct slot *s)
{
    return s->facts.sig.dtype == HVD_FLOAT16 || s->facts.sig.dtype == HVD_BFLOAT16;
}

/* ---- memory --------------------------------------------------------------------------------- */

static int reserve(struct engine *e, uint8_t **at, size_t *cap, size_t bytes)
{
    if (bytes <= *cap)
        return 0;
    free(*at);
    *at = malloc(bytes);
    *cap = *at ? bytes : 0;
    counter_add(&e->counters.allocations, 1);
    return *at ? 0 : err_set(&e->trouble, ENOMEM, "no memory for an adasum of %zu bytes", bytes);
}

static int reserve_ranks(struct engine *e, struct launch_adasum *a, int n)
{
    if (n <= a->ranks)
        return 0;
    free(a->dots);
    free(a->pairs);
    a->dots = calloc(3 * (size_t)n, sizeof(*a->dots));
    a->pairs = calloc((size_t)n, sizeof(*a->pairs));
    a->ranks = a->dots && a->pairs ? n : 0;
    counter_add(&e->counters.allocations, 2);
    return a->ranks ? 0 : err_set(&e->trouble, ENOMEM, "no memory for an adasum of %d ranks", n);
}

/* An elastic job may have to run all steps again: then the input must still be there. */
static bool keeps_input(const struct circle *c, const struct slot *s)
{
    return c->engine->boot.elastic && s->in == s->out;
}

static int make_room(struct circle *c, struct launch_adasum *a, const struct slot *s)
{
    struct engine *e = c->engine;
    size_t n = part_of(c, s, c->rank) * (size_t)c->size + 1;
    size_t elem = hvd_dtype_size((enum hvd_dtype)s->facts.sig.dtype);
    int rc = reserve_ranks(e, a, c->size);
    if (rc == 0)
        rc = reserve(e, &a->parts, &a->parts_cap, n * elem);
    if (rc == 0 && is_half(s))
        rc = reserve(e, &a->values, &a->values_cap, n * sizeof(float));
    if (rc == 0 && keeps_input(c, s))
        rc = reserve(e, &a->whole, &a->whole_cap, s->facts.count * elem + 1);
    return rc;
}

/* ---- types ---------------------------------------------------------------------------------- */

/* Where the vectors are that are combined: halves are converted, others stay in their place. */
static uint8_t *values_of(const struct launch_adasum *a, const struct slot *s)
{
    return is_half(s) ? a->values : a->parts;
}

static void scale_by(const struct slot *s, void *values, size_t n, double factor)
{
    float *f = values;
    double *d = values;
    for (size_t i = 0; factor != 1 && i < n; i++) {
        if (is_wide(s))
            d[i] *= factor;
        else
            f[i] = (float)(f[i] * factor);
    }
}

static void to_values(const struct slot *s, struct launch_adasum *a, size_t n)
{
    const uint16_t *half = (const uint16_t *)(const void *)a->parts;
    float *f = (float *)(void *)a->values;
    for (size_t i = 0; is_half(s) && i < n; i++)
        f[i] =
            s->facts.sig.dtype == HVD_FLOAT16 ? half_to_float(half[i]) : bfloat_to_float(half[i]);
    scale_by(s, values_of(a, s), n, s->facts.sig.prescale);
}

/* The first vector is the result. */
static void from_values(const struct slot *s, struct launch_adasum *a, size_t n)
{
    uint16_t *half = (uint16_t *)(void *)a->parts;
    const float *f = (const float *)(const void *)a->values;
    scale_by(s, values_of(a, s), n, s->facts.sig.postscale);
    for (size_t i = 0; is_half(s) && i < n; i++)
        half[i] =
            s->facts.sig.dtype == HVD_FLOAT16 ? half_from_float(f[i]) : bfloat_from_float(f[i]);
}

/* ---- the operations ------------------------------------------------------------------------- */

/* This rank's part of the vector of a rank. */
static uint8_t *vector(const struct circle *c, const struct launch_adasum *a, const struct slot *s,
                       int rank)
{
    return values_of(a, s) + (size_t)rank * part_of(c, s, c->rank) * (is_wide(s) ? 8 : 4);
}

static int scatter(struct circle *c, struct launch *l, const struct slot *s)
{
    int rc = make_room(c, &l->adasum, s);
    if (rc < 0)
        return rc;
    for (int r = 0; r < c->size; r++) {
        l->send_counts[r] = part_of(c, s, r);
        l->recv_counts[r] = part_of(c, s, c->rank);
    }
    l->op.kind = HVD_ALLTOALL;
    l->op.send_counts = l->send_counts;
    l->op.recv_counts = l->recv_counts;
    l->tensors[0] =
        (struct coll_tensor){.in = s->in, .out = l->adasum.parts, .count = s->facts.count};
    return 0;
}

static void sum_dots(struct circle *c, struct launch *l, const struct slot *s, int level)
{
    struct launch_adasum *a = &l->adasum;
    size_t n = part_of(c, s, c->rank);
    a->npairs = adasum_pairs(c->size, level, a->pairs);
    for (int i = 0; i < a->npairs; i++)
        adasum_dots(is_wide(s), vector(c, a, s, a->pairs[i].into),
                    vector(c, a, s, a->pairs[i].from), n, &a->dots[3 * (size_t)i]);
    l->op.kind = HVD_ALLREDUCE;
    l->op.dtype = HVD_FLOAT64;
    l->op.op = HVD_SUM;
    l->tensors[0] =
        (struct coll_tensor){.in = a->dots, .out = a->dots, .count = 3 * (size_t)a->npairs};
}

static void gather(struct circle *c, struct launch *l, const struct slot *s)
{
    struct launch_adasum *a = &l->adasum;
    size_t n = part_of(c, s, c->rank);
    size_t bytes = s->facts.count * hvd_dtype_size((enum hvd_dtype)s->facts.sig.dtype);
    from_values(s, a, n);
    for (int r = 0; r < c->size; r++)
        l->recv_counts[r] = part_of(c, s, r);
    l->op.kind = HVD_ALLGATHER;
    l->op.recv_counts = l->recv_counts;
    l->tensors[0] = (struct coll_tensor){.in = a->parts, .out = s->out, .count = n};
    if (!keeps_input(c, s))
        return;
    l->tensors[0].out = a->whole;
    l->pending_copy =
        (struct pending_copy){.device = -1, .to = s->out, .from = a->whole, .bytes = bytes};
}

int launch_adasum(struct circle *c, struct launch *l, const struct batch *batch)
{
    const struct slot *s = batch->slots[0];
    l->pending_copy = (struct pending_copy){0};
    launch_fill_op(c, l, &s->facts.sig);
    l->op.prescale = l->op.postscale = 1;
    if (batch->steps == 0)
        return scatter(c, l, s);
    if (batch->steps + 1 < launch_adasum_steps(c))
        sum_dots(c, l, s, (int)batch->steps - 1);
    else
        gather(c, l, s);
    return 0;
}

void launch_adasum_take(struct circle *c, struct launch *l, const struct batch *batch)
{
    struct launch_adasum *a = &l->adasum;
    const struct slot *s = batch->slots[0];
    size_t n = part_of(c, s, c->rank);
    if (batch->steps == 0) {
        to_values(s, a, n * (size_t)c->size);
        return;
    }
    for (int i = 0; i < a->npairs; i++)
        adasum_combine(is_wide(s), vector(c, a, s, a->pairs[i].into),
                       vector(c, a, s, a->pairs[i].from), n, &a->dots[3 * (size_t)i]);
}
