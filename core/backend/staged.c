/* SPDX-License-Identifier: Apache-2.0
 *
 * staged: see staged.h.
 */
#include "core/backend/staged.h"

#include <stdlib.h>

#include "core/backend/cuda.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/cleanup.h"
#include "core/base/log.h"

#define PLACES 4
#define GPUS   16

enum phase { EMPTY, COMING, GOING };

/* A place of locked memory and the chunk in it. */
struct place {
    enum phase phase;
    struct CUevent_st *event; /* what is under way is done */
    struct staged_chunk chunk;
};

struct staged_gpu {
    struct cuda_device *device;
    struct CUstream_st *outward, *inward;
    struct cuda_memory locked, packed; /* PLACES in each; packed: several pieces side by side */
    bool packs;                        /* there are kernels for it */
    struct place places[PLACES];
};

struct staged {
    struct staged_gpu *gpus[GPUS]; /* NULL: not used yet */
    struct staged_gpu *g;          /* of the operation under way, else NULL */
    struct staged_cut cut;
    size_t room;                   /* of a place */
    uint64_t begun, summed, ended; /* chunks; chunk i is in place i % PLACES */
    bool all, summing;             /* all: no more of them will begin */
    struct coll_op part;           /* the chunk that is summed */
    struct coll_tensor tensors[STAGED_PIECES];
};

/* ---- devices ---- */

static void close_gpu(struct staged_gpu *g)
{
    struct cuda_visit visit = {0};
    if (!g)
        return;
    if (g->device && cuda_enter(g->device, &visit, NULL) == 0) {
        cuda_stream_destroy(g->device, g->outward);
        cuda_stream_destroy(g->device, g->inward);
        cuda_memory_free(g->device, &g->locked);
        cuda_memory_free(g->device, &g->packed);
        for (int i = 0; i < PLACES; i++)
            cuda_event_put(g->device, g->places[i].event);
    }
    cuda_leave(&visit);
    cuda_device_close(g->device);
    free(g);
}

static int open_inside(struct staged_gpu *g, struct err *err)
{
    struct cuda_device *d = g->device;
    struct err why = {0};
    int rc = cuda_stream_create(d, &g->outward, err);
    if (rc == 0)
        rc = cuda_stream_create(d, &g->inward, err);
    for (int i = 0; i < PLACES && rc == 0; i++)
        rc = cuda_event_get(d, &g->places[i].event, err);
    if (rc < 0)
        return rc;
    g->packs = cuda_kernels_load(d, &why) == 0;
    if (!g->packs)
        log_info("staged: each tensor is copied by itself: %s", why.msg);
    return d->lost.code ? err_set(err, -d->lost.code, "%s", d->lost.msg) : 0;
}

static int open_gpu(int ordinal, struct staged_gpu **ret, struct err *err)
{
    struct cuda_visit visit = {0};
    struct staged_gpu *g = calloc(1, sizeof(*g));
    if (!g)
        return err_set(err, ENOMEM, "no memory to stage tensors of GPU %d", ordinal);
    g->locked.host = true;
    int rc = cuda_device_open(ordinal, &g->device, err);
    if (rc == 0)
        rc = cuda_enter(g->device, &visit, err);
    if (rc == 0)
        rc = open_inside(g, err);
    cuda_leave(&visit);
    if (rc < 0)
        close_gpu(g);
    else
        *ret = g;
    return rc;
}

/* ---- a chunk's way ---- */

static uint8_t *at(const struct cuda_memory *memory, const struct staged *s, uint64_t chunk)
{
    return (uint8_t *)memory->at + chunk % PLACES * s->room;
}

/* Pieces of memory to other places of the device, all of them bytes. */
static int move(struct staged_gpu *g, const struct staged_chunk *c, uint8_t *packed, bool out,
                struct err *err)
{
    static const struct gpu_change none = {HVD_UINT8, HVD_UINT8, 1.0, 1, 1.0};
    struct gpu_piece pieces[STAGED_PIECES];
    for (size_t i = 0; i < c->n; i++) {
        const struct staged_piece *p = &c->pieces[i];
        pieces[i] = out ? (struct gpu_piece){p->in, packed + p->in_at, p->in_bytes}
                        : (struct gpu_piece){packed + p->out_at, p->out, p->out_bytes};
    }
    return cuda_move(g->device, &none, pieces, c->n, out ? g->outward : g->inward, err);
}

/* Out of the device into locked memory. */
static int come(struct staged *s, uint64_t number, struct err *err)
{
    struct staged_gpu *g = s->g;
    struct place *place = &g->places[number % PLACES];
    const struct staged_chunk *c = &place->chunk;
    uint8_t *to = at(&g->locked, s, number), *packed = at(&g->packed, s, number);
    int rc = 0;
    if (c->n > 1 && g->packs) {
        rc = move(g, c, packed, true, err);
        if (rc == 0)
            rc = cuda_copy(g->device, CUDA_COPY_OUT, to, packed, c->in_size, g->outward, err);
    } else {
        for (size_t i = 0; i < c->n && rc == 0; i++)
            rc = cuda_copy(g->device, CUDA_COPY_OUT, to + c->pieces[i].in_at, c->pieces[i].in,
                           c->pieces[i].in_bytes, g->outward, err);
    }
    place->phase = COMING;
    return rc == 0 ? cuda_event_record(g->device, place->event, g->outward, err) : rc;
}

/* And back. */
static int go(struct staged *s, uint64_t number, struct err *err)
{
    struct staged_gpu *g = s->g;
    struct place *place = &g->places[number % PLACES];
    const struct staged_chunk *c = &place->chunk;
    uint8_t *from = at(&g->locked, s, number), *packed = at(&g->packed, s, number);
    int rc = 0;
    if (c->n > 1 && g->packs) {
        rc = cuda_copy(g->device, CUDA_COPY_IN, packed + c->out_at, from + c->out_at,
                       c->out_end - c->out_at, g->inward, err);
        if (rc == 0)
            rc = move(g, c, packed, false, err);
    } else {
        for (size_t i = 0; i < c->n && rc == 0; i++)
            rc = cuda_copy(g->device, CUDA_COPY_IN, c->pieces[i].out, from + c->pieces[i].out_at,
                           c->pieces[i].out_bytes, g->inward, err);
    }
    place->phase = GOING;
    return rc == 0 ? cuda_event_record(g->device, place->event, g->inward, err) : rc;
}

/* All ranks together, in locked memory. */
static int sum(struct coll *coll, struct staged *s, uint64_t number, struct err *err)
{
    const struct staged_chunk *c = &s->g->places[number % PLACES].chunk;
    uint8_t *memory = at(&s->g->locked, s, number);
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

/* What can begin, begins: chunks come out while there are places. */
static int begin_chunks(struct staged *s, bool *ret_moved, struct err *err)
{
    int rc = 0;
    while (rc == 0 && !s->all && s->begun < s->ended + PLACES) {
        s->all = !staged_cut_next(&s->cut, &s->g->places[s->begun % PLACES].chunk);
        if (s->all)
            break;
        rc = come(s, s->begun++, err);
        *ret_moved = true;
    }
    return rc;
}

static int sum_chunks(struct coll *coll, struct staged *s, bool *ret_moved, struct err *err)
{
    int rc = 0;
    if (!s->summing && s->summed < s->begun) {
        rc = cuda_event_done(s->g->device, s->g->places[s->summed % PLACES].event, err);
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
    return go(s, s->summed++, err);
}

static int end_chunks(struct staged *s, bool *ret_moved, struct err *err)
{
    while (s->ended < s->summed) {
        struct place *place = &s->g->places[s->ended % PLACES];
        int rc = cuda_event_done(s->g->device, place->event, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        place->phase = EMPTY;
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

static bool staged_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0;
}

static int prepare(struct staged *s, const struct coll_op *op, struct err *err)
{
    struct staged_gpu *g = s->g;
    int rc = cuda_memory_reserve(g->device, &g->locked, PLACES * s->room, err);
    if (rc == 0 && g->packs && op->kind == HVD_ALLREDUCE)
        rc = cuda_memory_reserve(g->device, &g->packed, PLACES * s->room, err);
    for (size_t i = 0; op->ready && i < op->n && rc == 0; i++)
        rc = cuda_stream_wait(g->device, g->outward, op->ready[i], err);
    return rc;
}

static int staged_start(struct coll *coll, void *state, struct err *err)
{
    struct staged *s = state;
    const struct coll_op *op = coll->op;
    struct cuda_visit visit = {0};
    if (op->device >= GPUS)
        return err_set(err, ENODEV, "GPU %d: only %d are known", op->device, GPUS);
    int rc = s->gpus[op->device] ? 0 : open_gpu(op->device, &s->gpus[op->device], err);
    if (rc < 0)
        return rc;
    s->g = s->gpus[op->device];
    s->cut = (struct staged_cut){.op = op, .mesh = coll->mesh};
    s->room = staged_room(coll->mesh, op);
    s->begun = s->summed = s->ended = 0;
    s->all = s->summing = false;
    rc = cuda_enter(s->g->device, &visit, err);
    if (rc == 0)
        rc = prepare(s, op, err);
    cuda_leave(&visit);
    return rc;
}

static int staged_progress(struct coll *coll, void *state)
{
    struct staged *s = state;
    struct cuda_visit visit = {0};
    struct err err = {0};
    int rc = cuda_enter(s->g->device, &visit, &err);
    if (rc == 0)
        rc = advance(coll, s, &err);
    cuda_leave(&visit);
    /* A device wakes nobody. */
    if (rc == 1 && (s->begun > s->summed + s->summing || s->summed > s->ended))
        coll->polls = true;
    if (rc < 0)
        log_warn("%s", err_text(&err)); /* the caller gets only the number */
    return rc;
}

/* What is under way on the streams ends in memory of ours, before what comes next on them: nothing
 * has gone back yet (see coll.h). */
static void staged_cancel(struct coll *coll, void *state)
{
    struct staged *s = state;
    if (s->summing)
        coll_part_cancel(coll);
    s->summing = false;
}

static void staged_fini(void *state)
{
    struct staged *s = state;
    for (int i = 0; i < GPUS; i++)
        close_gpu(s->gpus[i]);
}

const struct algorithm staged_algorithm = {
    .name = "staged",
    .state_size = sizeof(struct staged),
    .applies = staged_applies,
    .start = staged_start,
    .progress = staged_progress,
    .cancel = staged_cancel,
    .fini = staged_fini,
};
