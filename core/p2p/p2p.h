/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p: messages between two ranks of a mesh, by tag. For one circle of the engine's; under the
 * progress lock.
 *
 * A message of at most P2P_EAGER bytes is sent with its tag; the receiver keeps it until a receive
 * takes it. Of a larger one only the size is sent; the receiver asks for the data when a receive
 * has taken it, and then the data goes from the sender's memory to the receiver's. Messages from
 * the memory of a GPU are sent as large ones, whatever their size. The messages of one sender that
 * are kept have at most P2P_KEPT bytes, each counting 128 more: beyond that all are sent as large
 * ones.
 *
 * In an elastic job the messages between two ranks outlive an epoch (p2p_suspend(), p2p_resume()).
 * Each one has a serial, its number among those that one rank sends to the other. The sender keeps
 * what the receiver may not have: a copy of each small message until the receiver has acknowledged
 * its serial, and the operation of a large one, which ends only when the receiver has the bytes. In
 * the next epoch it sends all that again, and the receiver drops what it has.
 *
 * Links are made at the first message. This rank reads a peer's only while it waits for something
 * of that peer, so a sender that nobody listens to is stopped by a full link.
 */
#ifndef HVD_P2P_P2P_H
#define HVD_P2P_P2P_H

#include "core/base/err.h"
#include "core/p2p/op.h"
#include "core/transport/mesh.h"

#define P2P_EAGER ((size_t)16 << 10)
#define P2P_KEPT  ((size_t)1 << 20)
#define P2P_PART  ((size_t)1 << 20)

struct p2p;

/* The bytes of operations whose memory p2p cannot access (op.staged: a GPU's). They go through
 * parts in host memory, in order: each is the next P2P_PART bytes from op.moved on, or what is left
 * of the message. Such a send is announced like a large one, whatever its size: its program may not
 * have filled the memory yet. Functions must not call p2p, and none of them waits. */
struct p2p_stage {
    void *ctx;
    /* Of a send: the bytes of the next part, which stay until sent() or drop(). NULL: they are not
     * here yet. */
    const uint8_t *(*fetch)(void *ctx, struct p2p_op *op);
    void (*sent)(void *ctx, struct p2p_op *op);
    /* Of a receive: whether its memory may be written. After true it is asked for bytes. */
    bool (*opens)(void *ctx, struct p2p_op *op);
    /* Room for the next part. NULL: there is none yet. received(): `bytes` bytes are in it. */
    uint8_t *(*room)(void *ctx, struct p2p_op *op);
    void (*received)(void *ctx, struct p2p_op *op, size_t bytes);
    /* The message begins anew, or has failed: gives up its parts, and its flight. */
    void (*drop)(void *ctx, struct p2p_op *op);
    /* Large messages between the memories of two GPUs can fly: go from one to the other without
     * p2p. NULL: none does. can_fly(): whether a message of so many bytes can on this rank. If it
     * can on both, fly() is called on both, for all messages from one rank to another in the same
     * order, and p2p waits for p2p_flown(). */
    bool (*can_fly)(void *ctx, const struct p2p_op *op, size_t bytes);
    void (*fly)(void *ctx, struct p2p_op *op);
};

/* The operation has ended; op is the caller's again. err NULL: well. Must not call p2p, except
 * p2p_submit(). -EMSGSIZE: the message was larger than the room, and is dropped. */
typedef void p2p_done_f(void *ctx, struct p2p_op *op, const struct err *err);

/* elastic: the messages can outlive the mesh. stage: outlives p; NULL: no operation is staged. */
int p2p_create(struct mesh *mesh, bool elastic, const struct p2p_stage *stage, p2p_done_f *done,
               void *ctx, struct p2p **ret, struct err *err);

/* Without calling done. NULL is allowed. */
void p2p_destroy(struct p2p *p);

/* The mesh ends. Nothing is sent or received until p2p_resume(). Receives that have all their bytes
 * end. Twice is the same as once. */
void p2p_suspend(struct p2p *p);

/* Goes on in another mesh. Rank r of the last mesh in which this went on has the number now[r]; -1:
 * it is gone, and p2p_fail() has ended the operations with it. -ENOMEM: p is still suspended. */
int p2p_resume(struct p2p *p, struct mesh *mesh, const int *now, struct err *err);

/* Begins an operation whose caller's part is filled in. Ends it at once if that is possible.
 * -ENOMEM: it does not begin. */
int p2p_submit(struct p2p *p, struct p2p_op *op, struct err *err);

/* Moves what can be moved. Returns whether anything was moved. On a failure of a link or a
 * malformed message: *ret_rc -errno, *ret_peer the other rank; otherwise they are left as they are.
 */
bool p2p_progress(struct p2p *p, int *ret_peer, int *ret_rc);

/* For the stage: the message has flown. A receive has its bytes, and those of a send have been
 * read. In an elastic job a send still waits for the receiver's confirmation. */
void p2p_flown(struct p2p *p, struct p2p_op *op);

/* Whether an operation has not ended, or a peer waits for an answer: otherwise p2p_progress() has
 * nothing to do. */
bool p2p_is_busy(const struct p2p *p);

/* Whether the bytes of a message are on their way. */
bool p2p_moves(const struct p2p *p);

/* Whether bytes of the peer have come since the last call. */
bool p2p_has_news(struct p2p *p, int peer);

/* Ends all operations with a peer, -1: all operations, with err. Of -1 no more may begin. */
void p2p_fail(struct p2p *p, int peer, const struct err *err);

/* Calls f for every operation that has not ended, the oldest first. f must not call p2p. */
void p2p_each(struct p2p *p, void (*f)(void *ctx, struct p2p_op *op), void *ctx);

/* Ends the receives from any rank for which there is no message yet. */
void p2p_fail_any(struct p2p *p, const struct err *err);

/* The oldest operation that has not ended; NULL: all have. */
const struct p2p_op *p2p_oldest(struct p2p *p);

#endif
