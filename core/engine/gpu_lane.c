/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_lane: see gpu_lane.h.
 */
#include "core/engine/gpu_lane.h"

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"

int gpu_lane_init(struct engine *e, struct err *err)
{
    struct gpu_lane *l = &e->batches.gpu;
    l->end = &l->first;
    return launch_init(&l->launch, err);
}

void gpu_lane_fini(struct engine *e)
{
    struct gpu_lane *l = &e->batches.gpu;
    gpu_lane_drop(e);
    launch_fini(&l->launch);
    whole_fini(&l->whole);
}

bool gpu_lane_takes(struct engine *e, const struct batch *batch)
{
    struct gpu_lane *l = &e->batches.gpu;
    const struct slot *s = batch->slots[0];
    launch_fill_op(e, &l->launch, &s->facts.sig);
    l->launch.op.device = s->device;
    return device_by_nccl(e->backends.device, &l->launch.op, &e->trouble) == 1;
}

void gpu_lane_add(struct engine *e, struct batch *batch)
{
    struct gpu_lane *l = &e->batches.gpu;
    batch->next = NULL;
    *l->end = batch;
    l->end = &batch->next;
    l->calling = l->calling ? l->calling : batch;
    l->landing = l->landing ? l->landing : batch;
    l->next = l->next ? l->next : batch;
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Whether the batch needs scratch memory, or a copy afterwards: see launch.h. */
static bool must_be_alone(const struct engine *e, const struct batch *batch)
{
    const struct signature *sig = &batch->slots[0]->facts.sig;
    return !engine_map_of(e, sig)->same &&
           (sig->kind == HVD_ALLTOALL || sig->kind == HVD_REDUCESCATTER);
}

static bool may_launch(const struct engine *e, const struct batch *batch)
{
    const struct gpu_lane *l = &e->batches.gpu;
    return !l->starved && batches_may_begin(e, batch) && device_has_room(e->backends.device) &&
           !l->alone && (l->launched == l->counted || !must_be_alone(e, batch));
}

static int launch_one(struct engine *e, struct batch *batch)
{
    struct gpu_lane *l = &e->batches.gpu;
    struct nccl_flight *flight = NULL;
    bool retain = e->boot.elastic && e->size > 1;
    l->alone = must_be_alone(e, batch);
    int rc = launch_prepare(e, &l->launch, batch);
    if (rc == 0)
        rc = device_add(e->backends.device, &l->launch.op, retain, &flight, &e->trouble);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < batch->n; i++)
        batch->slots[i]->flight = flight;
    l->launched++;
    return 0;
}

/* Launches what may be launched. */
static int launch_more(struct engine *e, bool *ret_moved)
{
    struct gpu_lane *l = &e->batches.gpu;
    while (l->next && may_launch(e, l->next)) {
        struct batch *batch = l->next;
        if (timeline_on(&e->timeline))
            batch->start_ns = clock_ns();
        int rc = launch_one(e, batch);
        if (rc == -EAGAIN) {
            e->trouble.code = 0;
            l->alone = false;
            l->starved = true; /* until an operation ends */
            return 0;
        }
        if (rc < 0)
            return rc;
        *ret_moved = true;
        l->next = batch->next;
    }
    return 0;
}

void gpu_lane_launch(struct engine *e)
{
    bool moved;
    if (e->batches.gpu.next && !e->failed && !e->trouble.code)
        launch_more(e, &moved);
}

/* ---- landing -------------------------------------------------------------------------------- */

static void finish_oldest(struct engine *e)
{
    struct gpu_lane *l = &e->batches.gpu;
    struct batch *batch = l->first;
    if (!(l->first = batch->next))
        l->end = &l->first;
    l->starved = false;
    if (l->alone)
        launch_finish(e, &l->launch);
    l->alone = false;
    device_release(e->backends.device, 1);
    l->launched--;
    l->called--;
    l->landed--;
    l->counted--;
    batches_finish(e, batch, "nccl");
}

/* Notes batches whose event is recorded, so that streams can wait for it. */
static void call(struct engine *e)
{
    struct gpu_lane *l = &e->batches.gpu;
    size_t called = device_called(e->backends.device);
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

static bool may_count(const struct engine *e, size_t landed)
{
    const struct gpu_lane *l = &e->batches.gpu;
    return l->counted < landed && batches_can_end(e, l->landing);
}

bool gpu_lane_has_news(const struct engine *e)
{
    return may_count(e, e->batches.gpu.landed);
}

/* Counts batches as whole. A batch that a departed rank has not run is never counted: its event can
 * pass only because another rank has aborted its communicator. */
static void count(struct engine *e, size_t landed)
{
    struct gpu_lane *l = &e->batches.gpu;
    while (may_count(e, landed)) {
        l->counted++;
        l->landing = l->landing->next;
        whole_add(e);
    }
}

/* How many of the batches that have landed count. Where a rank has aborted its communicator, NCCL
 * on the other ranks goes on without that rank's data. It has told them of its failure before
 * (engine_let_others_hear()). So a batch counts if a look at the messages after its event finds
 * none of a failure. */
static size_t count_landed(const struct engine *e, bool heard)
{
    const struct gpu_lane *l = &e->batches.gpu;
    if (e->size == 1)
        return device_landed(e->backends.device);
    return heard ? l->landed : l->counted;
}

bool gpu_lane_progress(struct engine *e, bool heard)
{
    struct gpu_lane *l = &e->batches.gpu;
    bool moved = false;
    struct err err = {0};
    if (!l->first)
        return false;
    int rc = launch_more(e, &moved);
    if (rc == 0 && l->launched > 0)
        rc = device_progress(e->backends.device, e->mesh, &err);
    if (rc < 0) {
        e->trouble = e->trouble.code ? e->trouble : err;
        engine_lost(e, "an operation on the GPU", rc);
        return true;
    }
    size_t landed = count_landed(e, heard);
    l->landed = device_landed(e->backends.device);
    if (mesh_is_aborted(e->mesh))
        return moved;
    call(e);
    count(e, landed);
    while (l->first != l->landing && l->finished < l->whole.done) {
        l->finished++;
        finish_oldest(e);
        moved = true;
    }
    return moved || gpu_lane_has_news(e);
}

/* ---- the end -------------------------------------------------------------------------------- */

void gpu_lane_drop(struct engine *e)
{
    struct gpu_lane *l = &e->batches.gpu;
    while (l->first) {
        struct batch *batch = l->first;
        l->first = batch->next;
        batches_recycle(e, batch);
    }
    l->end = &l->first;
    l->calling = l->landing = l->next = NULL;
    l->launched = l->called = l->landed = l->counted = 0;
    l->alone = l->starved = l->revoked = false;
}

void gpu_lane_revoke(struct engine *e)
{
    e->batches.gpu.revoked = true;
    device_revoke(e->backends.device);
}

void gpu_lane_settle(struct engine *e, uint64_t done)
{
    struct gpu_lane *l = &e->batches.gpu;
    while (l->first != l->landing && l->finished < done) {
        l->finished++;
        finish_oldest(e);
    }
    l->whole.own = l->whole.done = l->finished;
    gpu_lane_drop(e);
    device_give_back(e->backends.device);
}
