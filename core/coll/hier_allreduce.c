/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_allreduce: allreduce over several hosts, for ranks that share their host with others.
 *
 * A tensor has lanes x hosts pieces; owner l of every host, its local rank l, has the pieces
 * l x hosts to (l + 1) x hosts - 1 of the whole host's sum. Segment k is piece l x hosts + k of
 * each owner l. The segments are summed on the host one after the other, in the order in which the
 * ring needs them (shm_pieces.h). Owner l's ring starts meanwhile, and the segments that the ring
 * has finished are copied to all local ranks while it continues. Ranks that own nothing only take
 * part in the runs on the host.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"
#include "core/coll/layout.h"
#include "core/coll/ring.h"
#include "core/coll/shm_pieces.h"

struct hier {
    struct coll *coll;
    struct layout layout;
    struct reduce_plan plan;
    struct shm_share share; /* who owns which pieces in the current run */
    struct ring ring;
    size_t *offsets;   /* [hosts + 1] */
    size_t *delivered; /* [hosts] bytes of each segment that are final */
    int run;           /* current run: first `hosts` runs that sum, then as many that give out */
    bool owner, ring_done;
};

static void hier_fini(void *state)
{
    struct hier *h = state;
    free(h->offsets);
    free(h->delivered);
}

static int hier_init(struct coll *coll, void *state, struct err *err)
{
    struct hier *h = state;
    size_t hosts = (size_t)coll->mesh->hosts;
    h->offsets = calloc(hosts + 1, sizeof(*h->offsets));
    h->delivered = calloc(hosts, sizeof(*h->delivered));
    if (h->offsets && h->delivered)
        return 0;
    hier_fini(h);
    return err_set(err, ENOMEM, "no memory for collectives");
}

static bool hier_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLREDUCE && mesh->hosts > 1 && mesh->local_size > 1;
}

/* The segment of a run: sums begin with the segment that the ring sends first, results with the
 * one that it finishes first. */
static int seg_of(const struct coll *coll, int run)
{
    int p = coll->mesh->hosts, me = coll->mesh->host;
    int back = run < p ? run : run - p - 1;
    return ((me - back) % p + p) % p;
}

static void begin_run(struct coll *coll, struct hier *h)
{
    const struct mesh *mesh = coll->mesh;
    int seg = seg_of(coll, h->run);
    uint8_t *at = h->owner ? h->ring.work + h->offsets[seg] : NULL;
    h->share = (struct shm_share){
        .layout = &h->layout,
        .first = (size_t)seg,
        .stride = (size_t)mesh->hosts,
        .owners = mesh->lanes,
    };
    if (h->run < mesh->hosts)
        shm_pieces_reduce_scatter(coll->pieces, &h->share, &h->plan, false, at);
    else
        shm_pieces_allgather(coll->pieces, &h->share, at);
}

/* Returns whether the host's sum of these bytes is in the work buffer. */
static bool summed(const struct hier *h, int seg, size_t end)
{
    const struct coll *coll = h->coll;
    int p = coll->mesh->hosts, run = ((coll->mesh->host - seg) % p + p) % p;
    return run < h->run || (run == h->run && shm_pieces_ready(coll->pieces) >= end);
}

static const void *share_first(void *ctx, int seg, size_t off, size_t len, void *at)
{
    return summed(ctx, seg, off + len) ? at : NULL;
}

static int share_merge(void *ctx, int seg, size_t off, size_t len, void *at, const void *partial,
                       bool last)
{
    static const bool prescaled[] = {true, true};
    struct hier *h = ctx;
    if (!summed(h, seg, off + len))
        return 1;
    const void *src[] = {partial, at};
    reduce(&h->plan, at, src, 2, len / h->layout.elem, prescaled, last, false);
    return 0;
}

static int share_deliver(void *ctx, int seg, size_t off, size_t len, const void *at)
{
    ((struct hier *)ctx)->delivered[seg] = off + len;
    return 0;
}

static const struct ring_ops share_ops = {share_first, share_merge, share_deliver};

static int hier_start(struct coll *coll, void *state, struct err *err)
{
    struct hier *h = state;
    const struct coll_op *op = coll->op;
    const struct mesh *mesh = coll->mesh;
    size_t pieces = (size_t)mesh->lanes * (size_t)mesh->hosts;
    h->coll = coll;
    h->layout = (struct layout){op->tensors, op->n, hvd_dtype_size(op->dtype), pieces};
    h->plan = coll_reduce_plan(op);
    h->owner = mesh->local_rank < mesh->lanes;
    h->ring_done = !h->owner;
    h->ring.ops = &share_ops;
    h->ring.ctx = h;
    memset(h->delivered, 0, (size_t)mesh->hosts * sizeof(*h->delivered));
    if (h->owner) {
        int rc = ring_open(&h->ring, coll, &h->layout, mesh->local_rank, h->offsets, true, err);
        if (rc < 0)
            return rc;
    }
    h->run = 0;
    begin_run(coll, h);
    return 0;
}

/* Makes progress on the runs on the host: 0 all done, 1 would have to wait. */
static int progress_runs(struct coll *coll, struct hier *h)
{
    int runs = 2 * coll->mesh->hosts;
    while (h->run < runs) {
        if (h->owner && h->run >= coll->mesh->hosts)
            shm_pieces_set_ready(coll->pieces, h->delivered[seg_of(coll, h->run)]);
        int rc = shm_pieces_progress(coll->pieces);
        if (rc != 0)
            return rc;
        if (++h->run < runs)
            begin_run(coll, h);
    }
    return 0;
}

/* The positions of ring and runs: unchanged positions mean that both wait for other ranks. */
struct standing {
    int run, in_step, out_step;
    size_t ready, in_off, out_off;
};

static struct standing standing(const struct coll *coll, const struct hier *h)
{
    return (struct standing){
        .run = h->run,
        .in_step = h->ring.in.step,
        .out_step = h->ring.out.step,
        .ready = h->run < coll->mesh->hosts ? shm_pieces_ready(coll->pieces) : 0,
        .in_off = h->ring.in.off,
        .out_off = h->ring.out.off,
    };
}

static bool moved(const struct standing *a, const struct standing *b)
{
    return a->run != b->run || a->in_step != b->in_step || a->out_step != b->out_step ||
           a->ready != b->ready || a->in_off != b->in_off || a->out_off != b->out_off;
}

static int hier_progress(struct coll *coll, void *state)
{
    struct hier *h = state;
    for (;;) {
        struct standing before = standing(coll, h);
        int runs = progress_runs(coll, h);
        if (runs < 0)
            return runs;
        if (!h->ring_done) {
            int rc = ring_progress(&h->ring);
            if (rc < 0)
                return rc;
            h->ring_done = rc == 0;
        }
        if (runs == 0 && h->ring_done)
            return 0;
        struct standing after = standing(coll, h);
        if (!h->owner || !moved(&before, &after))
            return 1;
    }
}

static void hier_cancel(struct coll *coll, void *state)
{
    struct hier *h = state;
    shm_pieces_cancel(coll->pieces);
    if (h->owner)
        ring_cancel(&h->ring);
}

const struct algorithm hier_allreduce_algorithm = {
    .name = "hierarchical",
    .state_size = sizeof(struct hier),
    .applies = hier_applies,
    .init = hier_init,
    .fini = hier_fini,
    .start = hier_start,
    .progress = hier_progress,
    .cancel = hier_cancel,
};
