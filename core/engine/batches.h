/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: the log's batches as negotiation hands them out, run strictly one after the other.
 * Called with the progress lock held.
 *
 * Memory for batches is kept and reused. A batch is one collective operation, or several where its
 * members cannot be fused (dtypes of a group, allgathers). All slots of a batch are done together,
 * at the end of its last operation.
 */
#ifndef HVD_ENGINE_BATCHES_H
#define HVD_ENGINE_BATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"
#include "core/engine/launch_gpu.h"
#include "core/negotiate/negotiate.h"

struct engine;
struct slot;

struct batch {
    struct batch *next;
    bool frozen;
    /* not a batch: marks the place in the log where a new mesh generation begins */
    bool generation;
    uint64_t number; /* negotiation's */
    uint64_t index;  /* of a frozen batch, counted from the start of the plan */
    uint64_t start_ns;
    size_t bytes; /* bytes of all inputs */
    /* n: slots in use; cap: slots allocated; at: the first slot that is not done */
    size_t n, cap, at;
    struct slot **slots;
};

/* A copy to make after an operation: bytes from `from` to `to`. bytes 0: no copy. */
struct pending_copy {
    int device; /* GPU that holds both buffers; -1: host memory */
    void *to;
    const void *from;
    size_t bytes;
};

struct batches {
    struct batch *first, **end; /* in the log's order */
    struct batch *active;
    bool running; /* coll_start() was called for the active batch */
    size_t op_n;  /* slots in the running operation */
    struct coll_op op;
    struct coll_tensor *tensors;
    void **ready; /* [tensors_cap] events after which GPU tensors may be used */
    size_t tensors_cap;
    size_t *send_counts, *recv_counts; /* [size] elements for and from each mesh rank */
    int64_t *splits;                   /* [size] rows of an alltoall, by mesh rank */
    /* buffer for packed tensors; used only while the mesh has fewer ranks than the world */
    uint8_t *scratch;
    size_t scratch_cap;
    struct launch_gpu gpu; /* the same buffer on a GPU */
    struct pending_copy pending_copy;
    /* hvd_commit() changes the world and every rank has agreed to that: no user operation may begin
     * in this mesh any more. */
    bool held;
    uint64_t frozen; /* frozen batches handed out since the plan began */
    uint64_t frozen_done;
    struct batch *free;
};

int batches_init(struct engine *e, struct err *err);

/* Resizes the per-rank arrays to the ranks of a new epoch. */
int batches_resize(struct engine *e, struct err *err);

/* Finishes the active batch if its operations are all done, and drops all other batches. */
void batches_dissolve(struct engine *e);
void batches_fini(struct engine *e);

/* negotiate_ops.batch, .dropped and .thawed */
void batches_on_batch(void *ctx, const struct negotiate_batch *batch);
void batches_on_dropped(void *ctx, uint64_t number);
void batches_on_thawed(void *ctx);

/* Runs batches until one has to wait. Returns true when an operation finished or failed. */
bool batches_progress(struct engine *e);

static inline bool batches_idle(const struct batches *b)
{
    return !b->active && !b->first;
}

/* True when this rank has to finish a batch because other ranks may have begun it: the active one,
 * or a queued one that is not frozen. */
bool batches_owed(const struct batches *b);

/* True when exactly one batch is queued or active and it is small enough to finish within a few
 * microseconds. */
bool batches_small(const struct batches *b);

/* The fast path: negotiate_try_next() has accepted the operation of slot e->fast. Starts it and
 * spins for it briefly. Returns true when it is done, false when it is now the active batch (or
 * there was no memory for one: e->trouble is set). */
bool batches_run_fast(struct engine *e, const struct negotiate_next *next);

/* Adds one finished operation to the timeline, which must be on. start_ns: when its batch started;
 * 0 when it was in no batch. */
void batches_tell_timeline(struct engine *e, const struct slot *s, uint64_t start_ns, int status);

/* Drops all batches. The caller finishes or resubmits their slots. */
void batches_drop(struct engine *e);

#endif
