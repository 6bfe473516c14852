/* SPDX-License-Identifier: Apache-2.0
 *
 * messages: see messages.h.
 */
#include "core/engine/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/pause.h"
#include "core/engine/blocked.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/turn.h"
#include "core/engine/turn_private.h"
#include "core/p2p/p2p.h"

/* How long after its farewell, and after the last bytes, a rank's messages may still arrive. */
#define DEPARTED_NS (1 * CLOCK_S)
#define SPINS       500

static struct slot *slot_of(struct p2p_op *op)
{
    return list_entry(op, struct slot, message);
}

static void on_done(void *ctx, struct p2p_op *op, const struct err *err)
{
    struct circle *c = ctx;
    struct slot *slot = slot_of(op);
    if (!err && slot->arrival)
        *slot->arrival = (struct hvd_arrival){.peer = op->from, .bytes = (int64_t)op->got};
    if (atomic_load_explicit(&slot->handle, memory_order_relaxed)) {
        queue_finish(c->engine->queue, slot, err);
    } else { /* messages_run() */
        slot->status = err ? err->code : 0;
        slot->text = err ? strdup(err->msg) : NULL;
        atomic_store(&slot->done, 1);
    }
    drive_wake_waiters(c->engine);
}

struct call {
    void (*f)(void *ctx, struct slot *slot);
    void *ctx;
};

static void call_one(void *ctx, struct p2p_op *op)
{
    const struct call *call = ctx;
    call->f(call->ctx, slot_of(op));
}

void messages_each(struct circle *c, void (*f)(void *ctx, struct slot *slot), void *ctx)
{
    struct call call = {.f = f, .ctx = ctx};
    if (c->p2p)
        p2p_each(c->p2p, call_one, &call);
}

void messages_begin(struct circle *c, struct slot *slot)
{
    struct err err = {.code = 0};
    slot->state = SLOT_BATCHED;
    int rc = c->state == CIRCLE_FAILED ? c->failure.code : 0;
    if (rc < 0)
        err = c->failure;
    else if (!c->p2p)
        rc = p2p_create(c->mesh, on_done, c, &c->p2p, &err);
    if (rc == 0)
        rc = p2p_submit(c->p2p, &slot->message, &err);
    if (rc < 0)
        on_done(c, &slot->message, &err);
}

bool messages_busy(const struct circle *c)
{
    return c->p2p && p2p_is_busy(c->p2p);
}

bool messages_move(const struct circle *c)
{
    return c->p2p && p2p_moves(c->p2p);
}

/* Ends the messages with a rank that has shut down. */
static void fail_departed(struct circle *c, int peer)
{
    struct err err = {.code = 0};
    err_set(&err, ESHUTDOWN, "rank %d has shut down", circle_world_rank(c, peer));
    p2p_fail(c->p2p, peer, &err);
}

bool messages_progress(struct circle *c)
{
    int peer = -1, rc = 0;
    if (!messages_busy(c))
        return false;
    bool moved = p2p_progress(c->p2p, &peer, &rc);
    if (rc < 0 && peer >= 0 && c->control.departed[peer])
        fail_departed(c, peer);
    else if (rc < 0)
        engine_lost(c, "a message", rc);
    return moved;
}

void messages_check_departed(struct circle *c, uint64_t now)
{
    struct err err = {.code = 0};
    int others = c->size - 1;
    for (int r = 0; c->p2p && r < c->size; r++) {
        uint64_t at = c->control.departed[r];
        if (at > 0 && p2p_has_news(c->p2p, r))
            c->control.departed[r] = at = now;
        if (at == 0 || r == c->rank || now - at < DEPARTED_NS)
            continue;
        fail_departed(c, r);
        others--;
    }
    if (!c->p2p || others > 0 || c->size == 1)
        return;
    err_set(&err, ESHUTDOWN, "all other ranks have shut down");
    p2p_fail_any(c->p2p, &err);
}

/* When to call messages_check_departed() next. */
static uint64_t departed_due(const struct circle *c, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    for (int r = 0; c->control.ndeparted > 0 && r < c->size; r++) {
        uint64_t at = c->control.departed[r];
        if (at > 0 && now - at < DEPARTED_NS && at + DEPARTED_NS < due)
            due = at + DEPARTED_NS;
    }
    return due;
}

void messages_text(const struct slot *slot, char *text, size_t size)
{
    const struct p2p_op *op = &slot->message;
    if (op->peer == P2P_ANY)
        snprintf(text, size, "message from any rank, tag %u", op->tag);
    else
        snprintf(text, size, "message %s rank %d, tag %u", op->sends ? "to" : "from", op->peer,
                 op->tag);
}

/* ---- stalls --------------------------------------------------------------------------------- */

static void state_text(const struct p2p_op *op, char *text, size_t size)
{
    if (op->sends)
        snprintf(text, size, "that rank has not received it");
    else if (op->expected > 0)
        snprintf(text, size, "%zu of its %zu bytes have come", op->moved, op->expected);
    else
        snprintf(text, size, "none has come");
}

static void report(struct circle *c, const struct p2p_op *op, uint64_t now)
{
    char peer[32] = "any rank", state[80], text[400];
    state_text(op, state, sizeof(state));
    if (op->peer != P2P_ANY)
        snprintf(peer, sizeof(peer), "rank %d", circle_world_rank(c, op->peer));
    snprintf(text, sizeof(text), "%s%srank %d has waited %llu s to %s %s with tag %u: %s",
             c->name ? c->name : "", c->name ? ": " : "", circle_world_rank(c, c->rank),
             (unsigned long long)((now - c->message_since) / CLOCK_S),
             op->sends ? "send a message to" : "receive a message from", peer, op->tag, state);
    counter_add(&c->engine->counters.stalls, 1);
    log_warn("%s", text);
    turn_tell_agent(c->engine, 2, text);
}

/* HVD_STALL_SHUTDOWN_TIME_SECONDS: the job ends, as for operations of all ranks. */
static void give_up(struct circle *c, const struct p2p_op *op)
{
    struct err err = {.code = 0};
    err_set(&err, ETIMEDOUT,
            "rank %d has waited for a message with tag %u for HVD_STALL_SHUTDOWN_TIME_SECONDS",
            circle_world_rank(c, c->rank), op->tag);
    engine_abort_all(c->engine, err.msg);
    engine_fail(c->engine, &err);
}

static uint64_t stall_tick(struct circle *c, uint64_t now)
{
    uint64_t limit = c->engine->set.stall_ns, end = c->engine->set.stall_shutdown_ns;
    const struct p2p_op *op = c->p2p && limit ? p2p_oldest(c->p2p) : NULL;
    if (!op)
        return UINT64_MAX;
    if (op->number != c->message_oldest) {
        c->message_oldest = op->number;
        c->message_since = c->message_told = now;
    }
    end = end ? c->message_since + end : UINT64_MAX;
    if (now >= end) {
        give_up(c, op);
        return UINT64_MAX;
    }
    if (now < c->message_told + limit)
        return c->message_told + limit < end ? c->message_told + limit : end;
    report(c, op, now);
    blocked_ask(c, now);
    c->message_told = now;
    return now + limit < end ? now + limit : end;
}

uint64_t messages_tick(struct circle *c, uint64_t now)
{
    uint64_t stall = stall_tick(c, now), departed = departed_due(c, now);
    return stall < departed ? stall : departed;
}

/* ---- a message that its caller waits for ----------------------------------------------------- */

void messages_submitted(struct engine *e, int set)
{
    if (!drive_try(e)) {
        drive_submitted(e, set);
        return;
    }
    turn(e, TURN_SPIN);
    drive_leave(e);
}

static int run_queued(struct engine *e, const struct hvd_message *m, struct err *err)
{
    hvd_handle handle;
    int rc = queue_submit_messages(e->queue, m, 1, &handle, err);
    if (rc < 0)
        return rc;
    struct slot *slot = queue_find(e->queue, handle);
    messages_submitted(e, m->set);
    return drive_collect(e, slot, handle, err);
}

/* Sets the fields that the driver reads of a slot that is not in the queue. */
static void init_slot(struct slot *slot, const struct hvd_message *m)
{
    atomic_init(&slot->handle, 0);
    atomic_init(&slot->open, 0);
    atomic_init(&slot->done, 0);
    atomic_init(&slot->aloft, 0);
    atomic_init(&slot->prioritized, 0);
    slot->set = m->set;
    slot->is_message = true;
    slot->meet = NULL;
    slot->arrival = m->ret_arrival;
    slot->flight = NULL;
    slot->text = NULL;
    slot->has_id = false;
}

/* The peer is often in its call, too. Returns whether the message has ended. */
static bool spin(struct circle *c, struct slot *slot)
{
    for (int i = 0; c->spin && c->mesh->shm && i < SPINS; i++) {
        messages_progress(c);
        if (atomic_load_explicit(&slot->done, memory_order_relaxed))
            return true;
        if (i > SPINS / 2)
            cpu_pause();
    }
    return false;
}

int messages_run(struct engine *e, const struct hvd_message *m, struct err *err)
{
    if (!drive_try(e))
        return run_queued(e, m, err);
    struct circle *c = sets_circle(e, m->set);
    /* Messages that were submitted before come first. */
    if (e->failed || !c || c->state != CIRCLE_WORKS || queue_has_new(e->queue)) {
        drive_leave(e);
        return run_queued(e, m, err);
    }
    struct slot slot;
    int rc = queue_check_message(e->queue, m, c->size, &slot.message, err);
    if (rc < 0) {
        drive_leave(e);
        return rc;
    }
    init_slot(&slot, m);
    messages_begin(c, &slot);
    bool done = spin(c, &slot);
    if (!done) {
        slot.taken_ns = clock_ns();
        c->next_tick = 0; /* see messages_tick() */
        drive_until(e, &slot);
    }
    drive_leave(e);
    if (!done)
        drive_wait(e, &slot);
    rc = queue_status(&slot, err);
    free(slot.text);
    return rc;
}

/* ---- the end -------------------------------------------------------------------------------- */

void messages_fail(struct circle *c, const struct err *err)
{
    if (c->p2p)
        p2p_fail(c->p2p, -1, err);
}

void messages_fini(struct circle *c)
{
    p2p_destroy(c->p2p);
    c->p2p = NULL;
}
