/* SPDX-License-Identifier: Apache-2.0
 *
 * turn: see turn.h. Also negotiation's callbacks.
 */
#include "core/engine/turn.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch.h"
#include "core/negotiate/signature.h"

#define PROGRESS_NS (1 * CLOCK_S) /* least time between two progress reports to the agent */
#define FAREWELL_NS (1 * CLOCK_S) /* wait for batches of the plan, from the first farewell on */

static void finish_with(struct circle *c, struct slot *slot, const struct err *err)
{
    struct engine *e = c->engine;
    if (slot->device >= 0) /* it may have been in flight in an earlier epoch */
        device_drain(e->backends.device);
    if (slot->has_id)
        ids_remove(&c->ids, slot->id, slot);
    if (timeline_on(&e->timeline))
        batches_tell_timeline(e, slot, 0, coll_algorithm(c->coll), err->code);
    if (slot == &e->fast) {
        slot->status = err->code;
        slot->text = strdup(err->msg);
        atomic_store(&slot->done, 1);
    } else {
        queue_finish(e->queue, slot, err);
    }
    drive_wake_waiters(e);
}

static void on_fail(void *ctx, uint64_t id, const struct err *err)
{
    struct circle *c = ctx;
    struct slot *slot = ids_get(&c->ids, id);
    if (!slot && c->submitting && !c->submitting->has_id)
        slot = c->submitting;
    if (slot)
        finish_with(c, slot, err);
}

static void tell_agent(struct engine *e, unsigned state, const char *text)
{
    struct ctl *agent = mesh_agent(e->circle.mesh);
    if (!agent)
        return;
    struct buf body = {0};
    buf_put_u64(&body, atomic_load(&e->batches_before) + atomic_load(&e->counters.batches));
    buf_put_u64(&body, atomic_load_explicit(&e->counters.bytes, memory_order_relaxed));
    buf_put_u8(&body, (uint8_t)state);
    buf_put(&body, text, strlen(text));
    /* A failed send is ignored here: the mesh notices a lost agent. */
    if (!body.failed)
        ctl_send(agent, CTL_PROGRESS, &body, NULL, 0);
    buf_fini(&body);
}

static void on_stalled(void *ctx, const char *text)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    counter_add(&e->counters.stalls, 1);
    char whole[2048];
    if (c->name)
        snprintf(whole, sizeof(whole), "in %s: %s", c->name, text);
    else
        snprintf(whole, sizeof(whole), "%s", text);
    if (c->rank == 0)
        log_warn("%s", whole);
    tell_agent(e, 2, whole);
}

struct waiting {
    char *text;
    size_t size, len;
    int n;
};

static void add_waiting(void *ctx, struct slot *slot)
{
    struct waiting *w = ctx;
    if (!atomic_load_explicit(&slot->prioritized, memory_order_relaxed) || w->n++ >= 3 ||
        w->len + 1 >= w->size)
        return;
    char set[32] = "";
    if (slot->set)
        snprintf(set, sizeof(set), " in set %d", slot->set);
    int n = snprintf(w->text + w->len, w->size - w->len, "%shvd_wait(%s%s)", w->n > 1 ? ", " : "",
                     slot->name, set);
    w->len += n > 0 ? (size_t)n : 0;
}

static bool is_late(struct engine *e, const struct slot *slot)
{
    return slot && slot->ready && device_is_before(e->backends.device, slot->ready);
}

static bool on_late(void *ctx, uint64_t id)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    return is_late(e, ids_get(&c->ids, id));
}

/* The first tensor of the GPU lane's oldest batch whose input is not complete. NULL: there is none.
 */
static const struct slot *find_late(struct circle *c)
{
    struct engine *e = c->engine;
    const struct batch *oldest = c->batches.gpu.landing;
    for (size_t i = 0; oldest && i < oldest->n; i++)
        if (is_late(e, oldest->slots[i]))
            return oldest->slots[i];
    return NULL;
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    struct waiting w = {.text = text, .size = size};
    if (size == 0)
        return;
    text[0] = 0;
    const struct slot *late = find_late(c);
    if (late) {
        snprintf(text, size, "the GPU work that fills '%s'", late->name);
        return;
    }
    if (e->fast_busy)
        add_waiting(&w, &e->fast);
    queue_each(e->queue, add_waiting, &w);
    if (w.n > 3 && w.len + 1 < size)
        snprintf(text + w.len, size - w.len, " and %d more", w.n - 3);
    if (w.n > 0)
        return;
    uint64_t now = clock_ns();
    char last[160];
    if (e->fast_last)
        snprintf(last, sizeof(last), "%s %.120s",
                 hvd_kind_name((enum hvd_kind)e->fast.facts.sig.kind), e->fast.name);
    else
        queue_last(e->queue, last, sizeof(last));
    if (!last[0])
        snprintf(text, size, "nothing: it has not called anything yet");
    else
        snprintf(text, size, "nothing: last call was %s, %llu s ago", last,
                 (unsigned long long)((now - e->last_active_ns) / CLOCK_S));
}

/* Negotiation's callback: a rank that a batch needs does not answer. The failure ends the turn. */
static void on_lost(void *ctx, int rank, const struct err *err)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    if (rank < 0 && err->code == -EINVAL && e->boot.elastic) {
        e->conflict = *err;
        return;
    }
    if (rank < 0) {
        engine_fail(e, err); /* all ranks get the same error */
        return;
    }
    mesh_lost(c->mesh, rank, err->msg);
    if (!e->trouble.code)
        e->trouble = *err;
}

/* NCCL cannot take back what it has begun. The root's GPUs are set up when the log repeats itself:
 * names are submitted again only when they are done. */
static bool on_binds(void *ctx, const struct signature *sig)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    struct launch *l = &c->batches.gpu.launch;
    struct err unsaid = {0};
    if (sig->device < 0 || !device_is_ready(e->backends.device))
        return false;
    launch_fill_op(c, l, sig);
    return device_by_nccl(e->backends.device, &l->op, &unsaid) == 1;
}

const struct negotiate_ops turn_negotiate_ops = {
    .send = control_send,
    .batch = batches_on_batch,
    .fail = on_fail,
    .binds = on_binds,
    .dropped = batches_on_dropped,
    .thawed = batches_on_thawed,
    .stalled = on_stalled,
    .late = on_late,
    .waiting_in = on_waiting_in,
    .lost = on_lost,
};

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
    if (launch_root(c, &slot->facts.sig) < 0) {
        err_set(&err, EOWNERDEAD, "%s: its root, rank %d, is lost", slot->name,
                slot->facts.sig.root);
        finish_with(c, slot, &err);
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
        finish_with(c, slot, &err);
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

/* Whether the batch, if there is one, can be finished although ranks have departed. */
static bool can_end(const struct circle *c, const struct batch *batch)
{
    return !batch || batches_can_end(c, batch);
}

/* After a farewell: operations that cannot be finished without the departed rank fail now instead
 * of waiting. */
static void check_farewell(struct circle *c, uint64_t now)
{
    struct engine *e = c->engine;
    const struct control *t = &c->control;
    bool fast = c == &e->circle && e->fast_busy && !atomic_load(&e->fast.done);
    if ((c->ids.count == 0 && !fast) || atomic_load(&e->drive.closing))
        return;
    const struct batch *next = c->batches.active ? c->batches.active : c->batches.first;
    const struct batch *on_gpu = c->batches.gpu.first;
    if ((next || on_gpu) && can_end(c, next) && can_end(c, on_gpu))
        return;
    /* The departed rank has run more of the plan than this rank, so these batches can still be
     * finished here. */
    if (!next && !on_gpu && negotiate_frozen(c->neg) && c->batches.frozen < t->departed_at &&
        now - t->departed_ns < FAREWELL_NS)
        return;
    /* The departed rank will never enter an operation that this rank has begun, so no rank can
     * finish it. */
    if (c->batches.running && !can_end(c, next))
        coll_cancel(c->coll);
    struct err err;
    err_set(&err, ESHUTDOWN, "rank %d has shut down", circle_world_rank(c, t->first_departed));
    if (e->boot.elastic)
        engine_repair(e, &err); /* the survivors continue without that rank */
    else
        engine_fail(e, &err);
}

/* A peer that has moved on to the next epoch had finished everything that had begun in this one.
 * Operations that have not begun here never will, so this rank follows. */
static void check_moved_on(struct circle *c)
{
    struct engine *e = c->engine;
    struct err err;
    bool pending = atomic_load_explicit(&e->queue->in_flight, memory_order_relaxed) > 0;
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
    tell_agent(e, 1, "");
}

bool turn_needed(struct engine *e)
{
    if (e->failed)
        return queue_has_new(e->queue);
    if (queue_has_new(e->queue))
        return true;
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (!batches_idle(&c->batches) || (c->ids.count > 0 && !negotiate_frozen(c->neg)))
            return true;
    return false;
}

static bool take_messages(struct circle *c, enum turn_depth depth)
{
    struct err err = {0};
    int peer = -1;
    if (depth == TURN_FULL && mesh_progress(c->mesh, &peer, &err) < 0) {
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
        rc = negotiate_failed(c->neg);
    return rc;
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

/* moved: something has happened that negotiation may be waiting for. */
static void tick(struct engine *e, bool moved, uint64_t now)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (moved || now >= c->next_tick)
            c->next_tick = negotiate_tick(c->neg, now);
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

static bool take_all_messages(struct engine *e, enum turn_depth depth)
{
    bool moved = false;
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++)
        moved = take_messages(c, depth) || moved;
    return moved;
}

static bool run_batches(struct engine *e, enum turn_depth depth)
{
    bool moved = false;
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++) {
        moved = batches_progress(c) || moved;
        if (!e->failed && !e->trouble.code)
            moved = gpu_lane_progress(c, depth == TURN_FULL) || moved;
    }
    return moved;
}

static void check_peers(struct engine *e, uint64_t now)
{
    struct circle *c;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++) {
        if (c->control.ndeparted > 0)
            check_farewell(c, now);
        if (c->control.moved_on && !e->failed)
            check_moved_on(c);
    }
}

bool turn(struct engine *e, enum turn_depth depth)
{
    if (e->failed) {
        refuse_new(e);
        /* Keep forwarding farewells. */
        return !e->broken && take_messages(&e->circle, depth);
    }
    bool moved = take_new(e);
    moved = take_priority_requests(e) || moved;
    if (depth == TURN_SPIN && gpu_lane_has_news(&e->circle))
        depth = TURN_FULL;
    if (take_all_messages(e, depth))
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
    return moved;
}
