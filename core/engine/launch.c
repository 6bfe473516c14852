/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: see launch.h.
 */
#include "core/engine/launch.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/engine.h"
#include "core/negotiate/signature.h"

int launch_init(struct launch *l, struct err *err)
{
    l->tensors_cap = 64;
    l->tensors = calloc(l->tensors_cap, sizeof(*l->tensors));
    l->ready = calloc(l->tensors_cap, sizeof(*l->ready));
    return l->tensors && l->ready ? 0 : err_set(err, ENOMEM, "no memory for operations");
}

int launch_resize(struct launch *l, int size, struct err *err)
{
    free(l->send_counts);
    free(l->recv_counts);
    l->send_counts = calloc((size_t)size, sizeof(*l->send_counts));
    l->recv_counts = calloc((size_t)size, sizeof(*l->recv_counts));
    return l->send_counts && l->recv_counts
               ? 0
               : err_set(err, ENOMEM, "no memory for operations of %d ranks", size);
}

void launch_fini(struct launch *l)
{
    free(l->tensors);
    free(l->ready);
    free(l->send_counts);
    free(l->recv_counts);
    free(l->rows);
    launch_adasum_fini(&l->adasum);
    free(l->scratch);
    launch_gpu_fini(&l->gpu);
    *l = (struct launch){.scratch_cap = 0};
}

void launch_fill_op(struct circle *c, struct launch *l, const struct signature *sig)
{
    l->op = (struct coll_op){
        .kind = (enum hvd_kind)sig->kind,
        .dtype = (enum hvd_dtype)sig->dtype,
        .op = (enum hvd_op)sig->op,
        .prescale = sig->prescale,
        .postscale = sig->postscale,
        .contributors = c->size,
        .device = -1,
        .root = launch_root(c, sig),
        .tensors = l->tensors,
        .n = 1,
    };
}

int launch_root(const struct circle *c, const struct signature *sig)
{
    return signature_needs_root(sig) ? circle_map_of(c, sig)->to_mesh[sig->root] : 0;
}

/* Rows of an alltoall for a rank of the mesh. */
static int64_t rows_for(const struct world_map *map, const struct slot *s, int r)
{
    int at = map->to_world[r]; /* -1: a joiner that the user's world does not have yet */
    return at < 0 ? 0 : s->splits[at];
}

int launch_counts(struct circle *c, struct launch *l, const struct slot *s)
{
    struct engine *e = c->engine;
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    size_t n = (size_t)c->size;
    if (n > l->rows_cap) {
        int64_t *rows = calloc(2 * n, sizeof(*rows));
        if (!rows)
            return err_set(&e->trouble, ENOMEM, "%s: no memory for the counts of %zu ranks",
                           s->name, n);
        counter_add(&e->counters.allocations, 1);
        free(l->rows);
        l->rows = rows;
        l->rows_cap = n;
    }
    launch_fill_op(c, l, &s->facts.sig);
    l->op.dtype = HVD_INT64;
    l->op.send_counts = l->send_counts;
    l->op.recv_counts = l->recv_counts;
    for (int r = 0; r < c->size; r++) {
        l->rows[r] = rows_for(map, s, r);
        l->send_counts[r] = l->recv_counts[r] = 1;
    }
    l->tensors[0] = (struct coll_tensor){.in = l->rows, .out = l->rows + l->rows_cap, .count = n};
    return 0;
}

void launch_take_counts(struct circle *c, struct launch *l, struct slot *s)
{
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    if (!map->same)
        memset(s->rows, 0, s->rows_cap * sizeof(*s->rows));
    for (int r = 0; r < c->size; r++)
        if (map->to_world[r] >= 0)
            s->rows[map->to_world[r]] = l->rows[l->rows_cap + (size_t)r];
}

/* Room for n tensors of one operation. */
static int make_room(struct engine *e, struct launch *l, size_t n)
{
    if (n <= l->tensors_cap)
        return 0;
    struct coll_tensor *tensors = realloc(l->tensors, 2 * n * sizeof(*tensors));
    if (tensors)
        l->tensors = tensors;
    void **ready = tensors ? realloc(l->ready, 2 * n * sizeof(*ready)) : NULL;
    if (!ready)
        return err_set(&e->trouble, ENOMEM, "no memory to fuse %zu tensors", n);
    counter_add(&e->counters.allocations, 2);
    l->ready = ready;
    l->tensors_cap = 2 * n;
    return 0;
}

static int fuse(struct engine *e, struct launch *l, const struct batch *batch)
{
    int rc = make_room(e, l, batch->n);
    l->op.tensors = l->tensors;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < batch->n; i++) {
        const struct slot *s = batch->slots[i];
        l->tensors[i] = (struct coll_tensor){.in = s->in, .out = s->out, .count = s->facts.count};
        l->ready[i] = s->ready;
    }
    l->op.ready = l->op.device < 0 ? NULL : l->ready;
    l->op.n = batch->n;
    return 0;
}

/* Converts rows per rank into elements per rank. The result goes to the user's output if it fits;
 * otherwise it is allocated. Negotiation has compared the ranks' numbers, but their sum may still
 * overflow. */
static int place_result(struct circle *c, struct launch *l, struct slot *s)
{
    struct engine *e = c->engine;
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    size_t total = 0, bytes = 0;
    s->result_rows = 0;
    for (int r = 0; r < c->size; r++) {
        size_t count;
        int at = map->to_world[r];
        int64_t rows = at < 0 ? 0 : s->rows[at];
        if (rows < 0 || __builtin_mul_overflow((size_t)rows, s->facts.inner, &count) ||
            __builtin_add_overflow(total, count, &total) ||
            __builtin_add_overflow(s->result_rows, rows, &s->result_rows))
            return err_set(&e->trouble, EOVERFLOW, "%s: the result is too large", s->name);
        l->recv_counts[r] = count;
    }
    if (__builtin_mul_overflow(total, hvd_dtype_size(l->op.dtype), &bytes))
        return err_set(&e->trouble, EOVERFLOW, "%s: the result is too large", s->name);
    l->op.recv_counts = l->recv_counts;
    bool fits = s->out && total <= s->facts.out_count;
    if (queue_make_result(e->queue, s, fits ? 0 : bytes, &e->trouble) < 0)
        return err_prefix(&e->trouble, "%s", s->name);
    if (fits)
        return 0;
    counter_add(&e->counters.allocations, 1);
    l->tensors[0].out = s->result;
    return 0;
}

/* Scratch memory on the device of the operation's tensors. NULL: e->trouble is set. */
static uint8_t *scratch(struct circle *c, struct launch *l, const struct slot *s, size_t bytes)
{
    if (s->device >= 0)
        return launch_gpu_scratch(c, &l->gpu, s, bytes);
    if (bytes <= l->scratch_cap)
        return l->scratch;
    free(l->scratch);
    l->scratch = malloc(bytes);
    l->scratch_cap = l->scratch ? bytes : 0;
    if (!l->scratch)
        err_set(&c->engine->trouble, ENOMEM, "%s: no memory for %zu bytes of scratch memory",
                s->name, bytes);
    return l->scratch;
}

/* The input has rows for lost ranks between those for survivors. Copies the survivors' rows
 * together. */
static int pack_alltoall(struct circle *c, struct launch *l, struct slot *s)
{
    struct engine *e = c->engine;
    size_t row = s->facts.inner * hvd_dtype_size(l->op.dtype), at = 0, count = 0;
    const uint8_t *in = s->in;
    uint8_t *packed = scratch(c, l, s, s->facts.count * hvd_dtype_size(l->op.dtype) + 1);
    if (!packed)
        return e->trouble.code;
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    for (int r = 0; r < map->size; r++) {
        size_t bytes = (size_t)s->splits[r] * row;
        if (map->to_mesh[r] >= 0 && bytes > 0) {
            int rc = s->device < 0 ? 0 : launch_gpu_pack(c, &l->gpu, s, packed + at, in, bytes);
            if (rc < 0)
                return rc;
            if (s->device < 0)
                memcpy(packed + at, in, bytes);
            at += bytes;
            count += (size_t)s->splits[r] * s->facts.inner;
        }
        in += bytes;
    }
    l->tensors[0].in = packed;
    l->tensors[0].count = count;
    if (s->device < 0)
        return 0;
    int rc = launch_gpu_packed(c, &l->gpu, s);
    l->ready[0] = l->gpu.packed;
    return rc;
}

/* No rank receives the rows of lost ranks. Every rank allreduces the whole tensor and takes its own
 * rows. */
static int replace_reducescatter(struct circle *c, struct launch *l, struct slot *s)
{
    struct engine *e = c->engine;
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    size_t elem = hvd_dtype_size(l->op.dtype), before = 0;
    uint8_t *sums = scratch(c, l, s, s->facts.count * elem + 1);
    if (!sums)
        return e->trouble.code;
    for (int r = 0; r < map->rank; r++)
        before += (size_t)request_rows(s->facts.sig.shape[0], r, map->size) * s->facts.inner;
    l->op.kind = HVD_ALLREDUCE;
    l->tensors[0].out = sums;
    l->pending_copy =
        (struct pending_copy){s->device, s->out, sums + before * elem, s->facts.out_count * elem};
    return 0;
}

void launch_finish(struct circle *c, struct launch *l)
{
    struct pending_copy *a = &l->pending_copy;
    if (a->bytes > 0 && a->device >= 0)
        launch_gpu_copy(c, &l->gpu, a->device, a->to, a->from, a->bytes);
    else if (a->bytes > 0)
        memcpy(a->to, a->from, a->bytes);
    *a = (struct pending_copy){0};
}

static int set_counts(struct circle *c, struct launch *l, struct slot *s)
{
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    switch (l->op.kind) {
    case HVD_ALLTOALL:
        for (int r = 0; r < c->size; r++)
            l->send_counts[r] = (size_t)rows_for(map, s, r) * s->facts.inner;
        l->op.send_counts = l->send_counts;
        if (!map->same) {
            int rc = pack_alltoall(c, l, s);
            if (rc < 0)
                return rc;
        }
        return place_result(c, l, s);
    case HVD_ALLGATHER:
        return place_result(c, l, s);
    case HVD_REDUCESCATTER:
        if (!map->same)
            return replace_reducescatter(c, l, s);
        for (int r = 0; r < c->size; r++)
            l->recv_counts[r] =
                (size_t)request_rows(s->facts.sig.shape[0], r, c->size) * s->facts.inner;
        l->op.recv_counts = l->recv_counts;
        return 0;
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
    case HVD_BARRIER:
    case HVD_REDUCE:
    case HVD_GATHER:
    case HVD_SCATTER:
    case HVD_KINDS:
        break;
    }
    return 0;
}

int launch_prepare(struct circle *c, struct launch *l, struct batch *batch)
{
    struct slot *s = batch->slots[0];
    launch_fill_op(c, l, &s->facts.sig);
    l->op.device = s->device;
    if (l->op.kind == HVD_ALLREDUCE)
        return fuse(c->engine, l, batch);
    l->tensors[0] = (struct coll_tensor){.in = s->in, .out = s->out, .count = s->facts.count};
    l->ready[0] = s->ready;
    l->op.ready = s->device < 0 ? NULL : l->ready;
    return set_counts(c, l, s);
}
