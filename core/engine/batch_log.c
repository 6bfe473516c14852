/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_log: takes the log from negotiation: batches come, are dropped by a thaw, and go into their
 * lanes. See batches.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/negotiate/signature.h"

struct batch *batches_new(struct circle *c, size_t n)
{
    struct engine *e = c->engine;
    struct batches *b = &c->batches;
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
    batch->frozen = batch->generation = batch->may_move = batch->behind = batch->done = false;
    batch->steps = 0;
    batch->n = 0;
    batch->start_ns = 0;
    batch->bytes = 0;
    return batch;
}

void batches_recycle(struct circle *c, struct batch *batch)
{
    struct batches *b = &c->batches;
    b->moving -= batch->may_move;
    batch->may_move = false;
    batch->next = b->free;
    b->free = batch;
}

static void append(struct batches *b, struct batch *batch)
{
    *b->end = batch;
    b->end = &batch->next;
}

/* Adds the batch to its lane. Every rank keeps the log's order in both lanes, whether it knows the
 * lane of a batch at once or only when its turn comes. */
static void route(struct circle *c, struct batch *batch, bool owed)
{
    struct batches *b = &c->batches;
    bool known = b->moving == 0 && device_is_ready(c->device);
    batch->behind = b->closed && !owed;
    b->closed = b->closed || batch_is_last(batch);
    known = known && !batch_needs_counts(batch);
    struct err unsaid = {0};
    int rc = batch_on_gpu(batch) && known ? gpu_lane_takes(c, batch, &unsaid) : 0;
    if (rc == 1) {
        gpu_lane_add(c, batch);
        return;
    }
    known = known && rc == 0; /* else it fails when its turn comes */
    batch->may_move = batch_on_gpu(batch) && !known && !batch_is_adasum(batch);
    b->moving += batch->may_move;
    append(b, batch);
}

/* The slot with this id. In a frozen schedule negotiate_submit() may hand out a batch before it
 * returns the id: then the slot is the one that is being submitted. */
static struct slot *slot_of(struct circle *c, uint64_t id)
{
    struct slot *slot = ids_get(&c->ids, id);
    if (!slot && c->submitting && !c->submitting->has_id)
        slot = c->submitting;
    return slot;
}

static void take_rows(struct circle *c, struct slot *s, const struct negotiate_tensor *t)
{
    const struct world_map *map = circle_map_of(c, &s->facts.sig);
    /* s->rows may be left from an earlier operation with fewer ranks. */
    if (!s->rows || !t->dim0)
        return;
    if (!map->same)
        memset(s->rows, 0, s->rows_cap * sizeof(*s->rows));
    for (int r = 0; r < c->size; r++) {
        int at = map->to_world[r]; /* -1: a joiner that the user's world does not have yet */
        if (at >= 0)
            s->rows[at] = t->dim0[r];
    }
}

/* Whether s may be in the batch with those that it has. */
static int check(struct circle *c, const struct batch *batch, const struct slot *s)
{
    struct engine *e = c->engine;
    if (!s && atomic_load(&e->drive.closing))
        return err_set(&e->trouble, ESHUTDOWN, "it has shut down");
    if (!s)
        return err_set(&e->trouble, EPROTO, "a batch with a tensor that is not known here");
    if (batch->n > 0 && !signature_fusable(&batch->slots[0]->facts.sig, &s->facts.sig))
        return err_set(&e->trouble, EPROTO, "a batch with tensors that do not fit together");
    return 0;
}

void batches_on_batch(void *ctx, const struct negotiate_batch *from)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    if (e->trouble.code || c->state == CIRCLE_FAILED || c->over.code)
        return; /* no batch runs after a failure */
    struct batch *batch = batches_new(c, from->n);
    uint64_t now = timeline_on(&e->timeline) ? clock_ns() : 0;
    if (!batch)
        return;
    for (size_t i = 0; i < from->n; i++) {
        struct slot *s = slot_of(c, from->tensors[i].id);
        if (check(c, batch, s) < 0) {
            batches_recycle(c, batch);
            return;
        }
        take_rows(c, s, &from->tensors[i]);
        s->state = SLOT_BATCHED;
        s->batch_ns = now;
        batch->bytes += batches_slot_bytes(s);
        batch->slots[batch->n++] = s;
    }
    batch->number = from->number;
    batch->frozen = from->frozen;
    route(c, batch, from->owed);
}

/* The last operation was dropped. */
static void reopen(struct batches *b)
{
    b->closed = false;
    for (struct batch *q = b->first; q; q = q->next)
        q->behind = false;
    for (struct batch *q = b->gpu.first; q; q = q->next)
        q->behind = false;
}

static void give_back(struct circle *c, struct batch *batch)
{
    if (batch_is_last(batch))
        reopen(&c->batches);
    for (size_t i = 0; i < batch->n; i++)
        batch->slots[i]->state = SLOT_NEGOTIATING;
    batches_recycle(c, batch);
}

void batches_on_dropped(void *ctx, uint64_t number)
{
    struct circle *c = ctx;
    struct batches *b = &c->batches;
    if (b->active && b->active->number == number) {
        if (b->running)
            coll_cancel(c->coll);
        b->running = false;
        give_back(c, TAKE(b->active));
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
    give_back(c, batch);
}

void batches_on_thawed(void *ctx)
{
    struct circle *c = ctx;
    struct batches *b = &c->batches;
    /* The batches that are still here stay: every rank runs them. */
    if (b->active)
        b->active->frozen = false;
    for (struct batch *q = b->first; q; q = q->next)
        q->frozen = false;
    for (struct batch *q = b->gpu.first; q; q = q->next)
        q->frozen = false;
    struct batch *mark = batches_new(c, 0);
    if (!mark)
        return;
    mark->generation = true;
    append(b, mark);
}
