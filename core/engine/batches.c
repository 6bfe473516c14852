/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: see batches.h.
 */
#include "core/engine/batches.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch.h"

#define SMALL_BYTES (64u << 10)

int batches_init(struct engine *e, struct err *err)
{
    struct batches *b = &e->batches;
    b->end = &b->first;
    b->tensors_cap = 64;
    b->tensors = calloc(b->tensors_cap, sizeof(*b->tensors));
    b->ready = calloc(b->tensors_cap, sizeof(*b->ready));
    if (!b->tensors || !b->ready)
        return err_set(err, ENOMEM, "no memory for batches");
    return batches_resize(e, err);
}

int batches_resize(struct engine *e, struct err *err)
{
    struct batches *b = &e->batches;
    size_t n = (size_t)e->size;
    free(b->send_counts);
    free(b->recv_counts);
    free(b->splits);
    b->send_counts = calloc(n, sizeof(*b->send_counts));
    b->recv_counts = calloc(n, sizeof(*b->recv_counts));
    b->splits = calloc(n, sizeof(*b->splits));
    if (!b->send_counts || !b->recv_counts || !b->splits)
        return err_set(err, ENOMEM, "no memory for batches");
    return 0;
}

static void free_chain(struct batch *chain)
{
    for (struct batch *next; chain; chain = next) {
        next = chain->next;
        free(chain->slots);
        free(chain);
    }
}

void batches_fini(struct engine *e)
{
    struct batches *b = &e->batches;
    free_chain(b->active);
    free_chain(b->first);
    free_chain(b->free);
    free(b->tensors);
    free(b->ready);
    free(b->send_counts);
    free(b->recv_counts);
    free(b->splits);
    free(b->scratch);
    launch_gpu_fini(&b->gpu);
    memset(b, 0, sizeof(*b));
}

/* An empty batch with room for n slots. NULL: no memory, e->trouble is set. */
static struct batch *new_batch(struct engine *e, size_t n)
{
    struct batches *b = &e->batches;
    struct batch *batch = b->free;
    if (batch) {
        b->free = batch->next;
    } else {
        batch = calloc(1, sizeof(*batch));
        counter_add(&e->counters.allocations, 1);
    }
    if (batch && n > batch->cap) {
        /* Spare room for every batch, because any free struct may later serve the largest batch of
         * a step. */
        size_t cap = 32;
        while (cap < n)
            cap *= 2;
        struct slot **slots = realloc(batch->slots, cap * sizeof(struct slot *));
        counter_add(&e->counters.allocations, 1);
        if (slots) {
            batch->slots = slots;
            batch->cap = cap;
        } else {
            batch->next = b->free;
            b->free = batch;
            batch = NULL;
        }
    }
    if (!batch) {
        err_set(&e->trouble, ENOMEM, "no memory for a batch of %zu tensors", n);
        return NULL;
    }
    batch->next = NULL;
    batch->frozen = batch->generation = false;
    batch->n = batch->at = 0;
    batch->start_ns = 0;
    batch->bytes = 0;
    return batch;
}

static void recycle(struct batches *b, struct batch *batch)
{
    batch->next = b->free;
    b->free = batch;
}

static void append(struct batches *b, struct batch *batch)
{
    *b->end = batch;
    b->end = &batch->next;
}

/* The slot with this id. In a frozen schedule negotiate_submit() may hand out a batch before it
 * returns the id: then the slot is the one that is being submitted. */
static struct slot *slot_of(struct engine *e, uint64_t id)
{
    struct slot *slot = ids_get(&e->ids, id);
    if (!slot && e->submitting && !e->submitting->has_id)
        slot = e->submitting;
    return slot;
}

static void take_rows(struct engine *e, struct slot *s, const struct negotiate_tensor *t)
{
    const struct world_map *map = engine_map_of(e, &s->facts.sig);
    /* s->rows may be left from an earlier operation with fewer ranks. */
    if (!s->rows || (!t->dim0 && !t->splits))
        return;
    if (!map->same)
        memset(s->rows, 0, s->rows_cap * sizeof(*s->rows));
    for (int r = 0; r < e->size; r++) {
        int at = map->to_world[r]; /* -1: a joiner that the user's world does not have yet */
        if (at >= 0)
            s->rows[at] =
                t->splits ? t->splits[(size_t)r * (size_t)e->size + (size_t)e->rank] : t->dim0[r];
    }
}

static size_t slot_bytes(const struct slot *s)
{
    return s->facts.count * hvd_dtype_size((enum hvd_dtype)s->facts.sig.dtype);
}

bool batches_small(const struct batches *b)
{
    const struct batch *batch = b->active ? b->active : b->first;
    return batch && (!b->active || !b->first) && !batch->next && batch->bytes <= SMALL_BYTES;
}

bool batches_owed(const struct batches *b)
{
    for (const struct batch *q = b->first; q; q = q->next)
        if (!q->frozen && !q->generation)
            return true;
    return b->active != NULL;
}

void batches_on_batch(void *ctx, const struct negotiate_batch *from)
{
    struct engine *e = ctx;
    struct batches *b = &e->batches;
    if (e->trouble.code)
        return; /* no batch runs after a failure */
    struct batch *batch = new_batch(e, from->n);
    uint64_t now = timeline_on(&e->timeline) ? clock_ns() : 0;
    if (!batch)
        return;
    for (size_t i = 0; i < from->n; i++) {
        struct slot *s = slot_of(e, from->tensors[i].id);
        if (!s) {
            if (atomic_load(&e->drive.closing))
                err_set(&e->trouble, ESHUTDOWN, "it has shut down");
            else
                err_set(&e->trouble, EPROTO, "a batch with a tensor that is not known here");
            recycle(b, batch);
            return;
        }
        take_rows(e, s, &from->tensors[i]);
        s->state = SLOT_BATCHED;
        s->batch_ns = now;
        batch->bytes += slot_bytes(s);
        batch->slots[batch->n++] = s;
    }
    batch->number = from->number;
    batch->frozen = from->frozen;
    batch->index = from->index;
    if (from->frozen)
        b->frozen = from->index + 1;
    append(b, batch);
}

static void give_back(struct batches *b, struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        batch->slots[i]->state = SLOT_NEGOTIATING;
    recycle(b, batch);
}

void batches_on_dropped(void *ctx, uint64_t number)
{
    struct engine *e = ctx;
    struct batches *b = &e->batches;
    if (b->active && b->active->number == number) {
        if (b->running)
            coll_cancel(e->coll);
        b->running = false;
        give_back(b, TAKE(b->active));
        return;
    }
    struct batch **at = &b->first;
    while (*at && ((*at)->generation || (*at)->number != number))
        at = &(*at)->next;
    struct batch *batch = *at;
    if (!batch)
        return;
    *at = batch->next;
    if (!*at)
        b->end = at;
    give_back(b, batch);
}

void batches_on_thawed(void *ctx)
{
    struct engine *e = ctx;
    struct batches *b = &e->batches;
    /* The batches that stay have begun on every rank. Frozen batches are counted anew without them.
     */
    b->frozen = b->frozen_done = 0;
    if (b->active)
        b->active->frozen = false;
    for (struct batch *q = b->first; q; q = q->next)
        q->frozen = false;
    struct batch *mark = new_batch(e, 0);
    if (!mark)
        return;
    mark->generation = true;
    append(b, mark);
}

void batches_tell_timeline(struct engine *e, const struct slot *s, uint64_t start_ns, int status)
{
    const struct signature *sig = &s->facts.sig;
    uint64_t now = clock_ns(), ready = s->batch_ns ? s->batch_ns : start_ns;
    struct timeline_op op = {
        .kind = (enum hvd_kind)sig->kind,
        .dtype = (enum hvd_dtype)sig->dtype,
        .ndim = sig->ndim,
        .status = status,
        .submit_ns = s->submit_ns ? s->submit_ns
                     : ready      ? ready
                                  : now,
        .batch_ns = ready,
        .start_ns = start_ns,
        .end_ns = now,
        .algorithm = coll_algorithm(e->coll),
        .name = s->name,
    };
    memcpy(op.shape, sig->shape, sizeof(op.shape));
    timeline_add_at(&e->timeline, &op);
}

static void count_done(struct engine *e, const struct slot *s)
{
    counter_add(&e->counters.ops, 1);
    counter_add(&e->counters.bytes, slot_bytes(s));
}

/* Tells negotiation before the callers, which may submit the same name again at once. */
static void finish_batch(struct engine *e, struct batch *batch)
{
    if (e->neg)
        negotiate_done(e->neg, batch->number);
    e->next_tick = 0;
    counter_add(&e->counters.batches, 1);
    if (batch->frozen)
        e->batches.frozen_done++;
    for (size_t i = 0; i < batch->n; i++) {
        struct slot *s = batch->slots[i];
        if (s->has_id)
            ids_remove(&e->ids, s->id, s);
        count_done(e, s);
        if (timeline_on(&e->timeline))
            batches_tell_timeline(e, s, batch->start_ns, 0);
        e->batches.held |= s->last;
        if (s == &e->fast)
            atomic_store(&s->done, 1);
        else
            queue_finish(e->queue, s, NULL);
    }
    recycle(&e->batches, batch);
    drive_wake_waiters(e);
}

/* False for a user operation while batches.held is set, and for a frozen batch that a departed rank
 * has not run, or that this rank need not run any more (see finish_batches()). */
static bool may_begin(const struct engine *e, const struct batch *batch)
{
    const struct control *c = &e->control;
    if (e->batches.held && batch->n > 0 && batch->slots[0]->facts.sig.world != 0)
        return false;
    if (batch->frozen && backends_cannot_cancel(&e->backends) && atomic_load(&e->drive.closing))
        return false;
    return c->ndeparted == 0 || !batch->frozen || batch->index < c->departed_at;
}

static bool begin_next(struct engine *e)
{
    struct batches *b = &e->batches;
    while (b->first && may_begin(e, b->first)) {
        struct batch *batch = b->first;
        b->first = batch->next;
        if (!b->first)
            b->end = &b->first;
        batch->next = NULL;
        if (batch->generation) {
            mesh_next_generation(e->mesh);
            recycle(b, batch);
            continue;
        }
        b->active = batch;
        if (timeline_on(&e->timeline)) {
            batch->start_ns = clock_ns();
            timeline_cycle_at(&e->timeline, batch->start_ns);
        }
        return true;
    }
    return false;
}

static int start_operation(struct engine *e)
{
    struct batches *b = &e->batches;
    int rc = launch_prepare(e, b->active);
    if (rc == 0)
        rc = coll_start(e->coll, &b->op, &e->trouble);
    b->running = rc == 0;
    return rc;
}

bool batches_progress(struct engine *e)
{
    struct batches *b = &e->batches;
    bool moved = false;
    for (;;) {
        if (!b->active && !begin_next(e))
            return moved;
        struct batch *batch = b->active;
        if (!b->running && start_operation(e) < 0)
            return true;
        int rc = coll_progress(e->coll);
        if (rc == 1)
            return moved;
        if (rc < 0) {
            engine_lost(e, coll_algorithm(e->coll), rc);
            return true;
        }
        moved = true;
        launch_finish(e);
        if (e->trouble.code)
            return true;
        e->done++;
        b->running = false;
        batch->at += b->op_n;
        if (batch->at < batch->n)
            continue;
        b->active = NULL;
        finish_batch(e, batch);
    }
}

/* Spins: peers at the same place of their program start the operation within microseconds. */
static int spin_progress(struct engine *e)
{
    struct spin_state spin = {0};
    int rc;
    while ((rc = coll_progress(e->coll)) == 1 && drive_pause(e, &spin))
        ;
    return rc;
}

bool batches_run_fast(struct engine *e, const struct negotiate_next *next)
{
    struct batches *b = &e->batches;
    struct slot *s = &e->fast;
    const struct signature *sig = &s->facts.sig;
    b->tensors[0] = (struct coll_tensor){.in = s->in, .out = s->out, .count = s->facts.count};
    launch_fill_op(e, sig);
    b->op_n = 1;
    int rc = coll_start(e->coll, &b->op, &e->trouble);
    if (rc == 0)
        rc = spin_progress(e);
    if (rc == 0) {
        launch_finish(e);
        e->done++;
        negotiate_done(e->neg, next->number);
        b->frozen = next->index + 1;
        b->frozen_done++;
        counter_add(&e->counters.batches, 1);
        count_done(e, s);
        b->held |= s->last;
        return true;
    }
    struct batch *batch = new_batch(e, 1);
    if (!batch)
        return false;
    if (ids_put(&e->ids, next->id, s) < 0)
        err_set(&e->trouble, ENOMEM, "no memory for more tensors");
    s->id = next->id;
    s->has_id = true;
    s->state = SLOT_BATCHED;
    batch->slots[batch->n++] = s;
    batch->frozen = true;
    batch->number = next->number;
    batch->index = next->index;
    b->frozen = next->index + 1;
    b->active = batch;
    b->running = true;
    if (rc < 0)
        engine_lost(e, coll_algorithm(e->coll), rc);
    return false;
}

/* ---- the end of all batches ---------------------------------------------------------------------
 */

void batches_dissolve(struct engine *e)
{
    struct batches *b = &e->batches;
    struct batch *active = TAKE(b->active);
    if (active && active->at == active->n && active->n > 0)
        finish_batch(e, active);
    else if (active)
        recycle(b, active);
    batches_drop(e);
    b->frozen = b->frozen_done = 0;
}

void batches_drop(struct engine *e)
{
    struct batches *b = &e->batches;
    if (b->active)
        recycle(b, TAKE(b->active));
    while (b->first) {
        struct batch *next = b->first->next;
        recycle(b, b->first);
        b->first = next;
    }
    b->end = &b->first;
    b->running = false;
}
