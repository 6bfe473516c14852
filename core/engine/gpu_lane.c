/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_lane: see gpu_lane.h.
 */
#include "core/engine/gpu_lane.h"

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch_order.h"

int gpu_lane_init(struct circle *c, struct err *err)
{
    struct gpu_lane *l = &c->batches.gpu;
    l->end = &l->first;
    return launch_init(&l->launch, err);
}

void gpu_lane_fini(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    gpu_lane_drop(c);
    launch_fini(&l->launch);
    whole_fini(&l->whole);
}

int gpu_lane_takes(struct circle *c, const struct batch *batch, struct err *err)
{
    struct gpu_lane *l = &c->batches.gpu;
    const struct slot *s = batch->slots[0];
    launch_fill_op(c, &l->launch, &s->facts.sig);
    l->launch.op.device = s->device;
    return device_by_nccl(c->device, &l->launch.op, err);
}

void gpu_lane_add(struct circle *c, struct batch *batch)
{
    struct gpu_lane *l = &c->batches.gpu;
    batch->next = NULL;
    *l->end = batch;
    l->end = &batch->next;
    l->calling = l->calling ? l->calling : batch;
    l->landing = l->landing ? l->landing : batch;
    l->next = l->next ? l->next : batch;
    l->untold = l->untold ? l->untold : batch;
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Whether the batch needs scratch memory, or a copy afterwards: see launch.h. */
static bool must_be_alone(const struct circle *c, const struct batch *batch)
{
    const struct signature *sig = &batch->slots[0]->facts.sig;
    return !circle_map_of(c, sig)->same &&
           (sig->kind == HVD_ALLTOALL || sig->kind == HVD_REDUCESCATTER);
}

static bool may_launch(const struct circle *c, const struct batch *batch)
{
    const struct gpu_lane *l = &c->batches.gpu;
    return !(l->starved && l->launched > 0) && batches_may_begin(c, batch) &&
           device_has_room(c->device) && !l->alone &&
           (l->launched == l->counted || !must_be_alone(c, batch)) && launch_order_allows(c);
}

static int launch_one(struct circle *c, struct batch *batch)
{
    struct engine *e = c->engine;
    struct gpu_lane *l = &c->batches.gpu;
    struct nccl_flight *flight = NULL;
    bool retain = e->boot.elastic && c->size > 1;
    l->alone = must_be_alone(c, batch);
    launch_begin(&l->launch);
    int rc = launch_prepare(c, &l->launch, batch);
    if (rc == 0)
        rc = device_add(c->device, &l->launch.op, retain, &flight, &e->trouble);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < batch->n; i++)
        batch->slots[i]->flight = flight;
    l->launched++;
    launch_order_note(c);
    return 0;
}

/* Launches what may be launched. */
static int launch_more(struct circle *c, bool *ret_moved)
{
    struct engine *e = c->engine;
    struct gpu_lane *l = &c->batches.gpu;
    launch_order_announce(e);
    while (l->next && !e->trouble.code && may_launch(c, l->next)) {
        struct batch *batch = l->next;
        if (timeline_on(&e->timeline))
            batch->start_ns = clock_ns();
        int rc = launch_one(c, batch);
        if (rc == -EAGAIN) {
            e->trouble.code = 0;
            l->alone = false;
            l->starved = true; /* until an operation ends */
            return 0;
        }
        if (rc < 0)
            return rc;
        *ret_moved = true;
        l->untold = l->untold == batch ? batch->next : l->untold; /* nobody had to be told */
        l->next = batch->next;
    }
    return 0;
}

void gpu_lane_launch(struct circle *c)
{
    struct engine *e = c->engine;
    bool moved;
    if (c->batches.gpu.next && !e->failed && !e->trouble.code)
        launch_more(c, &moved);
}

/* ---- landing -------------------------------------------------------------------------------- */

static void finish_oldest(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    struct batch *batch = l->first;
    if (!(l->first = batch->next))
        l->end = &l->first;
    l->starved = false;
    if (l->alone)
        launch_finish(c, &l->launch);
    l->alone = false;
    device_release(c->device, 1);
    l->launched--;
    l->called--;
    l->landed--;
    l->counted--;
    batches_finish(c, batch, "nccl");
}

/* Notes batches whose event is recorded, so that streams can wait for it. */
static void call(struct circle *c)
{
    struct engine *e = c->engine;
    struct gpu_lane *l = &c->batches.gpu;
    size_t called = device_called(c->device);
    bool news = false;
    while (l->called < called) {
        struct batch *batch = l->calling;
        l->called++;
        l->calling = batch->next;
        for (size_t i = 0; i < batch->n && !e->boot.elastic; i++)
            atomic_store(&batch->slots[i]->aloft, 1);
        news = !e->boot.elastic;
    }
    if (news)
        drive_wake_waiters(e);
}

bool gpu_lane_has_news(const struct circle *c)
{
    return c->batches.gpu.counted < c->batches.gpu.landed;
}

/* Counts batches as whole. */
static void count(struct circle *c, size_t landed)
{
    struct gpu_lane *l = &c->batches.gpu;
    while (l->counted < landed) {
        l->counted++;
        l->landing = l->landing->next;
        whole_add(c);
    }
}

/* How many of the batches that have landed count. Where a rank has aborted its communicator, NCCL
 * on the other ranks goes on without that rank's data. It has told them of its failure before
 * (engine_let_others_hear()). So a batch counts if a look at the messages after its event finds
 * none of a failure. */
static size_t count_landed(const struct circle *c, bool heard)
{
    const struct gpu_lane *l = &c->batches.gpu;
    if (c->size == 1)
        return device_landed(c->device);
    return heard ? l->landed : l->counted;
}

bool gpu_lane_progress(struct circle *c, bool heard)
{
    struct engine *e = c->engine;
    struct gpu_lane *l = &c->batches.gpu;
    bool moved = false;
    struct err err = {0};
    if (!l->first)
        return false;
    int rc = launch_more(c, &moved);
    if (rc == 0 && l->launched > 0)
        rc = device_progress(c->device, c->mesh, &err);
    if (rc < 0) {
        e->trouble = e->trouble.code ? e->trouble : err;
        engine_lost(c, "an operation on the GPU", rc);
        return true;
    }
    size_t landed = count_landed(c, heard);
    l->landed = device_landed(c->device);
    launch_order_landed(c);
    if (mesh_is_aborted(c->mesh))
        return moved;
    call(c);
    count(c, landed);
    while (l->first != l->landing && l->finished < l->whole.done) {
        l->finished++;
        finish_oldest(c);
        moved = true;
    }
    return moved || gpu_lane_has_news(c);
}

/* ---- the end -------------------------------------------------------------------------------- */

enum coll_wait gpu_lane_wait(const struct circle *c)
{
    const struct gpu_lane *l = &c->batches.gpu;
    const struct messages_nccl *m = &c->messages.nccl;
    if (l->launched > l->called || m->uncalled > 0)
        return COLL_ASKS;
    return l->launched > l->counted || m->launched > 0 ? COLL_NAPS : COLL_WAKES;
}

bool gpu_lane_is_aloft(const struct circle *c)
{
    return c->batches.gpu.launched > c->batches.gpu.counted ||
           messages_nccl_aloft(&c->messages.nccl);
}

bool gpu_lane_in_use(const struct circle *c)
{
    return !gpu_lane_idle(&c->batches.gpu) || messages_nccl_aloft(&c->messages.nccl) ||
           device_owes(c->device);
}

void gpu_lane_drop(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    bool any = l->launched > 0 || messages_nccl_aloft(&c->messages.nccl);
    if (any && !l->revoked) /* a set ends or is made anew, and the world is not */
        gpu_lane_revoke(c);
    device_give_back(c->device);
    while (l->first) {
        struct batch *batch = l->first;
        l->first = batch->next;
        batches_recycle(c, batch);
    }
    l->end = &l->first;
    l->calling = l->landing = l->next = l->untold = NULL;
    l->launched = l->called = l->landed = l->counted = 0;
    l->alone = l->starved = l->revoked = false;
}

void gpu_lane_revoke(struct circle *c)
{
    c->batches.gpu.revoked = true;
    device_revoke(c->device);
}

void gpu_lane_settle(struct circle *c, uint64_t done)
{
    struct gpu_lane *l = &c->batches.gpu;
    gpu_lane_revoke(c); /* a set may be made anew alone, and with other ranks */
    while (l->first != l->landing && l->finished < done) {
        l->finished++;
        finish_oldest(c);
    }
    l->whole.own = l->whole.done = l->finished;
    gpu_lane_drop(c);
}
