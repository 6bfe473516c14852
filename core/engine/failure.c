/* SPDX-License-Identifier: Apache-2.0
 *
 * failure: see failure.h.
 */
#include "core/engine/failure.h"

#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/fd.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/launch_order.h"
#include "core/engine/messages.h"

#define HEAR_MS 1000 /* from a message that tells of a failure to the abort of NCCL */

void engine_explain(struct err *err)
{
    char advice[128];
    if (!fd_limit_reached(err->code) || strstr(err->msg, "(ulimit"))
        return; /* or fd_limit_need() has said it already */
    fd_out_text(err->code, advice, sizeof(advice));
    err_prefix(err, "%s", advice);
}

/* A communication library still uses the buffers of the operation in flight. Keeps our buffers
 * allocated, and adds to err that callers must not use or free theirs. */
static void abandon_tensors(struct engine *e, const char *who, struct err *err)
{
    const struct err why = *err;
    err_set(err, -why.code,
            "%s; %s cannot take back the operation that was in flight, and may still read and "
            "write its tensors: do not use or free them before this process ends",
            why.msg, who);
    e->backends.abandoned = true;
    e->circle.batches.launch.scratch = NULL;
    e->circle.batches.launch.scratch_cap = 0;
    queue_abandon(e->queue);
}

/* Number i of the circles of the world and of all sets, also of those whose epoch has ended. */
static struct circle *any_circle(struct engine *e, size_t i)
{
    return i == 0 ? &e->circle : i <= e->sets.n ? &e->sets.table[i - 1]->circle : NULL;
}

void engine_revoke_gpus(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = any_circle(e, i)) != NULL; i++)
        if (c->batches.gpu.launched > 0 || messages_nccl_aloft(&c->messages.nccl))
            gpu_lane_revoke(c);
}

/* Whether a communicator that has work in flight, of which others may still count results, is to be
 * aborted. */
static bool others_count_on(struct engine *e)
{
    bool any = false;
    struct circle *c;
    for (size_t i = 0; (c = any_circle(e, i)) != NULL; i++) {
        any = any || (c->size > 1 && gpu_lane_is_aloft(c) && !c->batches.gpu.revoked);
    }
    return any;
}

/* Without negotiation there is no mesh whose messages could still be on their way out. */
void engine_let_others_hear(struct engine *e)
{
    const struct timespec nap = {.tv_nsec = CLOCK_MS};
    uint64_t deadline = deadline_in_ms(HEAR_MS);
    struct err err;
    if (!others_count_on(e))
        return;
    while (!deadline_passed(deadline)) {
        struct circle *c;
        for (size_t i = 0; (c = any_circle(e, i)) != NULL; i++)
            if (c->neg) {
                mesh_progress(c->mesh, NULL, &err);
                control_flush(c);
            }
        nanosleep(&nap, NULL);
    }
}

/* Gives up what the circle has in flight on the GPU. */
static void end_device(struct circle *c)
{
    if (gpu_lane_in_use(c))
        device_end(c->device);
}

static void end_fast(struct engine *e, const struct err *why)
{
    if (!e->fast_busy || atomic_load(&e->fast.done))
        return;
    e->fast.status = why->code;
    e->fast.text = strdup(why->msg);
    atomic_store(&e->fast.done, 1);
}

void engine_fail_all(struct engine *e, const struct err *why)
{
    struct err told = *why, *err = &told;
    engine_let_others_hear(e);
    /* Stop the operation first: callers may reuse their tensors as soon as they learn of the
     * failure. */
    struct circle *c;
    engine_revoke_gpus(e); /* all, before one is waited for: they share streams */
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        coll_stop(c->coll);
        end_device(c);
    }
    coll_stop(e->circle.remains.coll);
    if (coll_abandoned(e->circle.coll))
        abandon_tensors(e, coll_abandoned(e->circle.coll), err);
    sets_drop_lost(e, err);
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        batches_drop(c);
        messages_fail(c, err);
        ids_fini(&c->ids);
    }
    messages_gpu_end(e, -1, err);
    end_fast(e, err);
    queue_fail_all(e->queue, err);
    drive_wake_waiters(e);
}

void engine_send_bye(struct engine *e, enum bye_for whose, const struct err *why)
{
    if (e->said_bye || (!e->boot.elastic && whose == BYE_THIS_RANK))
        return;
    bool goes_on = !e->boot.elastic && whose == BYE_OTHER_RANK && why->code == -ESHUTDOWN;
    boot_bye(&e->boot, why ? why->code : 0, e->circle.done, why ? why->msg : "");
    e->said_bye = !goes_on;
}

/* This rank is about to abort communicators by which NCCL runs messages: the other ranks must not
 * take what comes then for the bytes, nor wait for messages that they have agreed upon. */
static void tell_of_messages(struct engine *e, const char *why)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (c->messages.nccl.first) {
            engine_abort_all(e, why);
            return;
        }
}

void engine_fail(struct engine *e, const struct err *err)
{
    if (e->failed)
        return;
    e->failed = true;
    atomic_store(&e->sets.over, 1);
    e->failure = *err;
    e->trouble.code = 0;
    if (atomic_load(&e->drive.closing))
        return;
    if (err->code == -ESHUTDOWN || err->code == -ECONNRESET)
        engine_send_bye(e, BYE_OTHER_RANK, err);
    /* A rank that was asked to leave has not failed. */
    log_line(err->code == -ESHUTDOWN ? LOG_INFO : LOG_WARN, "%s", err->msg);
    tell_of_messages(e, err->msg);
    engine_fail_all(e, err);
}

void engine_fail_rank(struct engine *e, const struct err *why)
{
    struct err err = *why;
    e->broken = true;
    engine_explain(&err);
    engine_send_bye(e, BYE_THIS_RANK, &err);
    engine_fail(e, &err);
}

void engine_repair(struct engine *e, const struct err *why)
{
    struct err err = {0};
    e->conflict.code = 0; /* everything begins anew */
    inject_point("lost");
    /* Tells the peers unless that was done already. Ranks of this host do not see a connection end,
     * and no rank may return a result after it has reported (REPAIR.md). */
    if (e->boot.elastic)
        mesh_abort(e->circle.mesh, why->msg);
    if (!e->boot.elastic || atomic_load(&e->drive.closing)) {
        e->broken = true;
        engine_fail(e, why);
        return;
    }
    log_info("%s", why->msg);
    e->trouble.code = 0;
    if (repair_next_epoch(e, CTL_REVOKED, why->msg, &err) < 0)
        engine_fail_rank(e, &err);
    drive_wake_waiters(e);
}

void engine_abort_all(struct engine *e, const char *why)
{
    mesh_abort(e->circle.mesh, why);
    sets_abort(e, why);
}

/* The world's mesh sees the same loss as a set's, and may know more: takes its word if there is
 * one.
 */
void circle_lost(struct circle *c, const struct err *why)
{
    struct engine *e = c->engine;
    struct err err = {0};
    int peer = -1;
    if (c == &e->circle) {
        engine_repair(e, why);
        return;
    }
    if (e->failed || !circle_works(c))
        return;
    if (mesh_why(e->circle.mesh, &peer, &err) == 0) {
        err_set(&err, ECONNRESET, "in %s: %s", c->name, why->msg);
        mesh_abort(e->circle.mesh, err.msg);
    }
    engine_repair(e, &err);
}

void circle_break(struct circle *c, uint32_t world, const struct err *why)
{
    struct engine *e = c->engine;
    log_info("in %s: %s", c->name, why->msg);
    c->state = CIRCLE_FAILED;
    c->failure = *why;
    coll_stop(c->coll);
    launch_order_leave(c);
    if (gpu_lane_in_use(c))
        gpu_lane_settle(c, c->batches.gpu.finished);
    device_drain(c->device);
    batches_drop(c);
    messages_fail(c, why);
    messages_gpu_end(e, c->set, why);
    ids_fini(&c->ids);
    queue_fail_set(e->queue, c->set, world, true, why);
    drive_wake_waiters(e);
}

static void say_over(struct circle *c, const struct err *why)
{
    if (c->set != 0) {
        log_info("in %s: %s", c->name, why->msg);
        return;
    }
    if (why->code == -ESHUTDOWN)
        engine_send_bye(c->engine, BYE_OTHER_RANK, why);
    log_line(why->code == -ESHUTDOWN ? LOG_INFO : LOG_WARN, "%s", why->msg);
}

void circle_fail(struct circle *c, const struct err *why)
{
    struct engine *e = c->engine;
    if (e->boot.elastic && c == &e->circle) {
        engine_fail(e, why);
        return;
    }
    if (e->boot.elastic) { /* it has no mesh in the next epoch */
        circle_break(c, UINT32_MAX, why);
        return;
    }
    say_over(c, why);
    c->over = *why;
    negotiate_end(c->neg);
    c->next_tick = 0;
    coll_stop(c->coll);
    batches_give_up(c);
    ids_fini(&c->ids);
    if (c == &e->circle)
        end_fast(e, why);
    queue_fail_set(e->queue, c->set, UINT32_MAX, false, why);
    drive_wake_waiters(e);
}

void engine_lost(struct circle *c, const char *what, int rc)
{
    struct engine *e = c->engine;
    const struct err *why = coll_why(c->coll);
    struct err err = {0};
    int peer = c->rank;
    bool works = circle_works(c);
    /* Where the end of a connection is no loss, a message that this rank could not take still is.
     */
    if (c->state == CIRCLE_FAILED || (!works && rc == -ECONNRESET))
        return;
    if (rc == -ENOTSUP || rc == -EXDEV) {
        err_set(&err, ENOTSUP, "%s", why ? why->msg : what);
        /* Every rank has reached the same conclusion from the same data. */
        if (rc == -ENOTSUP) {
            if (e->trouble.code)
                engine_fail(e, &err);
            else
                circle_fail(c, &err);
            return;
        }
        /* Only this rank has failed; the other ranks can go on without it. */
        engine_abort_all(e, err.msg);
        engine_fail_rank(e, &err);
        return;
    }
    bool local = rc == -EPROTO || rc == -ENOMEM || rc == -EOVERFLOW;
    int known = !works  ? 0
                : local ? mesh_progress(c->mesh, &peer, &err)
                        : mesh_why(c->mesh, &peer, &err);
    /* No rank is lost, but a peer has moved on to the next epoch in order, so this rank follows. */
    if (known == 0 && rc == -ECONNRESET && e->boot.elastic) {
        known = err_set(&err, ECONNRESET, "rank %d: %s: a peer has moved on to the next epoch",
                        circle_world_rank(c, c->rank), what);
        peer = 0;
    }
    if (known == -ECONNRESET && peer >= 0) {
        circle_lost(c, &err);
        return;
    }
    if (known == 0) {
        int code = rc == -ENOMEM ? ENOMEM : ECONNRESET;
        if (e->trouble.code) /* e->trouble has a text already */
            err_set(&err, code, "rank %d: %s", circle_world_rank(c, c->rank), e->trouble.msg);
        else
            err_set(&err, code, "rank %d: %s: %s", circle_world_rank(c, c->rank), what,
                    why ? why->msg : strerror(-rc));
        engine_abort_all(e, err.msg);
    }
    engine_fail_rank(e, &err);
}
