/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: the log's batches as negotiation hands them out, in two lanes. The host's lane runs them
 * one after the other, as operations of coll's: batches of tensors in host memory, and those on
 * GPUs that go through it. Batches that NCCL runs are in the GPU lane (gpu_lane.h). Each lane has
 * its batches in the order of the log, on every rank; the lanes do not wait for each other. Called
 * with the progress lock held.
 *
 * The first batch on GPUs of an epoch sets the GPUs up (device.h), at its place in the host's lane:
 * only then do the ranks know which lane it is for. Batches on GPUs that come before that is known
 * are in the host's lane, and move to the other when their turn comes. So does an alltoall on GPUs
 * when the ranks have told each other how many rows they send.
 *
 * Memory for batches is kept and reused. A batch is one collective operation; an allreduce may have
 * many tensors. All slots of a batch are done together.
 */
#ifndef HVD_ENGINE_BATCHES_H
#define HVD_ENGINE_BATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"
#include "core/engine/gpu_lane.h"
#include "core/engine/launch.h"
#include "core/negotiate/negotiate.h"

struct circle;
struct engine;
struct slot;

struct batch {
    struct batch *next;
    bool frozen;
    /* not a batch: marks the place in the log where a new mesh generation begins */
    bool generation;
    uint64_t number; /* negotiation's */
    bool may_move;   /* in the host's lane: it may belong to the GPU lane */
    bool behind;     /* in the log it is behind the last operation, see batches.closed */
    uint64_t start_ns;
    size_t bytes;   /* bytes of all inputs */
    bool done;      /* in the host's lane: its operation has ended, perhaps in a repair */
    unsigned steps; /* in the host's lane: operations of coll's that are done */
    size_t n, cap;  /* slots in use, and allocated */
    struct slot **slots;
};

/* The operation of coll's that runs for a batch. Most batches need one. An alltoall has one more
 * before it, in which the ranks tell each other how many rows they send, and an Adasum several
 * (launch_adasum.h). */
enum batch_step {
    STEP_GPUS,   /* sets the epoch's GPUs up */
    STEP_BEFORE, /* an operation that others of the batch follow */
    STEP_LAST,
};

struct batches {
    /* the host's lane */
    struct batch *first, **end;
    struct batch *active;
    size_t moving;        /* batches with may_move */
    bool running;         /* coll_start() was called for the active batch */
    enum batch_step step; /* what runs, or ran last */
    struct launch launch; /* the running operation */
    struct gpu_lane gpu;
    /* hvd_commit() changes the world and every rank has agreed to that: no user operation may begin
     * in this mesh any more. */
    bool held;
    bool closed; /* the last operation, which sets held when it is done, is in the log here */
    struct batch *free;
};

int batches_init(struct circle *c, struct err *err);

/* Resizes the per-rank arrays to the ranks of a new epoch. */
int batches_resize(struct circle *c, struct err *err);

/* Finishes the active batch if its operation is done, and drops all other batches. */
void batches_dissolve(struct circle *c);
void batches_fini(struct circle *c);

/* negotiate_ops.batch, .dropped and .thawed */
void batches_on_batch(void *ctx, const struct negotiate_batch *batch);
void batches_on_dropped(void *ctx, uint64_t number);
void batches_on_thawed(void *ctx);

/* Runs batches of the host's lane until one has to wait. Returns true when an operation finished or
 * failed. */
bool batches_progress(struct circle *c);

/* False for a user operation while batches.held is set or behind the last operation; for the last
 * operation while the GPU lane has batches that are before it; and with MPI, which cannot cancel
 * an operation, for a frozen batch when this rank shuts down: the end of the log says whether the
 * other ranks run it, too. */
bool batches_may_begin(const struct circle *c, const struct batch *batch);

/* The batch's operation is done. algorithm: for the timeline. */
void batches_finish(struct circle *c, struct batch *batch, const char *algorithm);

/* Whether no user operation begins after the batch (struct slot, last). */
bool batch_is_last(const struct batch *batch);

/* Whether it is an alltoall in which the ranks still have to tell each other how many rows they
 * send. */
bool batch_needs_counts(const struct batch *batch);

/* Whether it is an Adasum, which is a row of operations (launch_adasum.h). */
bool batch_is_adasum(const struct batch *batch);

/* Whether the batch's tensors are on a GPU. */
bool batch_on_gpu(const struct batch *batch);

/* Bytes of the input. */
size_t batches_slot_bytes(const struct slot *s);

/* An empty batch with room for n slots. NULL: no memory, e->trouble is set. */
struct batch *batches_new(struct circle *c, size_t n);

/* Takes back the memory of a batch that is in no list. */
void batches_recycle(struct circle *c, struct batch *batch);

static inline bool batches_idle(const struct batches *b)
{
    return !b->active && !b->first && gpu_lane_idle(&b->gpu);
}

/* True when this rank has to finish a batch because other ranks may have begun it: the active one,
 * or a queued one that is not frozen. */
bool batches_owed(const struct batches *b);

/* True when exactly one batch is queued or active in the host's lane and it is small enough to
 * finish within a few microseconds. */
bool batches_small(const struct batches *b);

/* The fast path: negotiate_try_next() has accepted the operation of slot e->fast. Starts it and
 * spins for it briefly. Returns true when it is done, false when it is now the active batch (or
 * there was no memory for one: e->trouble is set). */
bool batches_run_fast(struct circle *c, const struct negotiate_next *next);

/* Adds one finished operation to the timeline, which must be on. start_ns: when its batch started;
 * 0 when it was in no batch. */
void batches_tell_timeline(struct engine *e, const struct slot *s, uint64_t start_ns,
                           const char *algorithm, int status);

/* Drops all batches. The caller finishes or resubmits their slots. */
void batches_drop(struct circle *c);

/* The same for those of the host's lane, and tells negotiation that they are over. */
void batches_give_up(struct circle *c);

#endif
