/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: see launch.h.
 */
#include "core/engine/launch.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/engine.h"

void launch_fill_op(struct engine *e, const struct signature *sig)
{
    e->batches.op = (struct coll_op){
        .kind = (enum hvd_kind)sig->kind,
        .dtype = (enum hvd_dtype)sig->dtype,
        .op = (enum hvd_op)sig->op,
        .prescale = sig->prescale,
        .postscale = sig->postscale,
        .contributors = e->size,
        .root = sig->root,
        .tensors = e->batches.tensors,
        .n = 1,
    };
}

static bool fusable(const struct slot *a, const struct slot *b)
{
    const struct signature *x = &a->facts.sig, *y = &b->facts.sig;
    return x->kind == HVD_ALLREDUCE && y->kind == HVD_ALLREDUCE && x->dtype == y->dtype &&
           x->op == y->op && x->prescale == y->prescale && x->postscale == y->postscale;
}

static int fuse(struct engine *e, const struct batch *batch)
{
    struct batches *b = &e->batches;
    size_t n = 1, left = batch->n - batch->at;
    struct slot *const *slots = batch->slots + batch->at;
    while (n < left && fusable(slots[0], slots[n]))
        n++;
    if (n > b->tensors_cap) {
        struct coll_tensor *grown = realloc(b->tensors, 2 * n * sizeof(*grown));
        if (!grown)
            return err_set(&e->trouble, ENOMEM, "no memory to fuse %zu tensors", n);
        counter_add(&e->counters.allocations, 1);
        b->tensors = grown;
        b->tensors_cap = 2 * n;
        b->op.tensors = grown;
    }
    for (size_t i = 0; i < n; i++)
        b->tensors[i] = (struct coll_tensor){
            .in = slots[i]->in, .out = slots[i]->out, .count = slots[i]->facts.count};
    b->op.n = b->op_n = n;
    return 0;
}

/* Rows from each rank become elements; the output is allocated. What the ranks said was
 * compared by negotiation, but its sum may still be too large. */
static int allocate_result(struct engine *e, struct slot *s)
{
    struct batches *b = &e->batches;
    size_t total = 0, bytes = 0;
    s->result_rows = 0;
    for (int r = 0; r < e->size; r++) {
        size_t count;
        if (s->rows[r] < 0 || __builtin_mul_overflow((size_t)s->rows[r], s->facts.inner, &count) ||
            __builtin_add_overflow(total, count, &total) ||
            __builtin_add_overflow(s->result_rows, s->rows[r], &s->result_rows))
            return err_set(&e->trouble, EOVERFLOW, "%s: the result is too large", s->name);
        b->recv_counts[r] = count;
    }
    if (__builtin_mul_overflow(total, hvd_dtype_size(b->op.dtype), &bytes))
        return err_set(&e->trouble, EOVERFLOW, "%s: the result is too large", s->name);
    free(s->result);
    s->result = bytes ? malloc(bytes) : NULL;
    if (bytes && !s->result)
        return err_set(&e->trouble, ENOMEM, "%s: no memory for a result of %zu bytes", s->name,
                       bytes);
    counter_add(&e->counters.allocations, 1);
    b->tensors[0].out = s->result;
    b->op.recv_counts = b->recv_counts;
    return 0;
}

static int set_counts(struct engine *e, struct slot *s)
{
    struct batches *b = &e->batches;
    switch (b->op.kind) {
    case HVD_ALLTOALL:
        for (int r = 0; r < e->size; r++)
            b->send_counts[r] = (size_t)s->splits[r] * s->facts.inner;
        b->op.send_counts = b->send_counts;
        return allocate_result(e, s);
    case HVD_ALLGATHER:
        return allocate_result(e, s);
    case HVD_REDUCESCATTER:
        for (int r = 0; r < e->size; r++)
            b->recv_counts[r] =
                (size_t)request_rows(s->facts.sig.shape[0], r, e->size) * s->facts.inner;
        b->op.recv_counts = b->recv_counts;
        return 0;
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
    case HVD_BARRIER:
    case HVD_KINDS:
        break;
    }
    return 0;
}

int launch_prepare(struct engine *e, struct batch *batch)
{
    struct batches *b = &e->batches;
    struct slot *s = batch->slots[batch->at];
    launch_fill_op(e, &s->facts.sig);
    if (b->op.kind == HVD_ALLREDUCE)
        return fuse(e, batch);
    b->tensors[0] = (struct coll_tensor){.in = s->in, .out = s->out, .count = s->facts.count};
    b->op_n = 1;
    return set_counts(e, s);
}
