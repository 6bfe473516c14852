/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_adasum: see launch_adasum.h.
 */
#include "core/engine/launch_adasum.h"

#include <stdlib.h>
#include <string.h>

#include "core/coll/adasum.h"
#include "core/coll/half.h"
#include "core/coll/reduce.h"
#include "core/engine/engine.h"

void launch_adasum_fini(struct launch_adasum *a)
{
    free(a->parts.at);
    free(a->mean.at);
    free(a->values.at);
    free(a->whole.at);
    free(a->dots);
    free(a->pairs);
    free(a->sources);
    *a = (struct launch_adasum){.ranks = 0};
}

static bool by_host(const struct slot *s)
{
    return s->facts.sig.by_host;
}

static enum hvd_dtype dtype_of(const struct slot *s)
{
    return (enum hvd_dtype)s->facts.sig.dtype;
}

static bool is_wide(const struct slot *s)
{
    return dtype_of(s) == HVD_FLOAT64;
}

static bool is_half(const struct slot *s)
{
    return dtype_of(s) == HVD_FLOAT16 || dtype_of(s) == HVD_BFLOAT16;
}

/* ---- vectors, and which rank has which elements of them -------------------------------------- */

static int vectors(const struct circle *c, const struct slot *s)
{
    return by_host(s) ? c->mesh->hosts : c->size;
}

/* The vector to which a rank's tensor belongs. */
static int vector_of(const struct circle *c, const struct slot *s, int rank)
{
    return by_host(s) ? c->mesh->host_of[rank] : rank;
}

struct range {
    size_t at, n; /* elements of a tensor */
};

static struct range share(const struct slot *s, int i, int n)
{
    size_t each = s->facts.count / (size_t)n, more = s->facts.count % (size_t)n, k = (size_t)i;
    return (struct range){k * each + (k < more ? k : more), each + (k < more)};
}

static size_t common(struct range a, struct range b)
{
    size_t at = a.at > b.at ? a.at : b.at;
    size_t end_a = a.at + a.n, end_b = b.at + b.n, end = end_a < end_b ? end_a : end_b;
    return end > at ? end - at : 0;
}

/* The part of every vector that a rank combines. */
static struct range part_of(const struct circle *c, const struct slot *s, int rank)
{
    return share(s, rank, c->size);
}

/* The elements of its vector that a rank has before the ranks exchange their parts. */
static struct range piece_of(const struct circle *c, const struct slot *s, int rank)
{
    const struct mesh *m = c->mesh;
    return by_host(s) ? share(s, m->local_of[rank], m->local_size_of[m->host_of[rank]])
                      : (struct range){0, s->facts.count};
}

/* ---- memory --------------------------------------------------------------------------------- */

static int reserve(struct engine *e, struct adasum_memory *m, size_t bytes)
{
    if (bytes <= m->size)
        return 0;
    free(m->at);
    m->at = malloc(bytes);
    m->size = m->at ? bytes : 0;
    counter_add(&e->counters.allocations, 1);
    return m->at ? 0 : err_set(&e->trouble, ENOMEM, "no memory for an adasum of %zu bytes", bytes);
}

static int reserve_ranks(struct engine *e, struct launch_adasum *a, int n)
{
    size_t ranks = (size_t)n;
    if (n <= a->ranks)
        return 0;
    free(a->dots);
    free(a->pairs);
    free(a->sources);
    a->dots = calloc(3 * ranks, sizeof(*a->dots));
    a->pairs = calloc(ranks, sizeof(*a->pairs));
    a->sources = calloc(ranks, sizeof(*a->sources));
    a->ranks = a->dots && a->pairs && a->sources ? n : 0;
    counter_add(&e->counters.allocations, 3);
    return a->ranks ? 0 : err_set(&e->trouble, ENOMEM, "no memory for an adasum of %d ranks", n);
}

/* An elastic job may have to run all steps again: then the input must still be there. */
static bool keeps_input(const struct circle *c, const struct slot *s)
{
    return c->engine->boot.elastic && s->in == s->out && s->facts.count > 0;
}

/* Whether the parts have to be converted, or put in the order of the vectors. */
static bool has_values(const struct slot *s)
{
    return is_half(s) || by_host(s);
}

static int make_room(struct circle *c, struct launch_adasum *a, const struct slot *s)
{
    struct engine *e = c->engine;
    size_t elem = hvd_dtype_size(dtype_of(s)), piece = piece_of(c, s, c->rank).n;
    size_t n = part_of(c, s, c->rank).n * (size_t)vectors(c, s);
    size_t tensors = by_host(s) ? piece * (size_t)c->mesh->local_size : 0;
    int rc = reserve_ranks(e, a, c->size);
    if (rc == 0)
        rc = reserve(e, &a->parts, (n > tensors ? n : tensors) * elem + 1);
    if (rc == 0 && by_host(s))
        rc = reserve(e, &a->mean, piece * elem + 1);
    if (rc == 0 && has_values(s))
        rc = reserve(e, &a->values, n * (is_wide(s) ? sizeof(double) : sizeof(float)) + 1);
    if (rc == 0 && keeps_input(c, s) && s->device < 0)
        rc = reserve(e, &a->whole, s->facts.count * elem);
    return rc;
}

/* ---- types ---------------------------------------------------------------------------------- */

/* Where the vectors are that are combined. */
static uint8_t *values_of(const struct launch_adasum *a, const struct slot *s)
{
    return has_values(s) ? a->values.at : a->parts.at;
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

/* Copies n elements of the parts, from element `from` on, to element `to` of the values. */
static void to_values(const struct slot *s, struct launch_adasum *a, size_t from, size_t to,
                      size_t n)
{
    size_t elem = hvd_dtype_size(dtype_of(s));
    if (!is_half(s)) {
        memcpy(a->values.at + to * elem, a->parts.at + from * elem, n * elem);
        return;
    }
    const uint16_t *half = (const uint16_t *)(const void *)a->parts.at + from;
    float *f = (float *)(void *)a->values.at + to;
    for (size_t i = 0; i < n; i++)
        f[i] = dtype_of(s) == HVD_FLOAT16 ? half_to_float(half[i]) : bfloat_to_float(half[i]);
}

/* The first vector is the result. Returns it in the tensor's type. */
static const uint8_t *from_values(const struct slot *s, struct launch_adasum *a, size_t n)
{
    uint16_t *half = (uint16_t *)(void *)a->parts.at;
    const float *f = (const float *)(const void *)a->values.at;
    scale_by(s, values_of(a, s), n, s->facts.sig.postscale);
    if (!is_half(s))
        return values_of(a, s);
    for (size_t i = 0; i < n; i++)
        half[i] = dtype_of(s) == HVD_FLOAT16 ? half_from_float(f[i]) : bfloat_from_float(f[i]);
    return a->parts.at;
}

/* This rank's part of a vector. */
static uint8_t *vector(const struct circle *c, const struct launch_adasum *a, const struct slot *s,
                       int number)
{
    size_t bytes = part_of(c, s, c->rank).n * (is_wide(s) ? sizeof(double) : sizeof(float));
    return values_of(a, s) + (size_t)number * bytes;
}

/* ---- the operations ------------------------------------------------------------------------- */

/* The operation reads the slot's input, or writes its output, where that is. */
static void on_device_of(struct launch *l, const struct slot *s)
{
    l->op.device = s->device;
    l->ready[0] = s->ready;
    l->op.ready = s->device < 0 ? NULL : l->ready;
}

static void exchange(struct launch *l, const void *in, size_t count)
{
    l->op.kind = HVD_ALLTOALL;
    l->op.out_host = true;
    l->op.send_counts = l->send_counts;
    l->op.recv_counts = l->recv_counts;
    l->tensors[0] = (struct coll_tensor){.in = in, .out = l->adasum.parts.at, .count = count};
}

static void average(struct circle *c, struct launch *l, const struct slot *s)
{
    const struct mesh *m = c->mesh;
    for (int r = 0; r < c->size; r++) {
        bool here = m->host_of[r] == m->host;
        l->send_counts[r] = here ? piece_of(c, s, r).n : 0;
        l->recv_counts[r] = here ? piece_of(c, s, c->rank).n : 0;
    }
    exchange(l, s->in, s->facts.count);
    on_device_of(l, s);
}

static void take_average(struct circle *c, struct launch_adasum *a, const struct slot *s)
{
    int ranks = c->mesh->local_size;
    size_t n = piece_of(c, s, c->rank).n, elem = hvd_dtype_size(dtype_of(s));
    const struct reduce_plan plan = {
        .dtype = dtype_of(s), .op = HVD_SUM, .prescale = 1, .divisor = ranks, .postscale = 1};
    for (int i = 0; i < ranks; i++)
        a->sources[i] = a->parts.at + (size_t)i * n * elem;
    reduce(&plan, a->mean.at, a->sources, ranks, n, NULL, true, false);
}

static void scatter(struct circle *c, struct launch *l, const struct slot *s)
{
    struct range piece = piece_of(c, s, c->rank), part = part_of(c, s, c->rank);
    for (int r = 0; r < c->size; r++) {
        l->send_counts[r] = common(piece, part_of(c, s, r));
        l->recv_counts[r] = common(piece_of(c, s, r), part);
    }
    exchange(l, by_host(s) ? l->adasum.mean.at : s->in, piece.n);
    if (!by_host(s))
        on_device_of(l, s);
}

static void take_parts(struct circle *c, struct launch_adasum *a, const struct slot *s)
{
    struct range part = part_of(c, s, c->rank);
    size_t from = 0;
    for (int r = 0; r < c->size && has_values(s); r++) {
        struct range piece = piece_of(c, s, r);
        size_t n = common(piece, part), before = piece.at > part.at ? piece.at - part.at : 0;
        if (n > 0)
            to_values(s, a, from, (size_t)vector_of(c, s, r) * part.n + before, n);
        from += n;
    }
    scale_by(s, values_of(a, s), part.n * (size_t)vectors(c, s), s->facts.sig.prescale);
}

static void sum_dots(struct circle *c, struct launch *l, const struct slot *s, int level)
{
    struct launch_adasum *a = &l->adasum;
    size_t n = part_of(c, s, c->rank).n;
    a->npairs = adasum_pairs(vectors(c, s), level, a->pairs);
    for (int i = 0; i < a->npairs; i++)
        adasum_dots(is_wide(s), vector(c, a, s, a->pairs[i].into),
                    vector(c, a, s, a->pairs[i].from), n, &a->dots[3 * (size_t)i]);
    l->op.kind = HVD_ALLREDUCE;
    l->op.dtype = HVD_FLOAT64;
    l->op.op = HVD_SUM;
    l->tensors[0] =
        (struct coll_tensor){.in = a->dots, .out = a->dots, .count = 3 * (size_t)a->npairs};
}

static void take_dots(struct circle *c, struct launch_adasum *a, const struct slot *s)
{
    size_t n = part_of(c, s, c->rank).n;
    for (int i = 0; i < a->npairs; i++)
        adasum_combine(is_wide(s), vector(c, a, s, a->pairs[i].into),
                       vector(c, a, s, a->pairs[i].from), n, &a->dots[3 * (size_t)i]);
}

/* Memory of the whole tensor, where the output is. NULL: e->trouble is set. */
static uint8_t *whole(struct circle *c, struct launch *l, const struct slot *s, size_t bytes)
{
    return s->device < 0 ? l->adasum.whole.at : launch_gpu_scratch(c, &l->gpu, s, bytes);
}

static int gather(struct circle *c, struct launch *l, const struct slot *s)
{
    size_t n = part_of(c, s, c->rank).n, bytes = s->facts.count * hvd_dtype_size(dtype_of(s));
    uint8_t *out = keeps_input(c, s) ? whole(c, l, s, bytes) : s->out;
    if (!out && bytes > 0)
        return c->engine->trouble.code;
    for (int r = 0; r < c->size; r++)
        l->recv_counts[r] = part_of(c, s, r).n;
    l->op.kind = HVD_ALLGATHER;
    l->op.in_host = true;
    l->op.recv_counts = l->recv_counts;
    l->tensors[0] =
        (struct coll_tensor){.in = from_values(s, &l->adasum, n), .out = out, .count = n};
    on_device_of(l, s);
    if (out != s->out)
        l->pending_copy =
            (struct pending_copy){.device = s->device, .to = s->out, .from = out, .bytes = bytes};
    return 0;
}

/* ---- the row of operations ------------------------------------------------------------------- */

enum { AVERAGE, SCATTER, LEVELS };

/* The number of operation batch->steps, counted from the average on. */
static unsigned number_of(const struct batch *batch)
{
    return batch->steps + (by_host(batch->slots[0]) ? AVERAGE : SCATTER);
}

unsigned launch_adasum_steps(const struct circle *c, const struct batch *batch)
{
    const struct slot *s = batch->slots[0];
    return (by_host(s) ? 3 : 2) + (unsigned)adasum_levels(vectors(c, s));
}

int launch_adasum(struct circle *c, struct launch *l, const struct batch *batch)
{
    const struct slot *s = batch->slots[0];
    unsigned number = number_of(batch);
    launch_fill_op(c, l, &s->facts.sig);
    l->op.prescale = l->op.postscale = 1;
    if (batch->steps + 1 == launch_adasum_steps(c, batch))
        return gather(c, l, s);
    int rc = batch->steps == 0 ? make_room(c, &l->adasum, s) : 0;
    if (rc < 0)
        return rc;
    if (number == AVERAGE)
        average(c, l, s);
    else if (number == SCATTER)
        scatter(c, l, s);
    else
        sum_dots(c, l, s, (int)(number - LEVELS));
    return 0;
}

void launch_adasum_take(struct circle *c, struct launch *l, const struct batch *batch)
{
    const struct slot *s = batch->slots[0];
    unsigned number = number_of(batch);
    if (number == AVERAGE)
        take_average(c, &l->adasum, s);
    else if (number == SCATTER)
        take_parts(c, &l->adasum, s);
    else
        take_dots(c, &l->adasum, s);
}
