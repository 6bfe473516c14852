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
#include "core/engine/messages_departed.h"
#include "core/engine/set_private.h"
#include "core/engine/turn.h"
#include "core/engine/turn_private.h"
#include "core/p2p/p2p.h"

#define SPINS 500

static struct slot *slot_of(struct p2p_op *op)
{
    return list_entry(op, struct slot, message);
}

/* The rank's number in the set as its user sees it; -1: the user does not see it yet. */
static int user_rank(const struct circle *c, int rank)
{
    return c->map.same ? rank : c->map.to_world[rank];
}

void messages_finish(struct engine *e, struct slot *slot, const struct err *err)
{
    if (atomic_load_explicit(&slot->handle, memory_order_relaxed)) {
        queue_finish(e->queue, slot, err);
    } else { /* messages_run() */
        slot->status = err ? err->code : 0;
        slot->text = err ? strdup(err->msg) : NULL;
        atomic_store(&slot->done, 1);
    }
    drive_wake_waiters(e);
}

static void on_done(void *ctx, struct p2p_op *op, const struct err *err)
{
    struct circle *c = ctx;
    struct slot *slot = slot_of(op);
    struct err named;
    if (err && err->code == -EMSGSIZE) {
        named = *err;
        err_prefix(&named, "from rank %d", user_rank(c, op->from));
        err = &named;
    }
    if (!err && !op->sends && slot->arrival)
        *slot->arrival =
            (struct hvd_arrival){.peer = user_rank(c, op->from), .bytes = (int64_t)op->got};
    bool on_gpu = op->staged || op->source;
    messages_nccl_flies_not(c->engine, slot);
    if (err && op->staged) {
        messages_nccl_drop(c, op);
        messages_nccl_drain(c);
    }
    if (!on_gpu || !messages_gpu_lands(c->engine, slot, err))
        messages_finish(c->engine, slot, err);
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
    if (c->messages.p2p)
        p2p_each(c->messages.p2p, call_one, &call);
}

/* The members of the circle's mesh; NULL: the job is not elastic. */
static const uint32_t *members_of(const struct circle *c)
{
    return c->members ? c->members : c->mesh->members;
}

static int note_members(struct circle *c, struct err *err)
{
    struct messages *m = &c->messages;
    size_t bytes = (size_t)c->size * sizeof(*m->members);
    uint32_t *members = malloc(bytes);
    if (!members)
        return err_set(err, ENOMEM, "no memory for messages");
    memcpy(members, members_of(c), bytes);
    free(m->members);
    m->members = members;
    m->size = c->size;
    m->epoch = atomic_load(&c->engine->epoch);
    return 0;
}

static int open_p2p(struct circle *c, struct err *err)
{
    bool elastic = c->engine->boot.elastic;
    int rc = elastic ? note_members(c, err) : 0;
    const struct p2p_stage *stage = &c->engine->messages_gpu.stage;
    return rc == 0 ? p2p_create(c->mesh, elastic, stage, on_done, c, &c->messages.p2p, err) : rc;
}

/* Whether the rank is part of a broken unit. The circle of a set has no such rank. */
static bool is_broken(const struct circle *c, int rank)
{
    return c->set == 0 && c->engine->worlds->broken[rank];
}

/* From the rank that the user has named to that of the mesh. -EOWNERDEAD: it is lost, or it or this
 * rank is part of a broken unit. */
static int find_peer(const struct circle *c, struct slot *slot, struct err *err)
{
    const struct engine *e = c->engine;
    const struct world_map *map = circle_map_of(c, &slot->facts.sig);
    struct p2p_op *op = &slot->message;
    int peer = op->peer;
    uint32_t world = slot->facts.sig.world;
    if (world && world != e->world->epoch && e->previous && world != e->previous->epoch)
        return err_set(err, ESTALE,
                       "a message: the world has changed twice since it was submitted");
    if (peer != P2P_ANY && !map->same)
        op->peer = peer < map->size ? map->to_mesh[peer] : -1;
    if (peer != P2P_ANY && op->peer < 0)
        return err_set(err, EOWNERDEAD, "a message: rank %d%s%s is lost, or has shut down", peer,
                       c->name ? " of " : "", c->name ? c->name : "");
    if (op->sends && messages_has_left(c, op->peer))
        return err_set(err, ESHUTDOWN, "a message: rank %d has shut down",
                       circle_world_rank(c, op->peer));
    bool broken = is_broken(c, c->rank) || (peer != P2P_ANY && is_broken(c, op->peer));
    return broken ? set_unit_error(e, "a message", err) : 0;
}

/* All other ranks that the user sees are lost: ends receives from any rank. */
static void fail_if_alone(struct circle *c)
{
    struct err err = {.code = 0};
    if (c->size > 1 || c->map.size == 1)
        return;
    err_set(&err, EOWNERDEAD, "a message: all other ranks are lost, or have shut down");
    p2p_fail_any(c->messages.p2p, &err);
}

void messages_begin(struct circle *c, struct slot *slot)
{
    struct err err = {.code = 0};
    if (c->state == CIRCLE_LOST) {
        slot->state = SLOT_NEGOTIATING;
        return;
    }
    slot->state = SLOT_BATCHED;
    int rc = c->state == CIRCLE_FAILED ? c->failure.code : 0;
    if (rc < 0)
        err = c->failure;
    else
        rc = find_peer(c, slot, &err);
    if (rc == 0 && slot->message.staged)
        rc = messages_gpu_open(c->engine, slot->device, &err);
    if (rc == 0 && !c->messages.p2p)
        rc = open_p2p(c, &err);
    if (rc == 0)
        rc = p2p_submit(c->messages.p2p, &slot->message, &err);
    if (rc < 0)
        on_done(c, &slot->message, &err);
    else
        fail_if_alone(c);
}

bool messages_in_flight(const struct circle *c)
{
    return (c->messages.p2p && p2p_oldest(c->messages.p2p)) || messages_gpu_busy(c->engine, c->set);
}

bool messages_busy(const struct circle *c)
{
    return (c->messages.p2p && p2p_is_busy(c->messages.p2p)) ||
           messages_gpu_busy(c->engine, c->set);
}

bool messages_move(const struct circle *c)
{
    return c->messages.p2p && p2p_moves(c->messages.p2p);
}

bool messages_progress(struct circle *c)
{
    int peer = -1, rc = 0;
    if (!c->messages.p2p || !p2p_is_busy(c->messages.p2p))
        return false;
    bool moved = p2p_progress(c->messages.p2p, &peer, &rc);
    if (rc < 0 && peer >= 0 && c->control.departed[peer])
        messages_fail_departed(c, peer);
    else if (rc < 0)
        engine_lost(c, "a message", rc);
    return moved;
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

static void waiting_text(const struct circle *c, const struct p2p_op *op, uint64_t now, char *text,
                         size_t size)
{
    char peer[32] = "any rank", state[80];
    state_text(op, state, sizeof(state));
    if (op->peer != P2P_ANY)
        snprintf(peer, sizeof(peer), "rank %d", circle_world_rank(c, op->peer));
    snprintf(text, size, "%s%srank %d has waited %llu s to %s %s with tag %u: %s",
             c->name ? c->name : "", c->name ? ": " : "", circle_world_rank(c, c->rank),
             (unsigned long long)((now - c->messages.since) / CLOCK_S),
             op->sends ? "send a message to" : "receive a message from", peer, op->tag, state);
}

static void report(struct circle *c, const struct p2p_op *op, uint64_t now)
{
    char text[400];
    waiting_text(c, op, now, text, sizeof(text));
    counter_add(&c->engine->counters.stalls, 1);
    log_warn("%s", text);
    turn_tell_agent(c->engine, 2, text);
}

/* HVD_STALL_SHUTDOWN_TIME_SECONDS: the job ends, as for operations of all ranks. */
static void give_up(struct circle *c, const struct p2p_op *op, uint64_t now)
{
    struct err err = {.code = 0};
    char text[400];
    waiting_text(c, op, now, text, sizeof(text));
    err_set(&err, ETIMEDOUT, "%s (HVD_STALL_SHUTDOWN_TIME_SECONDS)", text);
    engine_abort_all(c->engine, err.msg);
    engine_fail(c->engine, &err);
}

static uint64_t stall_tick(struct circle *c, uint64_t now)
{
    uint64_t limit = c->engine->set.stall_ns, end = c->engine->set.stall_shutdown_ns;
    const struct p2p_op *op = c->messages.p2p && limit ? p2p_oldest(c->messages.p2p) : NULL;
    if (!op)
        return UINT64_MAX;
    if (op->number != c->messages.oldest) {
        c->messages.oldest = op->number;
        c->messages.since = c->messages.told = now;
    }
    end = end ? c->messages.since + end : UINT64_MAX;
    if (now >= end) {
        give_up(c, op, now);
        return UINT64_MAX;
    }
    if (now < c->messages.told + limit)
        return c->messages.told + limit < end ? c->messages.told + limit : end;
    report(c, op, now);
    blocked_ask(c, now);
    c->messages.told = now;
    return now + limit < end ? now + limit : end;
}

uint64_t messages_tick(struct circle *c, uint64_t now)
{
    uint64_t stall = stall_tick(c, now), departed = messages_departed_due(c, now);
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
    slot->facts.sig.world = 0; /* the user's world of now */
    slot->is_message = true;
    slot->may_fly = false;
    slot->meet = NULL;
    slot->arrival = m->ret_arrival;
    slot->flight = NULL;
    slot->ready = NULL;
    slot->status = 0;
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
    if (e->failed || !c || !circle_works(c) || queue_has_new(e->queue)) {
        drive_leave(e);
        return run_queued(e, m, err);
    }
    struct slot slot;
    int rc = queue_check_message(e->queue, m, c->map.size, &slot.message, err);
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

/* ---- epochs --------------------------------------------------------------------------------- */

void messages_suspend(struct circle *c)
{
    if (!c->messages.p2p)
        return;
    for (int r = 0; r < c->size && c->control.ndeparted > 0; r++)
        if (c->control.departed[r] > 0 && r != c->rank && !messages_nccl_binds(c, r))
            messages_fail_departed(c, r);
    p2p_suspend(c->messages.p2p);
}

/* Whether the messages with the member are over: it is gone, or it, or this rank, is or was part of
 * a broken unit since the last mesh. Such a rank has left all of its sets, and has dropped their
 * messages. */
static bool is_over(const struct circle *c, uint32_t member)
{
    const struct world *w = c->engine->worlds;
    uint32_t since = c->messages.epoch;
    return !world_has_process(w, since, member) || world_was_broken(w, since, member) ||
           world_was_broken(w, since, w->members[w->rank]);
}

/* The new number of each rank that p2p knows; -1: its messages are over. Members keep their order,
 * so each is found near the one before it. */
static int *renumber(const struct circle *c, struct err *err)
{
    const struct messages *m = &c->messages;
    const uint32_t *members = members_of(c);
    int *now = malloc((size_t)m->size * sizeof(*now)), at = 0;
    if (!now) {
        err_set(err, ENOMEM, "no memory for messages");
        return NULL;
    }
    for (int r = 0; r < m->size; r++) {
        now[r] = -1;
        if (is_over(c, m->members[r]))
            continue;
        for (int i = 0; i < c->size && now[r] < 0; i++, at = (at + 1) % c->size)
            if (members[at] == m->members[r])
                now[r] = at;
    }
    return now;
}

static void fail_lost(struct circle *c, int peer)
{
    const struct world *seen = c->engine->world;
    int rank = seen ? world_rank_of(seen, c->messages.members[peer]) : -1;
    struct err err = {.code = 0};
    if (rank < 0)
        err_set(&err, EOWNERDEAD, "a message: its other rank is lost, or has shut down");
    else
        err_set(&err, EOWNERDEAD, "a message: rank %d of the job is lost, or has shut down", rank);
    p2p_fail(c->messages.p2p, peer, &err);
}

int messages_resume(struct circle *c, struct err *err)
{
    struct messages *m = &c->messages;
    messages_nccl_drain(c);
    if (!m->p2p)
        return 0;
    int *now = renumber(c, err);
    if (!now)
        return -ENOMEM;
    for (int r = 0; r < m->size; r++)
        if (now[r] < 0)
            fail_lost(c, r);
    int rc = p2p_resume(m->p2p, c->mesh, now, err);
    free(now);
    if (rc == 0)
        rc = note_members(c, err);
    if (rc == 0)
        fail_if_alone(c);
    return rc;
}

/* ---- the end -------------------------------------------------------------------------------- */

void messages_fail(struct circle *c, const struct err *err)
{
    if (c->messages.p2p)
        p2p_fail(c->messages.p2p, -1, err);
}

void messages_fini(struct circle *c)
{
    p2p_destroy(c->messages.p2p);
    messages_nccl_fini(&c->messages.nccl);
    free(c->messages.members);
    c->messages = (struct messages){.p2p = NULL};
}
