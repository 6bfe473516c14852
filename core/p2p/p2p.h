/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p: messages between two ranks of a mesh, by tag. For one circle of the engine's; under the
 * progress lock.
 *
 * A message of at most P2P_EAGER bytes is sent with its tag; the receiver keeps it until a receive
 * takes it. Of a larger one only the size is sent; the receiver asks for the data when a receive
 * has taken it, and then the data goes from the sender's memory to the receiver's. The messages of
 * one sender that are kept have at most P2P_KEPT bytes, each counting 128 more: beyond that all are
 * sent as large ones.
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

struct p2p;

/* The operation has ended; op is the caller's again. err NULL: well. Must not call p2p, except
 * p2p_submit(). -EMSGSIZE: the message was larger than the room, and is dropped. */
typedef void p2p_done_f(void *ctx, struct p2p_op *op, const struct err *err);

int p2p_create(struct mesh *mesh, p2p_done_f *done, void *ctx, struct p2p **ret, struct err *err);

/* Without calling done. NULL is allowed. */
void p2p_destroy(struct p2p *p);

/* Begins an operation whose caller's part is filled in. Ends it at once if that is possible.
 * -ENOMEM: it does not begin. */
int p2p_submit(struct p2p *p, struct p2p_op *op, struct err *err);

/* Moves what can be moved. Returns whether anything was moved. On a failure of a link or a
 * malformed message: *ret_rc -errno, *ret_peer the other rank; otherwise they are left as they are.
 */
bool p2p_progress(struct p2p *p, int *ret_peer, int *ret_rc);

/* Whether an operation has not ended: otherwise p2p_progress() has nothing to do. */
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
