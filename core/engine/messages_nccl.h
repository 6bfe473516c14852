/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_nccl: messages from GPU to GPU by NCCL (SETS.md, Point to point): p2p finds out which
 * send meets which receive, and both ranks launch the message when the order of launches says so
 * (launch_order.h). A sender and a receiver are a group there: two ranks that send each other
 * messages are two groups. A message goes by the communicator of its set, once a collective has
 * made that; in an elastic job only messages of the world (set 0) do. A message is no batch of the
 * set's GPU lane (gpu_lane.h), whose batches concern all ranks of the set, but lies between them on
 * the stream. Called with the progress lock held.
 *
 * Until a message is announced it can be given up. When both ranks have announced it, it has its
 * place in the order, and either may have launched it, which cannot be taken back. A rank that
 * fails then tells the others before it aborts the communicator. Where the collectives of a set
 * fail alone, its messages go on (circle_fail()).
 */
#ifndef HVD_ENGINE_MESSAGES_NCCL_H
#define HVD_ENGINE_MESSAGES_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct circle;
struct engine;
struct p2p_op;
struct slot;

struct flying; /* a message */

/* Of a circle, in this epoch. */
struct messages_nccl {
    struct flying *first; /* in the order in which p2p has begun them */
    uint64_t *groups;     /* [ngroups] of all messages that could fly in this epoch; NULL: none */
    size_t ngroups;
    size_t launched; /* not over; of those: */
    size_t uncalled; /* whose event is not recorded */
    size_t unlanded; /* whose event had not passed at the last look */
    bool owed;       /* launched ones were given up, and may touch their memory */
};

void messages_nccl_fini(struct messages_nccl *m);

/* p2p_stage.can_fly: from true on until messages_nccl_flies_not(), and until the message is over,
 * this rank launches nothing in a pattern (order_hold()). While a pattern is in force it is false,
 * and a thaw is asked for: the next message may fly. */
bool messages_nccl_may_fly(struct engine *e, const struct p2p_op *op, size_t bytes);
void messages_nccl_flies_not(struct engine *e, struct slot *slot);

/* p2p_stage.fly; drop: the operation's flight, if there is one, is forgotten. */
void messages_nccl_fly(struct engine *e, struct p2p_op *op);
void messages_nccl_drop(struct circle *c, struct p2p_op *op);

/* Announces what is not announced yet (launch_order_announce()). A failure is set in e->trouble. */
void messages_nccl_announce(struct circle *c);

/* Call it after gpu_lane_progress(), with the same `heard`. Launches the messages that are due, and
 * ends those that have landed. Returns whether that was any, or the circle was lost. */
bool messages_nccl_progress(struct circle *c, bool heard);

/* Messages have landed that end once the peers' words have been looked at. */
bool messages_nccl_has_news(const struct messages_nccl *m);

/* Whether a message with the peer is launched and not over, or has its place in the order: the peer
 * may have launched it, and cannot take it back. */
bool messages_nccl_binds(const struct circle *c, int peer);

/* Whether a message with the peer is announced and not over. */
bool messages_nccl_has_told(const struct circle *c, int peer);

/* Whether a message is announced and not over: the other rank may have launched it. A message that
 * is not announced can be given up. */
bool messages_nccl_owes(const struct circle *c);

/* Whether NCCL runs a message of the circle, or may run one that was given up. */
static inline bool messages_nccl_aloft(const struct messages_nccl *m)
{
    return m->launched > 0 || m->owed;
}

/* Waits until messages that were given up do not touch their memory any more (device_drain()). */
void messages_nccl_drain(struct circle *c);

/* Whether a message is announced and not launched. */
bool messages_nccl_waits(const struct circle *c);

/* Forgets the groups, and what is not launched is not announced any more (launch_order_leave()). */
void messages_nccl_leave(struct circle *c);

#endif
