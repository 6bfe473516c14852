/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate: the ranks agree on what to run next. Pure: calls in, messages and batches out through
 * callbacks; no I/O, no clock of its own, no threads (the engine calls it under its progress lock).
 *
 * The ranks form a tree: rank 0 is the root, the first local rank of each host a child of the root,
 * the other ranks of a host children of their first. A tensor is ready at a node when it was
 * submitted there and is ready at all its children; then the node tells its parent (in the steady
 * state only the tensor's cache id). The root puts what is ready everywhere into batches, appends
 * them to the log, and the log flows down: every rank runs the same batches in the same order.
 *
 * Steady state: when the log has repeated itself often enough the root appends a plan: from there
 * on each rank walks round the plan by itself and starts a batch as soon as all its tensors were
 * submitted here; nobody says a word. A rank whose program leaves the plan (another tensor, another
 * shape, somebody waits for a tensor whose batch does not fill) asks for a thaw: every rank tells
 * the number of batches it has started, the smallest wins, what was started beyond it is cancelled
 * (no output was written then, see coll.h), and negotiation goes on from there in a new generation.
 *
 * Mismatches (dtype, shape, op, root ... between ranks) end the tensor on every rank with a text
 * that says what each rank asked for: -EINVAL, or -ESTALE where the ranks submitted it in different
 * worlds (signature.world).
 */
#ifndef HVD_NEGOTIATE_H
#define HVD_NEGOTIATE_H

#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* What the ranks must agree on, and what only this rank says (dimension 0, splits). */
struct signature {
    uint8_t kind, dtype, op, ndim;
    int32_t root;
    int32_t device; /* -1: the host's memory; 0: a GPU, of whatever number */
    uint32_t world; /* the epoch of the world in which it was submitted; 0: it fits every world */
    double prescale, postscale;
    int64_t shape[HVD_MAX_DIMS];
    uint32_t group_size;  /* 0: not in a group */
    uint32_t group_index; /* place in the group */
    uint64_t group_hash;  /* of the names of all members */
};

/* One tensor of a batch, in the log's order. */
struct negotiate_tensor {
    uint64_t id; /* what negotiate_submit() returned for it here */
    /* Tables; NULL for other kinds. Those of a frozen batch are what every rank said last time:
     * where one says something else now, it will not start the batch, and a thaw drops it. */
    const int64_t *dim0;   /* [size] allgather and alltoall: dimension 0 of each rank */
    const int64_t *splits; /* [size * size] alltoall: row r: what rank r sends */
};

enum { NEGOTIATE_PARENT = -1 };

/* Messages out, decisions out. Memory behind the arguments is valid during the call only. None of
 * them may call back into negotiate. */
struct negotiate_ops {
    /* to a child (its rank) or to the parent (NEGOTIATE_PARENT). */
    int (*send)(void *ctx, int to, const struct buf *msg);
    /* The next batch of the log is to be run after all earlier ones. frozen: by the plan. Called
     * from negotiate_submit(), negotiate_recv() and negotiate_tick(). Every batch is answered, in
     * order, by one negotiate_done(). */
    void (*batch)(void *ctx, const struct negotiate_tensor *tensors, size_t n, bool frozen);
    /* The tensor is over on every rank, with this error; no data was touched. */
    void (*fail)(void *ctx, uint64_t id, const struct err *err);
    /* After a thaw: of the frozen batches handed out since the plan began the first `keep` count,
     * the last `dropped` (by batch() or by negotiate_try_next()) do not: forget them. At most the
     * first of them was started here; it is cancelled. Their tensors stay submitted under their ids
     * and come again in later batches. What is kept runs to its end first, then a new mesh
     * generation begins (on every rank, also where dropped is 0), then come the batches handed out
     * from now on. */
    void (*thawed)(void *ctx, uint64_t keep, uint64_t dropped);
    /* One line a stalled tensor: who is missing, and what each missing rank waits in. On the root;
     * it is told to all ranks, and only rank 0 prints. */
    void (*stalled)(void *ctx, const char *text);
    /* What this rank's callers are waiting in now, as a short text, for other ranks' stall reports.
     */
    void (*waiting_in)(void *ctx, char *text, size_t size);
    /* `rank` (and maybe others) has answered nothing for stall_shutdown_ns while a batch stood
     * still: nothing can go on, every operation is to fail with this. -1: all answer, but the batch
     * hangs on the GPUs; every rank hears the same. May be NULL. */
    void (*lost)(void *ctx, int rank, const struct err *err);
};

struct negotiate_config {
    int rank, size;
    int parent;          /* rank, -1 on the root */
    const int *children; /* ranks */
    int nchildren;
    uint64_t fusion_bytes;   /* HVD_FUSION_THRESHOLD */
    uint64_t cycle_ns;       /* backstop for a batch that does not fill: HVD_CYCLE_TIME */
    uint32_t cache_capacity; /* HVD_CACHE_CAPACITY */
    uint32_t freeze_after;   /* equal rounds before a plan; 0: never freeze (HVD_FREEZE_AFTER) */
    uint64_t thaws_max;      /* after so many thaws the schedule is not frozen again; 0: no bound */
    uint64_t stall_ns;       /* HVD_STALL_CHECK_TIME_SECONDS, 0: no inspector */
    uint64_t stall_shutdown_ns; /* HVD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
};

struct negotiate;

int negotiate_create(const struct negotiate_config *config, const struct negotiate_ops *ops,
                     void *ctx, struct negotiate **ret, struct err *err);
void negotiate_destroy(struct negotiate *n);

/* A tensor is ready on this rank. splits: alltoall's, [size], else NULL. -EEXIST while one of the
 * same name is under way (until its batch is done). *ret_id names it in every callback.
 * sig->prescale and postscale: 1 for none. May call batch(). */
int negotiate_submit(struct negotiate *n, const char *name, const struct signature *sig,
                     const int64_t *splits, uint64_t now, uint64_t *ret_id, struct err *err);

/* Somebody here is blocked on this tensor, or polls it: batches need not wait to fill up. Also: in
 * a frozen schedule, if its batch stays incomplete for a cycle, asks for a thaw. Cheap, repeatable;
 * an id that is over already is ignored. What follows is sent by the next negotiate_tick(). */
void negotiate_urge(struct negotiate *n, uint64_t id, uint64_t now);

/* A message from a child (its rank) or the parent (NEGOTIATE_PARENT). Foreign bytes: -EPROTO for
 * nonsense, the state is undefined then. Call negotiate_tick() when the inbox is empty. */
int negotiate_recv(struct negotiate *n, int from, const void *msg, size_t len, uint64_t now,
                   struct err *err);

/* Does what is due by now; returns when it wants to be called next (UINT64_MAX: never). Also sends
 * what has gathered: submissions since the last call travel in one message. */
uint64_t negotiate_tick(struct negotiate *n, uint64_t now);

/* The earliest batch handed out and not done yet is done here: its names may be submitted again. */
void negotiate_done(struct negotiate *n);

/* 0, or why it cannot go on (-ENOMEM above all): look after each call that cannot say so itself. */
int negotiate_failed(const struct negotiate *n);

bool negotiate_frozen(const struct negotiate *n);

/* Fast path of the steady state: true when the plan is in force, its next batch consists of this
 * one tensor with this signature, nothing else is submitted and every earlier batch is done: the
 * caller runs it at once as the next frozen batch (negotiate counts it as submitted and handed out;
 * batch() is not called), then calls negotiate_done(). Never where there are tables. */
bool negotiate_try_next(struct negotiate *n, const char *name, const struct signature *sig,
                        uint64_t *ret_id);

struct negotiate_stats {
    uint64_t negotiated, cached, frozen, thaws, stalls;
};
void negotiate_get_stats(const struct negotiate *n, struct negotiate_stats *ret);

#endif
