/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_allreduce: allreduce in a ring of hosts, for a rank that is alone on its host. Other hosts
 * may have more ranks: their first ranks are in this ring, too (hier_allreduce.c).
 *
 * Piece k of every tensor (layout.h) is segment k of the ring. Partial sums and results live in the
 * work buffer; user memory is read when this rank's share is added and written when a final block
 * is there.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"
#include "core/coll/layout.h"
#include "core/coll/ring.h"

struct ring_allreduce {
    struct ring ring;
    struct layout layout;
    struct reduce_plan plan;
    size_t *offsets; /* [hosts + 1] */
    /* Positions of the three callbacks; a new segment starts a new iterator. */
    struct layout_walk first, merge, deliver;
};

static int ring_allreduce_init(struct coll *coll, void *state, struct err *err)
{
    struct ring_allreduce *r = state;
    r->offsets = calloc((size_t)coll->mesh->hosts + 1, sizeof(*r->offsets));
    return r->offsets ? 0 : err_set(err, ENOMEM, "no memory for collectives");
}

static void ring_allreduce_fini(void *state)
{
    free(((struct ring_allreduce *)state)->offsets);
}

static bool ring_allreduce_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLREDUCE && mesh->hosts > 1 && mesh->local_size == 1;
}

/* The iterator for a block: starts again with each segment. */
static struct layout_walk *walk_at(struct layout_walk *w, int seg, size_t off)
{
    if (off == 0)
        *w = layout_walk((size_t)seg);
    return w;
}

static const void *share_first(void *ctx, int seg, size_t off, size_t len, void *at)
{
    struct ring_allreduce *r = ctx;
    size_t elem = r->layout.elem, left = len / elem;
    struct layout_walk *w = walk_at(&r->first, seg, off);
    struct layout_run run;
    uint8_t *dst = at;
    while (left > 0 && layout_next(&r->layout, w, left, &run)) {
        const void *src = run.in;
        if (r->plan.prescale == 1.0 && run.count * elem == len)
            return src;
        if (r->plan.prescale == 1.0)
            reduce_copy(dst, src, run.count * elem, false);
        else
            reduce(&r->plan, dst, &src, 1, run.count, NULL, false, false);
        dst += run.count * elem;
        left -= run.count;
    }
    return at;
}

static int share_merge(void *ctx, int seg, size_t off, size_t len, void *at, const void *partial,
                       bool last)
{
    static const bool prescaled[] = {true, false};
    struct ring_allreduce *r = ctx;
    size_t elem = r->layout.elem, left = len / elem;
    struct layout_walk *w = walk_at(&r->merge, seg, off);
    struct layout_run run;
    uint8_t *dst = at;
    const uint8_t *sum = partial;
    while (left > 0 && layout_next(&r->layout, w, left, &run)) {
        const void *src[] = {sum, run.in};
        reduce(&r->plan, dst, src, 2, run.count, prescaled, last, false);
        dst += run.count * elem;
        sum += run.count * elem;
        left -= run.count;
    }
    return 0;
}

static int share_deliver(void *ctx, int seg, size_t off, size_t len, const void *at)
{
    struct ring_allreduce *r = ctx;
    size_t elem = r->layout.elem, left = len / elem;
    struct layout_walk *w = walk_at(&r->deliver, seg, off);
    struct layout_run run;
    const uint8_t *src = at;
    while (left > 0 && layout_next(&r->layout, w, left, &run)) {
        reduce_copy(run.out, src, run.count * elem, false);
        src += run.count * elem;
        left -= run.count;
    }
    return 0;
}

static const struct ring_ops share_ops = {share_first, share_merge, share_deliver};

static int ring_allreduce_start(struct coll *coll, void *state, struct err *err)
{
    struct ring_allreduce *r = state;
    const struct coll_op *op = coll->op;
    size_t hosts = (size_t)coll->mesh->hosts;
    r->layout = (struct layout){op->tensors, op->n, hvd_dtype_size(op->dtype), hosts};
    r->plan = coll_reduce_plan(op);
    r->ring.ops = &share_ops;
    r->ring.ctx = r;
    return ring_open(&r->ring, coll, &r->layout, 0, r->offsets, false, err);
}

static int ring_allreduce_progress(struct coll *coll, void *state)
{
    return ring_progress(&((struct ring_allreduce *)state)->ring);
}

static void ring_allreduce_cancel(struct coll *coll, void *state)
{
    ring_cancel(&((struct ring_allreduce *)state)->ring);
}

const struct algorithm ring_allreduce_algorithm = {
    .name = "ring",
    .state_size = sizeof(struct ring_allreduce),
    .applies = ring_allreduce_applies,
    .init = ring_allreduce_init,
    .fini = ring_allreduce_fini,
    .start = ring_allreduce_start,
    .progress = ring_allreduce_progress,
    .cancel = ring_allreduce_cancel,
};
