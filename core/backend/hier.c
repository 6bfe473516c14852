/* SPDX-License-Identifier: Apache-2.0
 *
 * hier: see hier.h.
 *
 * NCCL's calls must come in the same order on all ranks of a host: a reduce-scatter whenever a
 * chunk has free memory, otherwise the allgather of the oldest chunk, for which the operation
 * waits. Other work is added to the GPU's stream only after NCCL has reported that its call is on
 * the stream.
 */
#include "core/backend/hier.h"

#include <stdlib.h>

#include "core/backend/cuda_kernels.h"

#define PLACES 4

enum calling { NOTHING, SCATTERING, GATHERING };

/* Memory for a chunk: on the device all shards, side by side; in host memory this rank's shard. */
struct place {
    struct CUevent_st *event;
    bool marked; /* the event was not done when it was last polled */
    struct staged_chunk chunk;
    struct hier_part parts[STAGED_PIECES];
    size_t shard; /* bytes */
};

struct hier {
    struct gpu *gpu;
    struct nccl_run *run;
    struct CUstream_st *outward, *inward;
    struct cuda_memory packed, locked;
    struct place places[PLACES];
    size_t room; /* bytes of memory for one shard */
    int shards, mine;
    size_t *counts; /* [shards] */

    /* The operation. */
    const struct coll_op *op;
    struct nccl_form form;
    struct staged_cut cut;
    enum calling calling;
    uint64_t scattered, summed, gathered; /* chunks; chunk i is in place i % PLACES */
    bool begun, all, summing;             /* all: every chunk has begun */
    struct coll_op part;
    struct coll_tensor tensors[STAGED_PIECES];
};

/* ---- life ----------------------------------------------------------------------------------- */

static int make_streams(struct hier *h, struct err *err)
{
    struct cuda_device *d = h->gpu->device;
    int rc = cuda_stream_create(d, &h->outward, err);
    if (rc == 0)
        rc = cuda_stream_create(d, &h->inward, err);
    for (int i = 0; i < PLACES && rc == 0; i++)
        rc = cuda_event_get(d, &h->places[i].event, err);
    return rc;
}

int hier_create(struct gpu *gpu, struct hier **ret, struct err *err)
{
    struct hier *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ENOMEM, "no memory for allreduce in two levels");
    h->gpu = gpu;
    h->locked.host = true;
    int rc = nccl_run_create(gpu, NULL, &h->run, err);
    if (rc == 0)
        rc = make_streams(h, err);
    if (rc < 0)
        hier_destroy(h);
    else
        *ret = h;
    return rc;
}

bool hier_destroy(struct hier *h)
{
    if (!h)
        return true;
    struct cuda_device *d = h->gpu->device;
    if (h->packed.at)
        nccl_run_use(h->run); /* drains the stream first: freeing would wait for all its work */
    bool gone = nccl_run_destroy(h->run);
    /* Memory on a lost device is freed when the process ends. */
    if (gone && !d->lost.code) {
        cuda_stream_destroy(d, h->outward);
        cuda_stream_destroy(d, h->inward);
        cuda_memory_free(d, &h->packed);
        cuda_memory_free(d, &h->locked);
        for (int i = 0; i < PLACES; i++)
            cuda_event_put(d, h->places[i].event);
    }
    free(h->counts);
    free(h);
    return gone;
}

/* ---- epochs --------------------------------------------------------------------------------- */

void hier_say(struct hier *h, struct nccl_said *ret)
{
    nccl_run_say(h->run, ret);
}

enum nccl_verdict hier_hear(struct hier *h, const struct nccl_said *all, const struct mesh *mesh,
                            struct err *err)
{
    h->summing = false; /* a sum of the epoch before */
    h->shards = mesh->local_size;
    h->mine = mesh->local_rank;
    return nccl_run_hear(h->run, all, mesh->rank, mesh->size, mesh->host_of, err);
}

/* Polls the copies of a cancelled operation. 1: some are in flight; 0: none is. */
static int copied(struct hier *h, struct err *err)
{
    int rc = 0;
    for (int i = 0; i < PLACES && rc == 0; i++) {
        struct place *p = &h->places[i];
        rc = p->marked ? cuda_event_done(h->gpu->device, p->event, err) : 0;
        p->marked = p->marked && rc != 0;
    }
    return rc;
}

int hier_form(struct hier *h, struct coll *coll, struct err *err)
{
    int rc = nccl_run_form(h->run, coll, err);
    return rc == 0 ? copied(h, err) : rc;
}

/* ---- plan ----------------------------------------------------------------------------------- */

static int form_of(const struct hier *h, const struct coll_op *op, struct nccl_form *ret)
{
    struct nccl_means means = nccl_run_means(h->run);
    return means.kernels ? nccl_form_of(&means, op, h->shards, ret, NULL) : -ENOTSUP;
}

bool hier_can(const struct hier *h, const struct coll_op *op)
{
    struct nccl_form form;
    return op->kind == HVD_ALLREDUCE && coll_count(op) > 0 && form_of(h, op, &form) == 0;
}

/* Returns an operation of this kind on packed memory: for NCCL inside the host, or for the sum
 * between hosts. */
static struct coll_op bare(const struct hier *h, enum hvd_kind kind)
{
    enum hvd_op o = h->op->op;
    bool any = o == HVD_SUM || o == HVD_MAX;
    struct coll_op op = {.kind = kind,
                         .dtype = h->form.dtype,
                         .op = o == HVD_AVERAGE ? HVD_SUM : o,
                         .prescale = 1.0,
                         .postscale = 1.0,
                         .contributors = 1,
                         .device = -1,
                         .tensors = h->tensors,
                         .n = 1};
    if (h->op->dtype == HVD_BOOL) { /* prepared inputs are 0 or 1 */
        op.dtype = HVD_UINT8;
        op.op = any ? HVD_MAX : HVD_MIN;
    }
    return op;
}

int hier_prepare(struct hier *h, const struct mesh *mesh, const struct coll_op *op, struct err *err)
{
    h->op = op;
    h->cut = (struct staged_cut){.op = op, .mesh = mesh};
    h->room = (hier_shard_max(h->shards) + 255) / 256 * 256;
    h->scattered = h->summed = h->gathered = 0;
    h->begun = h->all = h->summing = false;
    h->calling = NOTHING;
    if (form_of(h, op, &h->form) < 0)
        return err_set(err, ENOTSUP, "no allreduce in two levels for %s", hvd_op_name(op->op));
    size_t *counts = realloc(h->counts, (size_t)h->shards * sizeof(*counts));
    if (!counts)
        return err_set(err, ENOMEM, "no memory for allreduce in two levels");
    h->counts = counts;
    int rc = gpu_reserve(h->gpu, &h->packed, PLACES * (size_t)h->shards * h->room, err);
    return rc == 0 ? gpu_reserve(h->gpu, &h->locked, PLACES * h->room, err) : rc;
}

static struct place *place_of(struct hier *h, uint64_t chunk)
{
    return &h->places[chunk % PLACES];
}

static uint8_t *packed_at(const struct hier *h, uint64_t chunk, int shard)
{
    const struct place *p = &h->places[chunk % PLACES];
    return (uint8_t *)h->packed.at + chunk % PLACES * (size_t)h->shards * h->room +
           (size_t)shard * p->shard;
}

static uint8_t *locked_at(const struct hier *h, uint64_t chunk)
{
    return (uint8_t *)h->locked.at + chunk % PLACES * h->room;
}

/* ---- on the device -------------------------------------------------------------------------- */

/* Moves all pieces of a chunk into the shards, or back out of them. */
static int move(struct hier *h, uint64_t chunk, bool back, struct err *err)
{
    const struct place *p = place_of(h, chunk);
    const struct nccl_form *f = &h->form;
    const struct gpu_change in = {h->op->dtype, f->dtype, f->prescale, 1, 1};
    const struct gpu_change out = {f->dtype, h->op->dtype, 1, f->divisor, f->postscale};
    struct gpu_piece pieces[KERNEL_PIECES];
    size_t elem = hvd_dtype_size(h->op->dtype), n = 0, all = p->chunk.n * (size_t)h->shards;
    int rc = 0;
    nccl_run_use(h->run);
    for (size_t i = 0; i < all && rc == 0; i++) {
        int shard = (int)(i / p->chunk.n);
        const struct staged_piece *piece = &p->chunk.pieces[i % p->chunk.n];
        const struct hier_part *part = &p->parts[i % p->chunk.n];
        size_t count = hier_count(part, piece->count, shard);
        size_t first = (size_t)shard * part->each * elem;
        uint8_t *at = packed_at(h, chunk, shard) + part->at;
        if (count > 0)
            pieces[n++] = back ? (struct gpu_piece){at, piece->out + first, count}
                               : (struct gpu_piece){piece->in + first, at, count};
        if (n < KERNEL_PIECES && i + 1 < all)
            continue;
        rc = cuda_move(h->gpu->device, back ? &out : &in, pieces, n, h->gpu->stream, err);
        n = 0;
    }
    return rc;
}

/* Calls NCCL on the shards of a chunk, in place: this rank's shard is one of them. */
static int call(struct hier *h, uint64_t chunk, enum hvd_kind kind, struct err *err)
{
    size_t elem = hvd_dtype_size(h->form.dtype), each = place_of(h, chunk)->shard / elem;
    uint8_t *whole = packed_at(h, chunk, 0), *own = packed_at(h, chunk, h->mine);
    struct coll_op op = bare(h, kind);
    bool scatters = kind == HVD_REDUCESCATTER;
    struct coll_tensor t = {.in = scatters ? whole : own,
                            .out = scatters ? own : whole,
                            .count = scatters ? each * (size_t)h->shards : each};
    op.tensors = &t;
    op.recv_counts = h->counts;
    for (int i = 0; i < h->shards; i++)
        h->counts[i] = each;
    return nccl_run_call(h->run, &op, err);
}

/* Records the chunk's event after the work that is on this stream so far. */
static int mark(struct hier *h, uint64_t chunk, struct CUstream_st *stream, struct err *err)
{
    struct place *p = place_of(h, chunk);
    p->marked = true;
    return cuda_event_record(h->gpu->device, p->event, stream, err);
}

static int scatter(struct hier *h, struct err *err)
{
    struct place *p = place_of(h, h->scattered);
    h->all = !staged_cut_next(&h->cut, &p->chunk);
    if (h->all)
        return 0;
    p->shard = hier_cut(&p->chunk, h->shards, hvd_dtype_size(h->form.dtype), p->parts);
    int rc = move(h, h->scattered, false, err);
    h->calling = SCATTERING;
    return rc == 0 ? call(h, h->scattered, HVD_REDUCESCATTER, err) : rc;
}

/* Called when the reduce-scatter is on the stream: queues the copy of this rank's shard to the host
 * behind it. */
static int come(struct hier *h, struct err *err)
{
    struct cuda_device *d = h->gpu->device;
    uint64_t chunk = h->scattered++;
    struct place *p = place_of(h, chunk);
    int rc = mark(h, chunk, h->gpu->stream, err);
    if (rc == 0)
        rc = cuda_stream_wait(d, h->outward, p->event, err);
    if (rc == 0)
        rc = cuda_copy(d, CUDA_COPY_OUT, locked_at(h, chunk), packed_at(h, chunk, h->mine),
                       p->shard, h->outward, err);
    return rc == 0 ? mark(h, chunk, h->outward, err) : rc;
}

/* Called when the sum between hosts is done: copies the shard back to the device. */
static int go(struct hier *h, struct err *err)
{
    uint64_t chunk = h->summed++;
    int rc = cuda_copy(h->gpu->device, CUDA_COPY_IN, packed_at(h, chunk, h->mine),
                       locked_at(h, chunk), place_of(h, chunk)->shard, h->inward, err);
    return rc == 0 ? mark(h, chunk, h->inward, err) : rc;
}

static int gather(struct hier *h, struct err *err)
{
    int rc = cuda_stream_wait(h->gpu->device, h->gpu->stream, place_of(h, h->gathered)->event, err);
    h->calling = GATHERING;
    return rc == 0 ? call(h, h->gathered, HVD_ALLGATHER, err) : rc;
}

/* ---- between hosts -------------------------------------------------------------------------- */

static int sum(struct hier *h, struct coll *coll, struct err *err)
{
    const struct place *p = place_of(h, h->summed);
    uint8_t *at = locked_at(h, h->summed);
    for (size_t i = 0; i < p->chunk.n; i++)
        h->tensors[i] = (struct coll_tensor){
            .in = at + p->parts[i].at,
            .out = at + p->parts[i].at,
            .count = hier_count(&p->parts[i], p->chunk.pieces[i].count, h->mine)};
    h->part = bare(h, HVD_ALLREDUCE);
    h->part.n = p->chunk.n;
    h->part.across = true;
    int rc = coll_part_start(coll, &h->part, err);
    h->summing = rc == 0;
    return rc;
}

static int sum_chunks(struct hier *h, struct coll *coll, bool *ret_moved, bool *ret_between,
                      struct err *err)
{
    int rc = 0;
    if (!h->summing && h->summed < h->scattered) {
        rc = cuda_event_done(h->gpu->device, place_of(h, h->summed)->event, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        rc = sum(h, coll, err);
    }
    if (rc == 0 && h->summing && (rc = coll_part_progress(coll)) < 0)
        err_set(err, -rc, "the sum between the hosts has failed");
    *ret_between = rc < 0;
    if (rc != 0 || !h->summing)
        return rc < 0 ? rc : 0;
    h->summing = false;
    *ret_moved = true;
    return go(h, err);
}

/* ---- the operation -------------------------------------------------------------------------- */

/* Makes the next call of NCCL once the last one is on the stream. */
static int call_chunks(struct hier *h, bool *ret_moved, struct err *err)
{
    int rc = nccl_run_called(h->run, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (h->calling != NOTHING) {
        bool came = h->calling == SCATTERING;
        h->calling = NOTHING;
        *ret_moved = true;
        return came ? come(h, err) : move(h, h->gathered++, true, err);
    }
    if (!h->all && h->scattered < h->gathered + PLACES) {
        *ret_moved = true;
        return scatter(h, err);
    }
    if (h->gathered < h->summed) {
        *ret_moved = true;
        return gather(h, err);
    }
    return 0;
}

static int advance(struct hier *h, struct coll *coll, bool *ret_between, struct err *err)
{
    int rc = h->begun ? 0 : gpu_await(h->gpu, h->op, err);
    h->begun = true;
    for (bool moved = true; moved && rc == 0;) {
        moved = false;
        rc = call_chunks(h, &moved, err);
        if (rc == 0)
            rc = sum_chunks(h, coll, &moved, ret_between, err);
    }
    if (rc < 0)
        return rc;
    bool over = h->all && h->gathered == h->scattered && h->calling == NOTHING;
    return over ? nccl_run_progress(h->run, err) : 1;
}

int hier_progress(struct hier *h, struct coll *coll, bool *ret_between, struct err *err)
{
    *ret_between = false;
    int rc = advance(h, coll, ret_between, err);
    /* A sum between hosts wakes this rank; anything else has to be polled. */
    bool asks = h->calling != NOTHING || !h->summing;
    if (rc == 1 && asks && coll->wait == COLL_WAKES)
        coll->wait = COLL_ASKS;
    return rc;
}

/* ---- cancelling ----------------------------------------------------------------------------- */

void hier_cancel(struct hier *h, struct coll *coll)
{
    if (h->summing)
        coll_part_cancel(coll);
    h->summing = false;
    nccl_run_cancel(h->run);
}

void hier_abort(struct hier *h)
{
    h->summing = false;
    nccl_run_abort(h->run);
}

int hier_drained(struct hier *h, struct err *err)
{
    int rc = nccl_run_drained(h->run, err);
    return rc == 0 ? copied(h, err) : rc;
}
