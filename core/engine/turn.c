/* SPDX-License-Identifier: Apache-2.0
 *
 * turn: see turn.h.
 */
#include "core/engine/turn.h"

#include "core/base/clock.h"
#include "core/engine/blocked.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch.h"
#include "core/engine/launch_order.h"
#include "core/engine/meet.h"
#include "core/engine/messages.h"
#include "core/engine/messages_departed.h"
#include "core/engine/set_private.h"
#include "core/engine/turn_private.h"
#include "core/negotiate/order.h"
#include "core/negotiate/signature.h"

#define PROGRESS_NS (1 * CLOCK_S) /* least time between two progress reports to the agent */

void turn_prioritize(struct engine *e, struct slot *slot, enum priority priority)
{
    bool waits = priority == PRIORITY_WAITED;
    /* Also for a slot in a running batch, so that the stall report can name what this rank waits
     * for. */
    if (waits)
        atomic_store_explicit(&slot->prioritized, PRIORITY_WAITED, memory_order_relaxed);
    if (slot->state != SLOT_NEGOTIATING || !slot->has_id)
        return;
    struct circle *c = sets_circle(e, slot->set);
    if (c->state == CIRCLE_LOST)
        return;
    negotiate_prioritize(c->neg, slot->id, waits, clock_ns());
    c->next_tick = 0;
}

static void prioritize_one(void *ctx, struct slot *slot)
{
    int priority = atomic_load_explicit(&slot->prioritized, memory_order_relaxed);
    if (priority)
        turn_prioritize(ctx, slot, (enum priority)priority);
}

void turn_submit(struct circle *c, struct slot *slot, uint64_t now)
{
    struct engine *e = c->engine;
    struct err err = {0};
    slot->taken_ns = now;
    slot->announced = false;
    if (slot->meet) {
        meet_submit(c, slot, now);
        return;
    }
    if (slot->is_message) {
        messages_begin(c, slot);
        return;
    }
    if (c->state == CIRCLE_FAILED || c->over.code) {
        turn_finish_with(c, slot, c->over.code ? &c->over : &c->failure);
        return;
    }
    if (c->state == CIRCLE_LOST) { /* until resubmit_circle() */
        slot->state = SLOT_NEGOTIATING;
        return;
    }
    if (c->set == 0 && slot->facts.sig.world != 0 && e->worlds->nbroken > 0) {
        set_unit_error(e, slot->name, &err);
        turn_finish_with(c, slot, &err);
        return;
    }
    if (launch_root(c, &slot->facts.sig) < 0) {
        err_set(&err, EOWNERDEAD, "%s: its root, rank %d, is lost", slot->name,
                slot->facts.sig.root);
        turn_finish_with(c, slot, &err);
        return;
    }
    /* After a loss some members of a group may be missing: they were done before, or their root is
     * lost. So groups are dissolved until the next boundary, for requests submitted before and
     * after the repair alike. */
    if (!circle_map_of(c, &slot->facts.sig)->same)
        signature_ungroup(&slot->facts.sig);
    slot->state = SLOT_NEGOTIATING;
    c->submitting = slot;
    int rc = negotiate_submit(c->neg, slot->name, &slot->facts.sig, now, &slot->id, &err);
    c->submitting = NULL;
    if (rc == -ENOMEM) {
        /* The other ranks, and the other members of the operation's group, would wait forever for
         * it. */
        err_set(&e->trouble, ENOMEM, "no memory for %s", slot->name);
        return;
    }
    if (rc < 0) {
        turn_finish_with(c, slot, &err);
        return;
    }
    slot->has_id = true;
    if (ids_put(&c->ids, slot->id, slot) < 0)
        err_set(&e->trouble, ENOMEM, "no memory for more tensors");
    prioritize_one(e, slot);
}

static void tick_soon(struct engine *e, uint64_t at)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        c->next_tick = at;
}

static bool take_new(struct engine *e)
{
    if (!queue_has_new(e->queue))
        return false;
    uint64_t now = clock_ns();
    for (struct slot *s = queue_take(e->queue), *next; s; s = next) {
        next = s->next; /* a failed slot belongs to its waiter at once */
        turn_submit(sets_circle(e, s->set), s, now);
    }
    tick_soon(e, 0);
    e->fast_last = false;
    return true;
}

static bool take_priority_requests(struct engine *e)
{
    if (!atomic_load(&e->drive.priority_requests) ||
        !atomic_exchange(&e->drive.priority_requests, 0))
        return false;
    queue_each(e->queue, prioritize_one, e);
    return true;
}

/* A rank that could not wait for the end of the log has shut down: it is not known which batches it
 * has run. */
static void fail_unended(struct circle *c, const struct err *why)
{
    struct engine *e = c->engine;
    if (e->boot.elastic) {
        engine_repair(e, why);
        return;
    }
    engine_abort_all(e, why->msg);
    engine_fail(e, why);
}

/* After a farewell: operations that are in no batch lack the departed rank, and fail. Batches are
 * finished before, because every rank runs those before the end of the log. */
static void check_farewell(struct circle *c)
{
    struct engine *e = c->engine;
    bool fast = c == &e->circle && e->fast_busy && !atomic_load(&e->fast.done);
    bool busy = !batches_idle(&c->batches) || negotiate_owes(c->neg);
    struct err err;
    if ((c->ids.count == 0 && !fast) || atomic_load(&e->drive.closing) ||
        (busy && negotiate_has_ended(c->neg)))
        return;
    err_set(&err, ESHUTDOWN, "rank %d has shut down",
            circle_world_rank(c, c->control.first_departed));
    if (busy)
        fail_unended(c, &err);
    else if (!e->boot.elastic)
        circle_fail(c, &err);
    else if (!messages_nccl_aloft(&c->messages.nccl)) /* those with other ranks end first */
        engine_repair(e, &err);                       /* the survivors continue without that rank */
}

/* A peer that has moved on to the next epoch had finished everything that had begun in this one.
 * Operations that have not begun here never will, so this rank follows, unless a thread of its own
 * in hvd_commit() is about to. */
static void check_moved_on(struct circle *c)
{
    struct engine *e = c->engine;
    struct err err;
    if (e->circle.batches.held)
        return;
    bool pending = c->set == 0
                       ? atomic_load_explicit(&e->queue->in_flight, memory_order_relaxed) > 0
                       : c->ids.count > 0;
    pending = pending || messages_in_flight(c);
    if (!pending || !batches_idle(&c->batches))
        return;
    err_set(&err, ECONNRESET, "rank %d: peers have moved on to the next epoch", c->rank);
    engine_repair(e, &err);
}

static void report_progress(struct engine *e, uint64_t now)
{
    uint64_t batches = atomic_load_explicit(&e->counters.batches, memory_order_relaxed);
    if (now - e->progress_told_ns < PROGRESS_NS || batches == e->progress_told)
        return;
    e->progress_told = batches;
    e->progress_told_ns = now;
    turn_tell_agent(e, 1, "");
}

bool turn_needed(struct engine *e)
{
    if (e->failed)
        return queue_has_new(e->queue);
    if (queue_has_new(e->queue))
        return true;
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (!batches_idle(&c->batches) || messages_busy(c) ||
            (c->ids.count > 0 && !negotiate_frozen(c->neg)))
            return true;
    return false;
}

static bool take_messages(struct circle *c, enum turn_depth depth)
{
    struct err err = {0};
    int peer = -1;
    if (depth == TURN_FULL && mesh_progress(c->mesh, &peer, &err) < 0) {
        if (c->state == CIRCLE_FAILED || (!circle_works(c) && err.code == -ECONNRESET))
            return false;
        if (err.code == -ECONNRESET && peer >= 0)
            circle_lost(c, &err);
        else
            engine_lost(c, err.msg, err.code);
        return true;
    }
    return depth != TURN_SPIN && control_progress(c);
}

static void refuse_new(struct engine *e)
{
    if (queue_has_new(e->queue)) {
        queue_fail_all(e->queue, &e->failure);
        drive_wake_waiters(e);
    }
    tick_soon(e, UINT64_MAX);
}

/* -errno of the first negotiation that has failed. */
static int negotiation_failed(struct engine *e)
{
    int rc = 0;
    struct circle *c;
    for (size_t i = 0; rc == 0 && (c = engine_circle(e, i)) != NULL; i++)
        rc = circle_works(c) ? negotiate_failed(c->neg) : 0;
    if (rc == 0 && e->circle.order)
        rc = order_failed(e->circle.order);
    return rc == 0 ? rendezvous_failed(e->circle.rendezvous) : rc;
}

static void check_trouble(struct engine *e)
{
    if (e->failed)
        return; /* after a failed repair there is no negotiation */
    if (e->conflict.code) {
        struct err why = e->conflict;
        e->conflict.code = 0;
        engine_repair(e, &why);
        return;
    }
    int rc = e->trouble.code ? 0 : negotiation_failed(e);
    if (rc == -ENOMEM)
        err_set(&e->trouble, ENOMEM, "no memory to negotiate");
    else if (rc < 0)
        err_set(&e->trouble, -rc, "negotiation has failed");
    if (e->trouble.code)
        engine_lost(&e->circle, e->trouble.msg, e->trouble.code);
}

static uint64_t tick_circle(struct circle *c, uint64_t now)
{
    if (c->order)
        launch_order_tick(c);
    uint64_t due = negotiate_tick(c->neg, now);
    uint64_t met = c->rendezvous ? rendezvous_tick(c->rendezvous, now) : UINT64_MAX;
    uint64_t message = messages_tick(c, now);
    uint64_t blocked = blocked_tick(c, now);
    due = met < due ? met : due;
    due = blocked < due ? blocked : due;
    return message < due ? message : due;
}

/* moved: something has happened that negotiation may be waiting for. */
static void tick(struct engine *e, bool moved, uint64_t now)
{
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++)
        if (c->state != CIRCLE_WORKS || !c->neg) /* other ranks need negotiation until it ends */
            c->next_tick = UINT64_MAX;
        else if (moved || now >= c->next_tick)
            c->next_tick = tick_circle(c, now);
}

void turn_note(struct engine *e)
{
    if (e->failed) {
        refuse_new(e);
        return;
    }
    bool moved = take_new(e);
    moved = take_priority_requests(e) || moved;
    tick(e, moved, clock_ns());
    check_trouble(e);
}

/* Goes on after the engine has failed, to forward farewells. */
static bool take_all_messages(struct engine *e, enum turn_depth depth)
{
    bool moved = false, failed = e->failed;
    struct circle *c;
    for (size_t i = 0; e->failed == failed && (c = engine_circle(e, i)) != NULL; i++)
        moved = take_messages(c, depth) || moved;
    return moved;
}

static bool run_batches(struct engine *e, enum turn_depth depth)
{
    bool moved = messages_gpu_progress(e);
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++) {
        if (!circle_works(c))
            continue;
        moved = batches_progress(c) || moved;
        if (!e->failed)
            moved = messages_progress(c) || moved;
        if (!e->failed && !e->trouble.code)
            moved = gpu_lane_progress(c, depth == TURN_FULL) || moved;
        if (!e->failed && !e->trouble.code)
            moved = messages_nccl_progress(c, depth == TURN_FULL) || moved;
    }
    return moved;
}

static void check_peers(struct engine *e, uint64_t now)
{
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++) {
        if (c->control.ndeparted > 0 && circle_works(c))
            check_farewell(c);
        if (c->control.ndeparted > 0 && circle_works(c)) /* it may have begun another epoch */
            messages_check_departed(c, now);
        if (e->circle.control.ndeparted > 0 && circle_works(c))
            launch_order_check_departed(c, now);
        if (c->control.moved_on && !e->failed)
            check_moved_on(c);
    }
}

static bool has_gpu_news(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (gpu_lane_has_news(c) || messages_nccl_has_news(&c->messages.nccl))
            return true;
    return false;
}

bool turn(struct engine *e, enum turn_depth depth)
{
    if (e->failed) {
        refuse_new(e);
        return !e->broken && take_all_messages(e, depth);
    }
    bool moved = take_new(e);
    moved = take_priority_requests(e) || moved;
    if (depth == TURN_SPIN && has_gpu_news(e))
        depth = TURN_FULL;
    if (take_all_messages(e, depth))
        moved = true;
    if (sets_go_on(e))
        moved = true;
    if (e->failed)
        return true;
    uint64_t now = clock_ns();
    tick(e, moved, now);
    /* Check first: after a batch that could not be allocated, the next batch must not run in its
     * place. */
    check_trouble(e);
    if (e->failed)
        return true;
    if (run_batches(e, depth))
        moved = true;
    if (moved || depth == TURN_FULL)
        report_progress(e, now);
    check_trouble(e);
    check_peers(e, now);
    retired_bury(e);
    sets_tell_of_gpu(e);
    return moved;
}
