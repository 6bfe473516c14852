/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: see batches.h.
 */
#include "core/engine/batches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch.h"
#include "core/negotiate/signature.h"

#define SMALL_BYTES (64u << 10)

int batches_init(struct circle *c, struct err *err)
{
    struct batches *b = &c->batches;
    b->end = &b->first;
    int rc = launch_init(&b->launch, err);
    if (rc == 0)
        rc = gpu_lane_init(c, err);
    return rc == 0 ? batches_resize(c, err) : rc;
}

int batches_resize(struct circle *c, struct err *err)
{
    int rc = launch_resize(&c->batches.launch, c->size, err);
    return rc == 0 ? launch_resize(&c->batches.gpu.launch, c->size, err) : rc;
}

static void free_chain(struct batch *chain)
{
    for (struct batch *next; chain; chain = next) {
        next = chain->next;
        free(chain->slots);
        free(chain);
    }
}

void batches_fini(struct circle *c)
{
    struct batches *b = &c->batches;
    gpu_lane_fini(c);
    free_chain(b->active);
    free_chain(b->first);
    free_chain(b->free);
    launch_fini(&b->launch);
    memset(b, 0, sizeof(*b));
}

bool batch_is_last(const struct batch *batch)
{
    return batch->n > 0 && batch->slots[0]->last;
}

bool batch_needs_counts(const struct batch *batch)
{
    return batch->n > 0 && batch->slots[0]->facts.sig.kind == HVD_ALLTOALL && batch->steps == 0;
}

bool batch_is_adasum(const struct batch *batch)
{
    const struct signature *sig = batch->n > 0 ? &batch->slots[0]->facts.sig : NULL;
    return sig && sig->kind == HVD_ALLREDUCE && sig->op == HVD_ADASUM;
}

bool batch_on_gpu(const struct batch *batch)
{
    return batch->n > 0 && batch->slots[0]->device >= 0;
}

size_t batches_slot_bytes(const struct slot *s)
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
    return b->active || !gpu_lane_idle(&b->gpu);
}

void batches_tell_timeline(struct engine *e, const struct slot *s, uint64_t start_ns,
                           const char *algorithm, int status)
{
    const struct signature *sig = &s->facts.sig;
    uint64_t now = clock_ns(), ready = s->batch_ns ? s->batch_ns : start_ns;
    const struct circle *c = sets_circle(e, s->set);
    struct timeline_op op = {
        .kind = signature_asked(sig),
        .dtype = (enum hvd_dtype)sig->dtype,
        .ndim = sig->ndim,
        .status = status,
        .submit_ns = s->submit_ns ? s->submit_ns
                     : ready      ? ready
                                  : now,
        .batch_ns = ready,
        .start_ns = start_ns,
        .end_ns = now,
        .algorithm = algorithm,
        .name = s->name,
        .set = s->set,
        .set_text = c ? c->name : NULL,
    };
    memcpy(op.shape, sig->shape, sizeof(op.shape));
    if (sig->kind == HVD_ALLTOALL) /* see signature_has_dim0() */
        op.shape[0] = s->facts.inner ? (int64_t)(s->facts.count / s->facts.inner) : 0;
    timeline_add_at(&e->timeline, &op);
}

static void count_done(struct engine *e, const struct slot *s)
{
    counter_add(&e->counters.ops, 1);
    counter_add(&e->counters.bytes, batches_slot_bytes(s));
}

/* Tells negotiation before the callers, which may submit the same name again at once. why: the
 * batch was refused; NULL: it is done. */
static void end_batch(struct circle *c, struct batch *batch, const char *algorithm,
                      const struct err *why)
{
    struct engine *e = c->engine;
    if (c->neg)
        negotiate_done(c->neg, batch->number);
    c->next_tick = 0;
    for (size_t i = 0; i < batch->n; i++) {
        struct slot *s = batch->slots[i];
        struct err own = why ? *why : (struct err){0};
        if (s->has_id)
            ids_remove(&c->ids, s->id, s);
        if (why)
            err_prefix(&own, "%s", s->name);
        else
            count_done(e, s);
        if (timeline_on(&e->timeline))
            batches_tell_timeline(e, s, batch->start_ns, algorithm, why ? why->code : 0);
        c->batches.held |= s->last;
        if (s == &e->fast)
            atomic_store(&s->done, 1);
        else
            queue_finish(e->queue, s, why ? &own : NULL);
    }
    batches_recycle(c, batch);
    drive_wake_waiters(e);
}

void batches_finish(struct circle *c, struct batch *batch, const char *algorithm)
{
    counter_add(&c->engine->counters.batches, 1);
    end_batch(c, batch, algorithm, NULL);
}

bool batches_may_begin(const struct circle *c, const struct batch *batch)
{
    const struct engine *e = c->engine;
    const struct batches *b = &c->batches;
    if ((b->held || batch->behind) && batch->n > 0 && batch->slots[0]->facts.sig.world != 0)
        return false;
    if (batch_is_last(batch) && (negotiate_owes(c->neg) || (b->gpu.first && !b->gpu.first->behind)))
        return false;
    return !batch->frozen || !backends_cannot_cancel(&e->backends) ||
           !atomic_load(&e->drive.closing);
}

static bool begin_next(struct circle *c)
{
    struct engine *e = c->engine;
    struct batches *b = &c->batches;
    while (b->first && batches_may_begin(c, b->first)) {
        struct batch *batch = b->first;
        b->first = batch->next;
        if (!b->first)
            b->end = &b->first;
        batch->next = NULL;
        if (batch->generation) {
            mesh_next_generation(c->mesh);
            batches_recycle(c, batch);
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

/* The setup of the GPUs, for the operation that `launch` would begin. */
static void fill_setup(struct circle *c, const struct batch *batch)
{
    struct launch *l = &c->batches.launch;
    l->op = coll_barrier;
    l->op.device = batch->slots[0]->device;
}

static enum batch_step next_step(const struct circle *c)
{
    const struct batch *batch = c->batches.active;
    if (batch_on_gpu(batch) && !device_is_ready(c->device))
        return STEP_GPUS;
    bool before = batch_needs_counts(batch) ||
                  (batch_is_adasum(batch) && batch->steps + 1 < launch_adasum_steps(c, batch));
    return before ? STEP_BEFORE : STEP_LAST;
}

static int start_operation(struct circle *c)
{
    struct engine *e = c->engine;
    struct batches *b = &c->batches;
    int rc = 0;
    launch_begin(&b->launch);
    b->step = next_step(c);
    if (b->step == STEP_GPUS) {
        fill_setup(c, b->active);
        sets_look_at_gpu(c, b->launch.op.device);
    } else if (batch_is_adasum(b->active))
        rc = launch_adasum(c, &b->launch, b->active);
    else if (b->step == STEP_BEFORE)
        rc = launch_counts(c, &b->launch, b->active->slots[0]);
    else
        rc = launch_prepare(c, &b->launch, b->active);
    if (rc == 0)
        rc = coll_start(c->coll, &b->launch.op, &e->trouble);
    b->running = rc == 0;
    return rc;
}

/* The operation that ran has ended. */
static void end_step(struct circle *c)
{
    struct batches *b = &c->batches;
    launch_finish(c, &b->launch);
    c->done++;
    b->running = false;
    if (b->step == STEP_GPUS)
        return;
    if (batch_is_adasum(b->active) && b->step == STEP_BEFORE)
        launch_adasum_take(c, &b->launch, b->active);
    else if (b->step == STEP_BEFORE)
        launch_take_counts(c, &b->launch, b->active->slots[0]);
    b->active->steps++;
}

/* The lane of the active batch is known: if it is the other one, hands the batch over. If the
 * batch is impossible, it fails, on all ranks at this place of the log. Returns whether it did
 * either. */
static bool move(struct circle *c)
{
    struct batches *b = &c->batches;
    struct err err = {0};
    if (next_step(c) != STEP_LAST)
        return false;
    int rc = gpu_lane_takes(c, b->active, &err);
    b->active->may_move = false;
    b->moving--;
    if (rc == 1)
        gpu_lane_add(c, TAKE(b->active));
    if (rc < 0)
        end_batch(c, TAKE(b->active), "none", &err);
    return rc != 0;
}

bool batches_progress(struct circle *c)
{
    struct engine *e = c->engine;
    struct batches *b = &c->batches;
    bool moved = false;
    for (;;) {
        if (e->trouble.code)
            return true;
        if (!b->active && !begin_next(c))
            return moved;
        struct batch *batch = b->active;
        if (!b->running && batch->may_move && move(c))
            continue;
        if (!b->running && start_operation(c) < 0)
            return true;
        int rc = coll_progress(c->coll);
        if (rc == 1)
            return moved;
        if (rc < 0) {
            engine_lost(c, coll_algorithm(c->coll), rc);
            return true;
        }
        moved = true;
        end_step(c);
        if (e->trouble.code)
            return true;
        if (b->step != STEP_LAST)
            continue;
        b->active = NULL;
        batches_finish(c, batch, batch_is_adasum(batch) ? "adasum" : coll_algorithm(c->coll));
    }
}

/* Spins: peers at the same place of their program start the operation within microseconds. */
static int spin_progress(struct circle *c)
{
    struct engine *e = c->engine;
    struct spin_state spin = {0};
    int rc;
    while ((rc = coll_progress(c->coll)) == 1 && drive_pause(e, &spin))
        ;
    return rc;
}

bool batches_run_fast(struct circle *c, const struct negotiate_next *next)
{
    struct engine *e = c->engine;
    struct batches *b = &c->batches;
    struct slot *s = &e->fast;
    const struct signature *sig = &s->facts.sig;
    launch_begin(&b->launch);
    b->launch.tensors[0] =
        (struct coll_tensor){.in = s->in, .out = s->out, .count = s->facts.count};
    launch_fill_op(c, &b->launch, sig);
    b->step = STEP_LAST;
    b->closed = s->last;
    int rc = coll_start(c->coll, &b->launch.op, &e->trouble);
    if (rc == 0)
        rc = spin_progress(c);
    if (rc == 0) {
        launch_finish(c, &b->launch);
        c->done++;
        negotiate_done(c->neg, next->number);
        counter_add(&e->counters.batches, 1);
        count_done(e, s);
        b->held |= s->last;
        return true;
    }
    struct batch *batch = batches_new(c, 1);
    if (!batch)
        return false;
    if (ids_put(&c->ids, next->id, s) < 0)
        err_set(&e->trouble, ENOMEM, "no memory for more tensors");
    s->id = next->id;
    s->has_id = true;
    s->state = SLOT_BATCHED;
    batch->slots[batch->n++] = s;
    batch->frozen = true;
    batch->number = next->number;
    b->active = batch;
    b->running = true;
    if (rc < 0)
        engine_lost(c, coll_algorithm(c->coll), rc);
    return false;
}

/* ---- the end of all batches ---------------------------------------------------------------------
 */

void batches_dissolve(struct circle *c)
{
    struct batches *b = &c->batches;
    struct batch *active = TAKE(b->active);
    if (active && active->done)
        batches_finish(c, active, "repair");
    else if (active)
        batches_recycle(c, active);
    batches_drop(c);
}

static void drop_host(struct circle *c)
{
    struct batches *b = &c->batches;
    if (b->active)
        batches_recycle(c, TAKE(b->active));
    while (b->first) {
        struct batch *next = b->first->next;
        batches_recycle(c, b->first);
        b->first = next;
    }
    b->end = &b->first;
    b->running = b->closed = false;
}

void batches_give_up(struct circle *c)
{
    const struct batch *lists[] = {c->batches.active, c->batches.first};
    for (size_t i = 0; i < 2; i++)
        for (const struct batch *q = lists[i]; q; q = q->next)
            if (!q->generation)
                negotiate_done(c->neg, q->number);
    drop_host(c);
}

void batches_drop(struct circle *c)
{
    drop_host(c);
    gpu_lane_drop(c);
}
