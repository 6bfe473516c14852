/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: the log's batches as negotiate hands them out, run strictly one after the other. (lock)
 *
 * Memory for batches is kept and reused. A batch is one collective operation, or several where its
 * members cannot be fused (dtypes of a group, allgathers); its slots are done together, at its end.
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
    bool generation; /* no batch: the place in the log where a new mesh generation begins */
    uint64_t number; /* of a frozen one, since the plan began */
    uint64_t start_ns;
    size_t bytes;      /* of inputs */
    size_t n, cap, at; /* slots; the first one that is not done */
    struct slot **slots;
};

/* What is to be copied behind an operation. */
struct after {
    int device; /* both are there; -1: the host's memory */
    void *to;
    const void *from;
    size_t bytes;
};

struct batches {
    struct batch *first, **end; /* in the log's order */
    struct batch *active;
    bool running; /* coll_start() was called for the active one */
    size_t op_n;  /* slots in the operation that runs */
    struct coll_op op;
    struct coll_tensor *tensors;
    void **ready; /* [tensors_cap] of a GPU: events */
    size_t tensors_cap;
    size_t *send_counts, *recv_counts; /* [size] */
    int64_t *splits;                   /* [size] */
    uint8_t *scratch;                  /* in a world that has lost ranks */
    size_t scratch_cap;
    struct launch_gpu gpu; /* the same on a GPU */
    struct after after;
    /* hvd_commit() changes the world, and every rank has agreed: no operation of a user begins in
     * this mesh any more. */
    bool held;
    uint64_t frozen; /* frozen batches handed out since the plan began */
    uint64_t frozen_done;
    struct batch *free;
};

int batches_init(struct engine *e, struct err *err);

/* Room for the ranks of a new epoch. */
int batches_resize(struct engine *e, struct err *err);

/* In a new epoch: a batch that is over is finished, all others are taken apart, and every operation
 * that is not done is submitted again, in the order of the first time: but at
 * a boundary, those of the user end with -ESTALE (engine_end_world()). */
void batches_resubmit(struct engine *e);
void batches_fini(struct engine *e);

/* negotiate_ops.batch and .thawed */
void batches_on_batch(void *ctx, const struct negotiate_tensor *tensors, size_t n, bool frozen);
void batches_on_thawed(void *ctx, uint64_t keep, uint64_t dropped);

/* Runs what can run; true when a batch began or ended. */
bool batches_progress(struct engine *e);

static inline bool batches_idle(const struct batches *b)
{
    return !b->active && !b->first;
}

/* There is one batch, and it is over in a few microseconds. */
bool batches_small(const struct batches *b);

/* The fast path: negotiate_try_next() has said yes to this slot, which is e->fast. Starts its
 * operation and spins for it a moment. True: done. False: it is the active batch now. */
bool batches_run_fast(struct engine *e, uint64_t id);

/* (timeline on) One operation is over. start_ns: of its batch, 0: it was in none. */
void batches_tell_timeline(struct engine *e, const struct slot *s, uint64_t start_ns, int status);

/* Forgets all batches; their slots are the caller's business. */
void batches_drop(struct engine *e);

#endif
