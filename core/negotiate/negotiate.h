/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate: the ranks agree on what to run next. Pure: calls in, messages and batches out through
 * callbacks; no I/O, no clock of its own, no threads (the engine calls it under its progress lock).
 *
 * The ranks form a tree: rank 0 is the root, the first local rank of each host is a child of the
 * root, and the other ranks of a host are children of its first local rank. A tensor is ready at a
 * node when it was submitted there and is ready at all its children; then the node announces it to
 * its parent (in the steady state only by its cache id). The root puts tensors that are ready on
 * all ranks into batches, appends these to the log, and sends the log down the tree: every rank
 * runs the same batches in the same order.
 *
 * Steady state: when the log has repeated itself often enough the root appends a plan, a fixed
 * sequence of batches. From then on each rank repeats the plan without messages, and starts a batch
 * as soon as all its tensors were submitted on this rank. A rank whose program leaves the plan
 * (another tensor, another shape, a caller that waits for a tensor whose batch does not fill) asks
 * for a thaw. Every rank reports how many batches it has started, and the smallest number holds.
 * Batches started beyond it are cancelled (none of their output was written, see coll.h), and
 * negotiation continues from there in a new generation.
 *
 * A mismatch between ranks (dtype, shape, op, root ...) fails the tensor on every rank, with a text
 * that lists each rank's request: with -EINVAL, or with -ESTALE if the ranks submitted it in
 * different worlds (signature.world).
 */
#ifndef HVD_NEGOTIATE_H
#define HVD_NEGOTIATE_H

#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* A rank's request: what all ranks must agree on, and the parts in which they may differ
 * (dimension 0, splits). */
struct signature {
    uint8_t kind, dtype, op, ndim;
    int32_t root;
    int32_t device; /* -1: host memory; 0: any GPU */
    uint32_t world; /* the epoch of the world in which the request was submitted; 0: any world */
    double prescale, postscale;
    int64_t shape[HVD_MAX_DIMS];
    uint32_t group_size;  /* 0: not in a group */
    uint32_t group_index; /* index within the group */
    uint64_t group_hash;  /* hash of the names of all members */
};

/* One tensor of a batch, in the log's order. */
struct negotiate_tensor {
    uint64_t id; /* returned by negotiate_submit() on this rank */
    /* Tables; NULL for other kinds. In a frozen batch they hold what every rank requested last
     * time. A rank whose request differs now does not start the batch, and a thaw drops it. */
    const int64_t *dim0;   /* [size] allgather and alltoall: dimension 0 of each rank */
    const int64_t *splits; /* [size * size] alltoall: row r: what rank r sends */
};

enum { NEGOTIATE_PARENT = -1 };

/* Callbacks: messages and decisions. Their arguments are valid only during the call. They must
 * not call negotiate. */
struct negotiate_ops {
    /* Sends a message to a child (its rank) or to the parent (NEGOTIATE_PARENT). */
    int (*send)(void *ctx, int to, const struct buf *msg);
    /* The next batch of the log: to be run after all earlier ones. frozen: it comes from the
     * plan. Called from negotiate_submit(), negotiate_recv() and negotiate_tick(). For each
     * batch, in order, the engine calls negotiate_done() once. */
    void (*batch)(void *ctx, const struct negotiate_tensor *tensors, size_t n, bool frozen);
    /* The tensor has failed on every rank with this error; no data was touched. */
    void (*fail)(void *ctx, uint64_t id, const struct err *err);
    /* After a thaw. Of the frozen batches handed out since the plan began, the first `keep`
     * remain valid. The last `dropped`, whether from batch() or negotiate_try_next(), do not:
     * the engine forgets them. Of these this rank has started at most the first, which is
     * cancelled. Their tensors stay submitted under their ids and are in later batches again.
     * The valid batches run to their end; then a new mesh generation begins, on every rank, even
     * if dropped is 0; then come the batches handed out from now on. */
    void (*thawed)(void *ctx, uint64_t keep, uint64_t dropped);
    /* One line for each stalled tensor: the missing ranks, and what each of them waits in.
     * Called on the root and sent to all ranks; only rank 0 prints it. */
    void (*stalled)(void *ctx, const char *text);
    /* Describes what this rank's callers wait in, for other ranks' stall reports. */
    void (*waiting_in)(void *ctx, char *text, size_t size);
    /* `rank` (and maybe others) has not answered for stall_shutdown_ns while a batch made no
     * progress: every operation must fail with this error. rank -1: all ranks answer, but the
     * batch hangs on the GPUs; every rank gets the same error. May be NULL. */
    void (*lost)(void *ctx, int rank, const struct err *err);
};

struct negotiate_config {
    int rank, size;
    int parent;          /* rank, -1 on the root */
    const int *children; /* ranks */
    int nchildren;
    uint64_t fusion_bytes;   /* HVD_FUSION_THRESHOLD */
    uint64_t cycle_ns;       /* time after which an incomplete batch is started: HVD_CYCLE_TIME */
    uint32_t cache_capacity; /* HVD_CACHE_CAPACITY */
    uint32_t freeze_after;   /* equal rounds before a plan; 0: never freeze (HVD_FREEZE_AFTER) */
    uint64_t thaws_max;      /* after this many thaws the schedule stays thawed; 0: no limit */
    uint64_t stall_ns;       /* HVD_STALL_CHECK_TIME_SECONDS, 0: no inspector */
    uint64_t stall_shutdown_ns; /* HVD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
};

struct negotiate;

int negotiate_create(const struct negotiate_config *config, const struct negotiate_ops *ops,
                     void *ctx, struct negotiate **ret, struct err *err);
void negotiate_destroy(struct negotiate *n);

/* Submits a tensor on this rank. splits: [size] for alltoall, else NULL. sig->prescale and
 * postscale are 1 for none. *ret_id identifies it in every callback. -EEXIST: a tensor of the
 * same name is in flight, until its batch is done. May call batch(). */
int negotiate_submit(struct negotiate *n, const char *name, const struct signature *sig,
                     const int64_t *splits, uint64_t now, uint64_t *ret_id, struct err *err);

/* A caller on this rank waits for this tensor or polls it: its batch need not wait to fill up.
 * In a frozen schedule a thaw is requested if its batch stays incomplete for a cycle. Cheap and
 * repeatable; the id of a finished tensor is ignored. Messages are sent by the next
 * negotiate_tick(). */
void negotiate_prioritize(struct negotiate *n, uint64_t id, uint64_t now);

/* Processes a message from a child (its rank) or the parent (NEGOTIATE_PARENT). The bytes are
 * untrusted: -EPROTO for a malformed message, after which the state is undefined. Call
 * negotiate_tick() when no more messages are there. */
int negotiate_recv(struct negotiate *n, int from, const void *msg, size_t len, uint64_t now,
                   struct err *err);

/* Does what is due; returns when to call it next (UINT64_MAX: never). Also sends pending
 * messages: all submissions since the last call go in one message. */
uint64_t negotiate_tick(struct negotiate *n, uint64_t now);

/* The oldest batch that was handed out is finished on this rank: its names may be submitted
 * again. */
void negotiate_done(struct negotiate *n);

/* 0, or why negotiation cannot continue (usually -ENOMEM). Check it after calls that return no
 * error. */
int negotiate_failed(const struct negotiate *n);

bool negotiate_frozen(const struct negotiate *n);

/* The fast path of the steady state. Returns true when the plan is in force, its next batch is
 * just this tensor with this signature, no other tensor is submitted, and every earlier batch is
 * finished. The caller then runs it at once as the next frozen batch and calls negotiate_done().
 * Negotiate counts it as submitted and handed out and does not call batch(). Always false for
 * kinds with tables. */
bool negotiate_try_next(struct negotiate *n, const char *name, const struct signature *sig,
                        uint64_t *ret_id);

struct negotiate_stats {
    uint64_t negotiated, cached, frozen, thaws, stalls;
};
void negotiate_get_stats(const struct negotiate *n, struct negotiate_stats *ret);

#endif
