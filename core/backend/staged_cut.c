/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_cut: see staged.h.
 */
#include "core/backend/staged.h"

#define ALIGN ((size_t)64) /* alignment of a piece, in bytes */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Number of elements of the result. */
static size_t result_count(const struct mesh *mesh, const struct coll_op *op)
{
    size_t sum = 0;
    switch (op->kind) {
    case HVD_ALLGATHER:
    case HVD_ALLTOALL:
        for (int r = 0; r < mesh->size; r++)
            sum += op->recv_counts[r];
        return sum;
    case HVD_REDUCESCATTER:
        return op->recv_counts[mesh->rank];
    default:
        return op->tensors[0].count;
    }
}

/* The piece of an operation that is not cut: its only tensor as a whole. */
static struct staged_piece whole(const struct mesh *mesh, const struct coll_op *op)
{
    size_t elem = hvd_dtype_size(op->dtype);
    const struct coll_tensor *t = &op->tensors[0];
    struct staged_piece p = {
        .in = t->in,
        .out = t->out,
        .count = t->count,
        .in_bytes = t->count * elem,
        .out_bytes = result_count(mesh, op) * elem,
    };
    if (op->kind != HVD_BROADCAST)
        p.out_at = aligned(p.in_bytes);
    else if (mesh->rank != op->root)
        p.in_bytes = 0;
    else if (t->in == t->out || !t->out)
        p.out_bytes = 0;
    return p;
}

size_t staged_room(const struct mesh *mesh, const struct coll_op *op)
{
    if (op->kind == HVD_ALLREDUCE || op->kind == HVD_BARRIER)
        return STAGED_CHUNK;
    struct staged_piece p = whole(mesh, op);
    size_t room = p.out_at + (p.out_bytes > p.in_bytes ? p.out_bytes : p.in_bytes);
    return room > STAGED_CHUNK ? room : STAGED_CHUNK;
}

size_t staged_places(const struct coll_op *op)
{
    return op->kind == HVD_ALLREDUCE ? STAGED_PLACES : 1;
}

static void add(struct staged_chunk *c, const struct staged_piece *p)
{
    size_t in_end = p->in_at + p->in_bytes, out_end = p->out_at + p->out_bytes;
    if (c->n == 0)
        c->out_at = p->out_at;
    c->in_size = in_end > c->in_size ? in_end : c->in_size;
    c->out_end = out_end > c->out_end ? out_end : c->out_end;
    c->pieces[c->n++] = *p;
}

/* Fills a chunk of an allreduce with what fits; each tensor is cut at multiples of a chunk from its
 * beginning. */
static void fill(struct staged_cut *cut, struct staged_chunk *c)
{
    const struct coll_op *op = cut->op;
    size_t elem = hvd_dtype_size(op->dtype), most = STAGED_CHUNK / elem, at = 0;
    while (cut->tensor < op->n && c->n < STAGED_PIECES) {
        const struct coll_tensor *t = &op->tensors[cut->tensor];
        size_t left = t->count - cut->element, n = left < most ? left : most;
        if (at + n * elem > STAGED_CHUNK)
            return;
        if (n > 0) {
            add(c, &(struct staged_piece){
                       .in = (const uint8_t *)t->in + cut->element * elem,
                       .out = (uint8_t *)t->out + cut->element * elem,
                       .count = n,
                       .in_bytes = n * elem,
                       .out_bytes = n * elem,
                       .in_at = at,
                       .out_at = at,
                   });
            at += aligned(n * elem);
        }
        cut->element += n;
        if (cut->element == t->count) {
            cut->tensor++;
            cut->element = 0;
        }
    }
}

bool staged_cut_next(struct staged_cut *cut, struct staged_chunk *ret)
{
    bool first = cut->tensor == 0 && cut->element == 0;
    if (cut->ended)
        return false;
    ret->n = ret->in_size = ret->out_at = ret->out_end = 0;
    if (cut->op->kind == HVD_ALLREDUCE) {
        fill(cut, ret);
        cut->ended = cut->tensor == cut->op->n;
        return ret->n > 0 || first;
    }
    if (cut->op->kind != HVD_BARRIER) {
        struct staged_piece p = whole(cut->mesh, cut->op);
        add(ret, &p);
    }
    cut->ended = true;
    return true;
}
