/* SPDX-License-Identifier: Apache-2.0
 *
 * turn_ops: negotiation's callbacks, what it tells the engine of a circle. See turn.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/log.h"
#include "core/engine/blocked.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch.h"
#include "core/engine/messages.h"
#include "core/engine/turn.h"
#include "core/engine/turn_private.h"
#include "core/negotiate/signature.h"

void turn_finish_with(struct circle *c, struct slot *slot, const struct err *err)
{
    struct engine *e = c->engine;
    if (slot->device >= 0) /* it may have been in flight in an earlier epoch */
        device_drain(c->device);
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
        turn_finish_with(c, slot, err);
}

void turn_tell_agent(struct engine *e, unsigned state, const char *text)
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
    turn_tell_agent(e, 2, whole);
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
    char set[32] = "", name[sizeof(slot->name)];
    if (slot->set)
        snprintf(set, sizeof(set), " in set %d", slot->set);
    if (slot->is_message)
        messages_text(slot, name, sizeof(name));
    else
        snprintf(name, sizeof(name), "%s", slot->name);
    int n = snprintf(w->text + w->len, w->size - w->len, slot->meet ? "%s%s%s" : "%shvd_wait(%s%s)",
                     w->n > 1 ? ", " : "", name, set);
    w->len += n > 0 ? (size_t)n : 0;
}

/* Of messages_run(): it is not in the queue. */
static void add_called(void *ctx, struct slot *slot)
{
    if (!atomic_load_explicit(&slot->handle, memory_order_relaxed))
        add_waiting(ctx, slot);
}

static bool is_late(struct circle *c, const struct slot *slot)
{
    return slot && slot->ready && device_is_before(c->device, slot->ready);
}

static bool on_late(void *ctx, uint64_t id)
{
    struct circle *c = ctx;
    return is_late(c, ids_get(&c->ids, id));
}

/* The first tensor of the GPU lane's oldest batch whose input is not complete. NULL: there is none.
 */
static const struct slot *find_late(struct circle *c)
{
    const struct batch *oldest = c->batches.gpu.landing;
    for (size_t i = 0; oldest && i < oldest->n; i++)
        if (is_late(c, oldest->slots[i]))
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
    if (atomic_load(&e->queue->joined)) {
        snprintf(text, size, "hvd_join()");
        return;
    }
    if (e->fast_busy)
        add_waiting(&w, &e->fast);
    queue_each(e->queue, add_waiting, &w);
    struct circle *of;
    for (size_t i = 0; (of = engine_circle(e, i)) != NULL; i++)
        messages_each(of, add_called, &w);
    if (w.n > 3 && w.len + 1 < size)
        snprintf(text + w.len, size - w.len, " and %d more", w.n - 3);
    if (w.n > 0)
        return;
    uint64_t now = clock_ns();
    char last[160];
    if (e->fast_last)
        snprintf(last, sizeof(last), "%s %.120s",
                 hvd_kind_name(signature_asked(&e->fast.facts.sig)), e->fast.name);
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
        if (c != &e->circle)
            engine_abort_all(e, err->msg); /* only the set's ranks get the error */
        engine_fail(e, err);
        return;
    }
    mesh_lost(c->mesh, rank, err->msg);
    if (c != &e->circle)
        mesh_lost(e->circle.mesh, circle_world_rank(c, rank), err->msg);
    if (!e->trouble.code)
        e->trouble = *err;
}

/* device_by_nccl() of such an operation, once the root knows it: 0 before. */
static int by_nccl(struct circle *c, const struct signature *sig, struct err *err)
{
    struct launch *l = &c->batches.gpu.launch;
    if (sig->device < 0 || !device_is_ready(c->device))
        return 0;
    launch_fill_op(c, l, sig);
    return device_by_nccl(c->device, &l->op, err);
}

/* NCCL cannot take back what it has begun. The root's GPUs are set up when the log repeats itself:
 * names are submitted again only when they are done. */
static bool on_binds(void *ctx, const struct signature *sig)
{
    struct err unsaid = {0};
    return by_nccl(ctx, sig, &unsaid) == 1;
}

static bool on_refuses(void *ctx, const struct signature *sig, struct err *ret_why)
{
    return by_nccl(ctx, sig, ret_why) < 0;
}

static void on_wanted(void *ctx, const char *name, const struct signature *sig)
{
    join_wanted(ctx, name, sig);
}

static void on_joined(void *ctx, int last)
{
    join_is_over(ctx, last);
}

const struct negotiate_ops turn_negotiate_ops = {
    .send = control_send,
    .batch = batches_on_batch,
    .fail = on_fail,
    .binds = on_binds,
    .refuses = on_refuses,
    .dropped = batches_on_dropped,
    .thawed = batches_on_thawed,
    .stalled = on_stalled,
    .late = on_late,
    .waiting_in = on_waiting_in,
    .lacks = blocked_lacks,
    .lost = on_lost,
    .wanted = on_wanted,
    .joined = on_joined,
};
