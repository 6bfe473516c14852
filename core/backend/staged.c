/* SPDX-License-Identifier: Apache-2.0
 *
 * staged: see staged.h.
 */
#include "core/backend/staged.h"

#include <stdlib.h>

#include "core/backend/device_private.h"
#include "core/base/log.h"

#define ALIGN ((size_t)64) /* alignment of a piece, in bytes */

/* ---- how an operation is cut ---- */

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
        .in_bytes = op->in_host ? 0 : t->count * elem,
        .out_bytes = op->out_host ? 0 : result_count(mesh, op) * elem,
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
    size_t elem = hvd_dtype_size(op->dtype), most = STAGED_CHUNK / elem, place = 0;
    while (cut->tensor < op->n && c->n < STAGED_PIECES) {
        const struct coll_tensor *t = &op->tensors[cut->tensor];
        size_t left = t->count - cut->element, n = left < most ? left : most;
        if (place + n * elem > STAGED_CHUNK)
            return;
        if (n > 0) {
            add(c, &(struct staged_piece){
                       .in = (const uint8_t *)t->in + cut->element * elem,
                       .out = (uint8_t *)t->out + cut->element * elem,
                       .count = n,
                       .in_bytes = n * elem,
                       .out_bytes = n * elem,
                       .in_at = place,
                       .out_at = place,
                   });
            place += aligned(n * elem);
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

/* A slot of page-locked memory and the chunk in it. */
struct place {
    struct CUevent_st *event; /* recorded after the copies in progress */
    struct staged_chunk chunk;
};

struct staged {
    struct gpu *gpu;
    /* stream for copies to the host; results are copied back on the GPU's own stream */
    struct CUstream_st *outward;
    struct cuda_memory locked, packed; /* for all slots; packed: pieces gathered on the device */
    struct place places[STAGED_PLACES];
    struct staged_cut cut;
    size_t room;                   /* bytes of a slot */
    uint64_t begun, summed, ended; /* numbers of chunks; chunk i uses slot i % STAGED_PLACES */
    bool all, summing;             /* all: every chunk has begun */
    struct coll_op part;           /* the chunk whose collective is running */
    struct coll_tensor tensors[STAGED_PIECES];
};

/* ---- life ---- */

void staged_destroy(struct staged *s)
{
    if (!s)
        return;
    struct cuda_device *d = s->gpu->device;
    cuda_stream_destroy(d, s->outward);
    gpu_retire(s->gpu, &s->locked);
    gpu_retire(s->gpu, &s->packed);
    for (int i = 0; i < STAGED_PLACES; i++)
        cuda_event_put(d, s->places[i].event);
    free(s);
}

static int create(struct gpu *gpu, struct staged **ret, struct err *err)
{
    struct staged *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory to stage tensors of GPU %d", gpu->device->ordinal);
    s->gpu = gpu;
    s->locked.host = true;
    int rc = cuda_stream_create(gpu->device, &s->outward, err);
    for (int i = 0; i < STAGED_PLACES && rc == 0; i++)
        rc = cuda_event_get(gpu->device, &s->places[i].event, err);
    if (rc == 0 && !gpu->kernels)
        log_info("staged: each tensor is copied by itself: %s", gpu->no_kernels.msg);
    if (rc < 0)
        staged_destroy(s);
    else
        *ret = s;
    return rc;
}

/* ---- a chunk: to the host, the collective, back ---- */

static struct place *place_of(struct staged *s, uint64_t chunk)
{
    return &s->places[chunk % STAGED_PLACES];
}

static uint8_t *at(const struct cuda_memory *memory, const struct staged *s, uint64_t chunk)
{
    return (uint8_t *)memory->at + chunk % STAGED_PLACES * s->room;
}

/* Moves pieces between the device's tensors and `packed` on the device. */
static int move(struct staged *s, const struct staged_chunk *c, uint8_t *packed, enum cuda_copy way,
                struct err *err)
{
    struct gpu_piece pieces[STAGED_PIECES];
    for (size_t i = 0; i < c->n; i++) {
        const struct staged_piece *p = &c->pieces[i];
        pieces[i] = way == CUDA_COPY_OUT
                        ? (struct gpu_piece){p->in, packed + p->in_at, p->in_bytes}
                        : (struct gpu_piece){packed + p->out_at, p->out, p->out_bytes};
    }
    return gpu_move_bytes(s->gpu, pieces, c->n, way == CUDA_COPY_OUT ? s->outward : s->gpu->stream,
                          err);
}

/* Copies a chunk from the device to page-locked memory (CUDA_COPY_OUT), or its results back
 * (CUDA_COPY_IN). */
static int copy_chunk(struct staged *s, uint64_t number, enum cuda_copy way, struct err *err)
{
    struct cuda_device *d = s->gpu->device;
    const struct staged_chunk *c = &place_of(s, number)->chunk;
    uint8_t *locked = at(&s->locked, s, number), *packed = at(&s->packed, s, number);
    bool out = way == CUDA_COPY_OUT, packs = c->n > 1 && s->gpu->kernels;
    struct CUstream_st *stream = out ? s->outward : s->gpu->stream;
    int rc = 0;
    if (packs && out) {
        rc = move(s, c, packed, way, err);
        if (rc == 0)
            rc = cuda_copy(d, way, locked, packed, c->in_size, stream, err);
    } else if (packs) {
        rc = cuda_copy(d, way, packed + c->out_at, locked + c->out_at, c->out_end - c->out_at,
                       stream, err);
        if (rc == 0)
            rc = move(s, c, packed, way, err);
    }
    for (size_t i = 0; i < c->n && !packs && rc == 0; i++) {
        const struct staged_piece *p = &c->pieces[i];
        rc = out ? cuda_copy(d, way, locked + p->in_at, p->in, p->in_bytes, stream, err)
                 : cuda_copy(d, way, p->out, locked + p->out_at, p->out_bytes, stream, err);
    }
    return rc == 0 ? cuda_event_record(d, place_of(s, number)->event, stream, err) : rc;
}

/* Runs the collective of a chunk with all ranks, in page-locked memory. */
static int sum(struct coll *coll, struct staged *s, uint64_t number, struct err *err)
{
    const struct staged_chunk *c = &place_of(s, number)->chunk;
    const struct coll_op *op = s->cut.op;
    uint8_t *memory = at(&s->locked, s, number);
    for (size_t i = 0; i < c->n; i++) {
        const struct staged_piece *p = &c->pieces[i];
        s->tensors[i] = (struct coll_tensor){.in = op->in_host ? p->in : memory + p->in_at,
                                             .out = op->out_host ? p->out : memory + p->out_at,
                                             .count = p->count};
    }
    if (c->n == 0)
        s->tensors[0] = (struct coll_tensor){.in = memory, .out = memory};
    s->part = *op;
    s->part.device = -1;
    s->part.ready = NULL;
    s->part.tensors = s->tensors;
    s->part.n = c->n ? c->n : 1;
    s->summing = true;
    return coll_part_start(coll, &s->part, err);
}

/* ---- the operation ---- */

/* Starts copying chunks from the device while slots are free. */
static int begin_chunks(struct staged *s, struct err *err)
{
    int rc = 0;
    while (rc == 0 && !s->all && s->begun < s->ended + STAGED_PLACES) {
        s->all = !staged_cut_next(&s->cut, &place_of(s, s->begun)->chunk);
        if (!s->all)
            rc = copy_chunk(s, s->begun++, CUDA_COPY_OUT, err);
    }
    return rc;
}

static int sum_chunks(struct coll *coll, struct staged *s, struct err *err)
{
    int rc = 0;
    if (!s->summing && s->summed < s->begun) {
        rc = cuda_event_done(s->gpu->device, place_of(s, s->summed)->event, err);
        if (rc == 0)
            rc = sum(coll, s, s->summed, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    if (!s->summing)
        return 0;
    rc = coll_part_progress(coll);
    if (rc < 0)
        return err_set(err, -rc, "%s", coll_algorithm(coll));
    if (rc == 1)
        return 0;
    s->summing = false;
    return copy_chunk(s, s->summed++, CUDA_COPY_IN, err);
}

static int end_chunks(struct staged *s, struct err *err)
{
    int rc = 0;
    while (s->ended < s->summed &&
           (rc = cuda_event_done(s->gpu->device, place_of(s, s->ended)->event, err)) == 0)
        s->ended++;
    return rc < 0 ? rc : 0;
}

static int advance(struct coll *coll, struct staged *s, struct err *err)
{
    uint64_t before;
    do {
        before = s->begun + s->summed + s->ended;
        int rc = begin_chunks(s, err);
        if (rc == 0)
            rc = sum_chunks(coll, s, err);
        if (rc == 0)
            rc = end_chunks(s, err);
        if (rc < 0)
            return rc;
        if (s->all && s->ended == s->begun)
            return 0;
    } while (s->begun + s->summed + s->ended != before);
    /* A device does not wake a waiting thread: poll again. */
    if (s->begun > s->summed + s->summing || s->summed > s->ended)
        coll->wait = COLL_ASKS;
    return 1;
}

/* Prepares the operation, which stays valid until it finishes or is cancelled; copies nothing yet.
 */
static int begin(struct staged *s, const struct mesh *mesh, const struct coll_op *op,
                 struct err *err)
{
    s->cut = (struct staged_cut){.op = op, .mesh = mesh};
    s->room = staged_room(mesh, op);
    s->begun = s->summed = s->ended = 0;
    s->all = s->summing = false;
    int rc = gpu_reserve(s->gpu, &s->locked, staged_places(op) * s->room, err);
    if (rc == 0 && s->gpu->kernels && op->kind == HVD_ALLREDUCE)
        rc = gpu_reserve(s->gpu, &s->packed, staged_places(op) * s->room, err);
    if (rc == 0)
        rc = gpu_await(s->gpu, s->outward, op, err);
    /* The stream may have work of a failed operation, and copies that restore inputs. */
    return rc == 0
               ? cuda_stream_follow(s->gpu->device, s->outward, s->gpu->stream, s->gpu->event, err)
               : rc;
}

int staged_drained(struct staged *s, struct err *err)
{
    for (uint64_t i = s->ended; i < s->begun; i++) {
        int rc = cuda_event_done(s->gpu->device, place_of(s, i)->event, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- the algorithm ---- */

enum phase { ENTER, RUN, BEHIND };

struct job {
    struct device *d;
    enum phase phase;
    struct coll_op part;
};

static int meet(struct coll *coll, struct job *j, struct err *err)
{
    j->part = coll_barrier;
    return coll_part_start(coll, &j->part, err);
}

/* Reads the inputs, and copies those that must be retained; writes nothing that a user could
 * see. */
static int prepare(struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    bool retain = coll->elastic && coll->mesh->size > 1;
    int rc = d->ready ? 0 : err_set(err, EINVAL, "the GPUs of this epoch are not set up");
    if (rc == 0)
        kept_drop(&d->kept, d->gpu);
    if (rc == 0)
        rc = kept_take(&d->kept, d->gpu, coll->op, retain, err);
    if (rc == 0 && !d->staged)
        rc = create(d->gpu, &d->staged, err);
    return rc == 0 ? begin(d->staged, coll->mesh, &d->kept.op, err) : rc;
}

static int work(struct coll *coll, struct job *j, struct err *err)
{
    bool last = !coll->elastic || coll->mesh->size == 1;
    for (;;) {
        int rc = j->phase == RUN ? advance(coll, j->d->staged, err) : coll_part_progress(coll);
        if (rc < 0 && j->phase != RUN)
            err_sys(err, -rc, "the barrier %s the GPU operation",
                    j->phase == ENTER ? "before" : "after");
        if (rc != 0 || j->phase == BEHIND || (j->phase == RUN && last))
            return rc;
        if (++j->phase == BEHIND && (rc = meet(coll, j, err)) < 0)
            return rc;
    }
}

static bool applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0 && op->kind != HVD_BARRIER;
}

static int init(struct coll *coll, void *state, struct err *err)
{
    ((struct job *)state)->d = coll->backend;
    return 0;
}

static int start(struct coll *coll, void *state, struct err *err)
{
    struct job *j = state;
    auto_visit visit = {0};
    j->phase = ENTER;
    int rc = device_enter(coll, j->d, &visit, err);
    if (rc == 0)
        rc = prepare(coll, j, err);
    return rc == 0 ? meet(coll, j, err) : rc;
}

static int progress(struct coll *coll, void *state)
{
    struct job *j = state;
    auto_visit visit = {0};
    struct err err = {0};
    int rc = cuda_enter(j->d->gpu->device, &visit, &err);
    if (rc == 0)
        rc = work(coll, j, &err);
    return device_result(coll, j->d, rc, true, &err);
}

static void cancel(struct coll *coll, void *state)
{
    coll_part_cancel(coll);
}

static void stop(struct coll *coll, void *state)
{
    struct job *j = state;
    cancel(coll, state);
    device_end(j->d);
}

static void standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    const struct job *j = state;
    ret->whole = j->phase == BEHIND;
}

/* Nothing of it is final before all of it is. */
static int settle(struct coll *coll, void *state, const uint32_t *final, struct coll_rest *rest)
{
    return 0;
}

/* Before the operation is run again: when nothing of this run is added to streams any more. */
static void restore(struct coll *coll, void *state)
{
    struct job *j = state;
    if (j->phase >= RUN)
        j->d->kept_owed = true;
}

const struct algorithm device_staged = {
    .name = "staged",
    .state_size = sizeof(struct job),
    .applies = applies,
    .init = init,
    .start = start,
    .progress = progress,
    .cancel = cancel,
    .standing = standing,
    .settle = settle,
    .restore = restore,
    .stop = stop,
};
