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
 * for a thaw. Every rank reports how many batches it has been handed, and the smallest number
 * holds. Batches beyond it are cancelled (none of their output was written, see coll.h), and
 * negotiation continues from there in a new generation.
 *
 * A batch that NCCL runs cannot be cancelled once one rank has begun it. It is called a bound batch
 * (ops.binds). Bound batches run in a lane of their own, beside all other batches. After a
 * thaw, a rank that lacks a bound batch which another rank was handed owes it (owed.h).
 *
 * The log ends when the first rank leaves (negotiate_end()), because each batch needs all ranks.
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
 * (dimension 0 of an allgather). An alltoall has dimension 0 as 0: it is each rank's own. */
struct signature {
    uint8_t kind, dtype, op, ndim;
    /* 0, or the kind that the program has asked for, where another one is run: a reduce is an
     * allreduce whose result only one rank uses; a gather and a scatter are alltoalls. */
    uint8_t asked;
    int32_t root;   /* of a broadcast, reduce, gather, scatter; else 0 */
    int32_t device; /* -1: host memory; 0: any GPU */
    uint32_t world; /* the epoch of the world in which the request was submitted; 0: any world */
    double prescale, postscale;
    int64_t shape[HVD_MAX_DIMS];
    bool by_host;         /* an Adasum of the hosts' averages */
    bool joined;          /* broadcast: its root has joined, and has no data */
    uint32_t group_size;  /* 0: not in a group */
    uint32_t group_index; /* index within the group */
    uint64_t group_hash;  /* hash of the names of all members */
};

/* One tensor of a batch, in the log's order. */
struct negotiate_tensor {
    uint64_t id; /* returned by negotiate_submit() on this rank */
    /* [size] allgather: dimension 0 of each rank; NULL for other kinds. In a frozen batch what
     * every rank requested last time. A rank whose request differs now does not start the batch,
     * and a thaw drops it. Bound batches of a plan have none. */
    const int64_t *dim0;
};

/* A batch of the log. */
struct negotiate_batch {
    /* Identifies the batch on this rank. Numbers only rise, and none is used twice. Another rank
     * may have another number for the same batch. */
    uint64_t number;
    const struct negotiate_tensor *tensors;
    size_t n;
    bool bound;  /* no rank can cancel it once one rank has begun it */
    bool frozen; /* it comes from the plan that is in force */
    bool owed;   /* it comes from a plan that was left: other ranks have begun it before that */
};

enum { NEGOTIATE_PARENT = -1 };

/* ACTIVE: the program of this rank submits operations. JOINED: the program has run out of work, the
 * rank takes part in what other ranks submit, and operations of its own are in flight. DRAINED: as
 * JOINED, but none of its own are in flight any more. */
enum negotiate_join { NEGOTIATE_ACTIVE, NEGOTIATE_JOINED, NEGOTIATE_DRAINED };

/* Callbacks: messages and decisions. Their arguments are valid only during the call. They must
 * not call negotiate. */
struct negotiate_ops {
    /* Sends a message to a child (its rank) or to the parent (NEGOTIATE_PARENT). */
    int (*send)(void *ctx, int to, const struct buf *msg);
    /* The next batch of its lane: to be run after all earlier batches that are bound, or after all
     * that are not. In each lane all ranks get the same batches in the same order. Called from
     * negotiate_submit(), negotiate_recv() and negotiate_tick(). The engine calls negotiate_done()
     * once for each batch that is not dropped. */
    void (*batch)(void *ctx, const struct negotiate_batch *batch);
    /* Returns whether a batch of such tensors is bound. Called on the root only, when it writes a
     * batch or a plan. The answer depends on device and dtype alone, and is false for tensors in
     * host memory. NULL: no batch is bound. */
    bool (*binds)(void *ctx, const struct signature *sig);
    /* Returns whether the ranks cannot run the tensor, and why (its name is put in front of that).
     * Called on the root only, for a tensor that all ranks have submitted, before it is in a batch:
     * it then fails on every rank. May be NULL. */
    bool (*refuses)(void *ctx, const struct signature *sig, struct err *ret_why);
    /* The tensor has failed on every rank with this error; no data was touched. */
    void (*fail)(void *ctx, uint64_t id, const struct err *err);
    /* In a thaw: the batch of this number, whether from batch() or negotiate_try_next(), is not
     * valid any more: the engine forgets it. Called once for each such batch, newest first. No
     * bound batch is dropped. This rank has started at most the oldest one, which is cancelled. The
     * tensors stay submitted under their ids and are in later batches again. */
    void (*dropped)(void *ctx, uint64_t number);
    /* After a thaw, also if no batch was dropped. The batches handed out before it run to their
     * end. Behind those that are not bound a new mesh generation begins, on every rank; then come
     * the batches handed out from now on. */
    void (*thawed)(void *ctx);
    /* One line for each stalled tensor: the missing ranks, and what each of them waits in.
     * Called on the root and sent to all ranks; only rank 0 prints it. */
    void (*stalled)(void *ctx, const char *text);
    /* Whether the input of this tensor, whose batch was handed out, is not complete yet: the
     * program's own work on this rank's GPU has not ended. May be NULL. */
    bool (*late)(void *ctx, uint64_t id);
    /* Describes what this rank's callers wait in, for other ranks' stall reports. */
    void (*waiting_in)(void *ctx, char *text, size_t size);
    /* An inquiry: others wait for a tensor of this name, which this rank has not submitted. May be
     * NULL. */
    void (*lacks)(void *ctx, const char *name);
    /* This rank has joined: the engine is to submit its neutral element under this name, with this
     * signature (of an allgather without dimension 0). Called once for each use of the name. May
     * be NULL if negotiate_join() is not called. */
    void (*wanted)(void *ctx, const char *name, const struct signature *sig);
    /* All ranks are drained; `last` joined last. All are active again. */
    void (*joined)(void *ctx, int last);
    /* Every operation must fail with this error. `rank` (and maybe others) has not answered for
     * stall_shutdown_ns while a batch made no progress. rank -1: every rank gets the same error.
     * Either all ranks answer and a batch hangs on the GPUs (-ETIMEDOUT), or a rank cannot run a
     * bound batch that others have begun (-EINVAL, -ETIMEDOUT). May be NULL. */
    void (*lost)(void *ctx, int rank, const struct err *err);
};

struct negotiate_config {
    int rank, size;
    const int *names; /* [size] what the ranks are called in messages; NULL: as they are numbered */
    int parent;       /* rank, -1 on the root */
    const int *children; /* ranks */
    int nchildren;
    uint64_t fusion_bytes;   /* HVD_FUSION_THRESHOLD */
    uint64_t cycle_ns;       /* time after which an incomplete batch is started: HVD_CYCLE_TIME */
    uint32_t cache_capacity; /* HVD_CACHE_CAPACITY */
    uint32_t freeze_after;   /* equal rounds before a plan; 0: never freeze (HVD_FREEZE_AFTER) */
    uint64_t thaws_max;      /* after this many thaws the schedule stays thawed; 0: no limit */
    uint64_t stall_ns;       /* HVD_STALL_CHECK_TIME_SECONDS, 0: no inspector */
    uint64_t stall_shutdown_ns; /* HVD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
    bool join_sums; /* while a rank has joined, only allreduces and barriers are run; the root's
                     * value counts */
};

struct negotiate;

int negotiate_create(const struct negotiate_config *config, const struct negotiate_ops *ops,
                     void *ctx, struct negotiate **ret, struct err *err);
void negotiate_destroy(struct negotiate *n);

/* Submits a tensor on this rank. sig->prescale and postscale are 1 for none. *ret_id identifies it
 * in every callback. -EEXIST: a tensor of the same name is in flight, until its batch is done. May
 * call batch(). */
int negotiate_submit(struct negotiate *n, const char *name, const struct signature *sig,
                     uint64_t now, uint64_t *ret_id, struct err *err);

/* A caller on this rank waits for this tensor or polls it: its batch need not wait to fill up.
 * In a frozen schedule a thaw is requested if its batch stays incomplete for a cycle. waits: it
 * does not poll. If then its batch is bound, and has to wait for an owed batch of which this rank
 * has not submitted all, every rank ends (ops.lost) once this rank has submitted nothing for a
 * second. Cheap and repeatable; the id of a finished tensor is ignored. Messages are sent by the
 * next negotiate_tick(). */
void negotiate_prioritize(struct negotiate *n, uint64_t id, bool waits, uint64_t now);

/* Sets what this rank does. In the world the join ends for all ranks together (ops.joined), so do
 * not set ACTIVE before that. In a set no rank is ever DRAINED: the engine sets ACTIVE when the
 * rank leaves hvd_join(). Messages are sent by the next negotiate_tick(). */
void negotiate_join(struct negotiate *n, enum negotiate_join state);

/* Whether the engine still has to submit what ops.wanted has asked for under this name. */
bool negotiate_wants(const struct negotiate *n, const char *name);

/* Processes a message from a child (its rank) or the parent (NEGOTIATE_PARENT). The bytes are
 * untrusted: -EPROTO for a malformed message, after which the state is undefined. Call
 * negotiate_tick() when no more messages are there. */
int negotiate_recv(struct negotiate *n, int from, const void *msg, size_t len, uint64_t now,
                   struct err *err);

/* Does what is due; returns when to call it next (UINT64_MAX: never). Also sends pending
 * messages: all submissions since the last call go in one message. */
uint64_t negotiate_tick(struct negotiate *n, uint64_t now);

/* This rank leaves. It asks the root to end the log: every rank runs the batches that are in it,
 * and those of a plan that one rank may have finished, and no others. Returns whether the log has
 * ended; call it again after each negotiate_tick() until it has. Then this rank may leave when it
 * has finished all batches that it was handed, and owes none (negotiate_owes()). Operations that
 * are in no batch by then stay submitted. */
bool negotiate_end(struct negotiate *n);

/* Whether the log has ended, without asking for it. */
bool negotiate_has_ended(const struct negotiate *n);

/* The batch of this number is finished on this rank: its names may be submitted again. Batches may
 * finish in any order, but none before every rank has begun it. The number of a batch that was
 * dropped or is finished is ignored. */
void negotiate_done(struct negotiate *n, uint64_t number);

/* Called on the root: ops.stalled with this text (less than 1024 bytes) on all ranks. */
void negotiate_say(struct negotiate *n, const char *text);

/* 0, or why negotiation cannot continue (usually -ENOMEM). Check it after calls that return no
 * error. */
int negotiate_failed(const struct negotiate *n);

bool negotiate_frozen(const struct negotiate *n);

/* Whether this rank owes batches that other ranks have begun. */
bool negotiate_owes(const struct negotiate *n);

/* A batch of one tensor that the caller runs at once, see negotiate_try_next(). */
struct negotiate_next {
    uint64_t id;     /* of the tensor, as from negotiate_submit() */
    uint64_t number; /* of the batch, as in struct negotiate_batch */
};

/* The fast path of the steady state. Returns true when the plan is in force, its next batch is just
 * this tensor with this signature, the batch is not bound, no other tensor is submitted, and every
 * earlier batch that is not bound is finished. The caller then runs it at once as the next frozen
 * batch and calls negotiate_done(). Negotiate counts it as submitted and handed out and does not
 * call batch(). Always false for kinds with tables and for members of a group. */
bool negotiate_try_next(struct negotiate *n, const char *name, const struct signature *sig,
                        struct negotiate_next *ret);

struct negotiate_stats {
    uint64_t negotiated, cached, frozen, thaws, stalls;
    uint64_t owed; /* bound batches that this rank was handed after the thaw of their plan */
};
void negotiate_get_stats(const struct negotiate *n, struct negotiate_stats *ret);

#endif
