/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_lane: the lane of the log's batches that NCCL runs. They are launched in the log's order,
 * several in flight, independently of the host's batches (batches.h), and are done in that order.
 * The lanes of all circles share one order (launch_order.h). Called with the progress lock held.
 *
 * A batch is *whole* on a rank when its results are in the outputs there. In a job of fixed size it
 * is then done. In an elastic job it is done when it is whole on every rank (whole.h); until then
 * copies of the inputs that it has overwritten are retained, so that after a loss the survivors can
 * run it again. Both counts rise over the epochs.
 */
#ifndef HVD_ENGINE_GPU_LANE_H
#define HVD_ENGINE_GPU_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/engine/launch.h"
#include "core/engine/whole.h"

struct batch;
struct circle;

struct gpu_lane {
    struct launch launch;       /* the operation that is being launched */
    struct batch *first, **end; /* all batches, oldest first */
    struct batch *calling;      /* the oldest whose event is not recorded; NULL: none */
    struct batch *landing;      /* the oldest that is not whole; NULL: none */
    struct batch *next;         /* the oldest that is not launched; NULL: none */
    struct batch *untold;       /* the oldest that is not announced (launch_order.h); NULL: none */
    uint64_t group;             /* the circle's name in the order of launches; valid if joined */
    bool joined;
    /* Batches in the list: launched; whose event is recorded; whose event had passed at the last
     * look; and those of them that count as whole. */
    size_t launched, called, landed, counted;
    uint64_t finished; /* batches that are done and were removed from the list */
    /* The operation in flight uses memory of `launch` until it is done: no other is launched. */
    bool alone;
    /* There was no memory for one more operation in flight: tried again when one of this lane has
     * ended, or in each turn if the memory is that of other lanes. */
    bool starved;
    bool revoked; /* the communicator is aborted, or about to be */
    struct whole whole;
};

int gpu_lane_init(struct circle *c, struct err *err);
void gpu_lane_fini(struct circle *c);

/* 1: NCCL runs the batch; 0: it goes through the host's memory; -ENOTSUP: neither is possible. The
 * same on every rank. Call it when the epoch's GPUs are set up (device_is_ready()). */
int gpu_lane_takes(struct circle *c, const struct batch *batch, struct err *err);

/* Adds a batch behind all others. */
void gpu_lane_add(struct circle *c, struct batch *batch);

/* heard: the messages of all ranks were looked at since the last call. Returns true when a batch
 * was done, the lane has failed, or there is news. */
bool gpu_lane_progress(struct circle *c, bool heard);

/* Batches have landed that count once the messages have been looked at. */
bool gpu_lane_has_news(const struct circle *c);

/* Whether no batch is in the lane. */
static inline bool gpu_lane_idle(const struct gpu_lane *l)
{
    return !l->first;
}

/* How the driver waits for the circle's work by NCCL, the messages' included. */
enum coll_wait gpu_lane_wait(const struct circle *c);

/* Whether NCCL has work of the circle, the messages' included, that does not count as done here. */
bool gpu_lane_is_aloft(const struct circle *c);

/* Launches what may be launched, without waiting for anything. A failure is set in e->trouble. */
void gpu_lane_launch(struct circle *c);

/* After a loss, when all survivors have reported, for each epoch that is tried: starts to abort the
 * communicator. */
void gpu_lane_revoke(struct circle *c);

/* After a loss: batches below `done` are done on every survivor; the inputs of all others are
 * restored, and the batches dropped. The caller submits their slots again. */
void gpu_lane_settle(struct circle *c, uint64_t done);

/* Whether the circle has batches in the lane, or messages that NCCL runs, or work that was given up
 * may still touch tensors (device_owes()). */
bool gpu_lane_in_use(const struct circle *c);

/* Drops all batches, and gives their operations up. The caller finishes their slots, after
 * device_drain() where it says that no tensor was changed. */
void gpu_lane_drop(struct circle *c);

#endif
