/* SPDX-License-Identifier: Apache-2.0
 *
 * staged: see staged.h.
 */
#include "core/backend/staged.h"

#include <stdlib.h>

#include "core/backend/cuda.h"
#include "core/base/cleanup.h"
#include "core/base/log.h"

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

int staged_create(struct gpu *gpu, struct staged **ret, struct err *err)
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

void staged_destroy(struct staged *s)
{
    if (!s)
        return;
    struct cuda_device *d = s->gpu->device;
    cuda_stream_destroy(d, s->outward);
    cuda_memory_free(d, &s->locked);
    cuda_memory_free(d, &s->packed);
    for (int i = 0; i < STAGED_PLACES; i++)
        cuda_event_put(d, s->places[i].event);
    free(s);
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
    uint8_t *memory = at(&s->locked, s, number);
    for (size_t i = 0; i < c->n; i++)
        s->tensors[i] = (struct coll_tensor){.in = memory + c->pieces[i].in_at,
                                             .out = memory + c->pieces[i].out_at,
                                             .count = c->pieces[i].count};
    if (c->n == 0)
        s->tensors[0] = (struct coll_tensor){.in = memory, .out = memory};
    s->part = *s->cut.op;
    s->part.device = -1;
    s->part.ready = NULL;
    s->part.tensors = s->tensors;
    s->part.n = c->n ? c->n : 1;
    s->summing = true;
    return coll_part_start(coll, &s->part, err);
}

/* ---- the operation ---- */

/* Starts copying chunks from the device while slots are free. */
static int begin_chunks(struct staged *s, bool *ret_moved, struct err *err)
{
    int rc = 0;
    while (rc == 0 && !s->all && s->begun < s->ended + STAGED_PLACES) {
        s->all = !staged_cut_next(&s->cut, &place_of(s, s->begun)->chunk);
        if (s->all)
            break;
        rc = copy_chunk(s, s->begun++, CUDA_COPY_OUT, err);
        *ret_moved = true;
    }
    return rc;
}

static int sum_chunks(struct coll *coll, struct staged *s, bool *ret_moved, struct err *err)
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
    *ret_moved = true;
    return copy_chunk(s, s->summed++, CUDA_COPY_IN, err);
}

static int end_chunks(struct staged *s, bool *ret_moved, struct err *err)
{
    while (s->ended < s->summed) {
        int rc = cuda_event_done(s->gpu->device, place_of(s, s->ended)->event, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        s->ended++;
        *ret_moved = true;
    }
    return 0;
}

static int advance(struct coll *coll, struct staged *s, struct err *err)
{
    for (bool moved = true; moved;) {
        moved = false;
        int rc = begin_chunks(s, &moved, err);
        if (rc == 0)
            rc = sum_chunks(coll, s, &moved, err);
        if (rc == 0)
            rc = end_chunks(s, &moved, err);
        if (rc < 0)
            return rc;
        if (s->all && s->ended == s->begun)
            return 0;
    }
    return 1;
}

int staged_prepare(struct staged *s, const struct mesh *mesh, const struct coll_op *op,
                   struct err *err)
{
    struct cuda_device *d = s->gpu->device;
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
    if (rc == 0)
        rc = cuda_event_record(d, s->gpu->event, s->gpu->stream, err);
    return rc == 0 ? cuda_stream_wait(d, s->outward, s->gpu->event, err) : rc;
}

int staged_progress(struct staged *s, struct coll *coll, struct err *err)
{
    int rc = advance(coll, s, err);
    /* A device does not wake a waiting thread: poll again. */
    if (rc == 1 && (s->begun > s->summed + s->summing || s->summed > s->ended))
        coll->wait = COLL_ASKS;
    return rc;
}

void staged_cancel(struct staged *s, struct coll *coll)
{
    if (s->summing)
        coll_part_cancel(coll);
    s->summing = false;
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
