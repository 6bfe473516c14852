/* SPDX-License-Identifier: Apache-2.0
 *
 * fast: see fast.h.
 */
#include "core/engine/fast.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/launch.h"

/* Returns whether this operation may be the plan's next one: no other is in flight on this rank. */
static bool can_be_next(struct engine *e, const struct hvd_request *r)
{
    return r->name && r->set == 0 && r->op != HVD_ADASUM && !atomic_load(&e->queue->joined) &&
           !e->fast_busy && !e->failed && !timeline_on(&e->timeline) &&
           batches_idle(&e->circle.batches) && !e->circle.batches.held &&
           e->circle.control.ndeparted == 0 && !queue_has_new(e->queue) &&
           negotiate_frozen(e->circle.neg);
}

/* On 0 e->fast belongs to this call until its operation is done. 1: it is not the plan's next
 * operation, or its root is lost. */
static int begin(struct engine *e, const struct hvd_request *r, enum fast_for whose,
                 struct negotiate_next *ret, struct err *err)
{
    struct slot *s = &e->fast;
    const struct world *w = e->world;
    int rc = request_check(r, r->name, w->rank, w->size, &s->facts, err);
    if (rc < 0)
        return rc;
    s->facts.sig.world = whose == FAST_USER && e->boot.elastic ? w->epoch : 0;
    if (launch_root(&e->circle, &s->facts.sig) < 0)
        return 1; /* the slow path reports the lost root */
    if (!negotiate_try_next(e->circle.neg, r->name, &s->facts.sig, ret))
        return 1;
    memccpy(s->name, r->name, 0, HVD_MAX_NAME); /* negotiation knows the name, so it fits */
    e->fast_last = true;
    s->device = -1;
    s->in = r->input;
    s->out = r->output;
    s->status = 0;
    s->has_id = false;
    s->last = whose == FAST_OWN_LAST;
    atomic_store_explicit(&s->done, 0, memory_order_relaxed);
    atomic_store_explicit(&s->prioritized, 0, memory_order_relaxed);
    return 0;
}

/* Runs the operation if it is the plan's next one. Called and returns with the progress lock held.
 * 1: another operation is the plan's next one, and nothing was done. */
static int run_planned(struct engine *e, const struct hvd_request *r, enum fast_for whose,
                       struct err *err)
{
    struct negotiate_next next;
    struct slot *s = &e->fast;
    int rc = begin(e, r, whose, &next, err);
    if (rc != 0)
        return rc;
    e->fast_busy = true;
    atomic_fetch_add_explicit(&e->queue->submitted, 1, memory_order_relaxed);
    if (!batches_run_fast(&e->circle, &next)) {
        /* Peers are late: from here on the operation is driven like any other batch. */
        s->taken_ns = clock_ns();
        drive_until(e, s);
        drive_leave(e);
        drive_wait(e, s);
        drive_lock(e);
    }
    rc = queue_status(s, err);
    free(s->text);
    s->text = NULL;
    e->fast_busy = false;
    return rc;
}

static int run_submitted(struct engine *e, const struct hvd_request *r, enum fast_for whose,
                         bool locked, struct err *err)
{
    hvd_handle handle;
    uint64_t now = timeline_on(&e->timeline) ? clock_ns() : 0;
    int rc = whose == FAST_USER
                 ? queue_submit(e->queue, r, 1, now, &handle, err)
                 : queue_submit_own(e->queue, r, whose == FAST_OWN_LAST, now, &handle, err);
    struct slot *slot = rc == 0 ? queue_find(e->queue, handle) : NULL;
    if (locked) {
        if (slot)
            drive_until(e, slot);
        drive_leave(e);
    } else if (slot) {
        drive_submitted(e, r->set);
    }
    if (rc == -ESTALE)
        queue_await_open(e->queue);
    if (rc < 0)
        return rc;
    if (!slot)
        return err_set(err, EINVAL, "%s: another thread has released this handle",
                       r->name ? r->name : "no name");
    return drive_collect(e, slot, handle, err);
}

int fast_run(struct engine *e, const struct hvd_request *request, enum fast_for whose,
             struct err *err)
{
    if (!drive_try(e))
        return run_submitted(e, request, whose, false, err);
    if (can_be_next(e, request)) {
        int rc = run_planned(e, request, whose, err);
        if (rc <= 0) {
            drive_leave(e);
            return rc;
        }
    }
    return run_submitted(e, request, whose, true, err);
}
