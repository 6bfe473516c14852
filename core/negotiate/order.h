/* SPDX-License-Identifier: Apache-2.0
 *
 * order: the order in which the ranks launch NCCL's operations of different groups (sets, and the
 * world). Pure: calls in, messages out through a callback; no I/O, no clock of its own, no threads
 * (the engine calls it under its progress lock).
 *
 * NCCL's operation occupies a rank's GPU until all ranks of its group run it. If two ranks launch
 * operations of two groups that they share in different orders, each waits for the other. In each
 * group the order of the operations is that of negotiation's log, the same on all of its ranks.
 * This module adds a log of launches for all groups, which rank 0 writes: every rank launches the
 * operations of its own groups in its order.
 *
 * The ranks form the tree of negotiate.h. A rank announces each operation that it could launch.
 * Nodes add up how many ranks have announced it. Once all ranks of the group have, rank 0 appends
 * it to the log, which goes down the tree. A rank skips the operations of groups that it is not in,
 * so groups without a common rank do not wait for each other.
 *
 * Steady state: when the log has repeated itself often enough rank 0 sends a pattern, a sequence of
 * groups. From then on each rank repeats its own part of it, and nothing is sent: an operation that
 * the caller announces (order_ready()) may be launched at once, as long as the announcements have
 * the order of the pattern. Rank 0 does not know what the ranks have launched since. At the first
 * announcement that is not the pattern's next, the rank launches nothing more and asks for a thaw.
 * So a rank launches in a pattern in the order of its announcements, without leaving one out: had
 * it launched an operation before one that it had announced earlier, another rank could need the
 * earlier one before it gets to the later one.
 *
 * Thaw. Ranks are at different places of the pattern, and a launch cannot be taken back. Each rank
 * says how many operations of each of its groups it has launched, which counts as their
 * announcement. It announces further operations only when the GPU has finished all that this rank
 * has launched (order_drained()). Rank 0 logs an operation that some ranks have launched only after
 * all those that one of these ranks has launched before it. So it has the same place among the
 * launches of all ranks.
 *
 * No rank waits for ever if the ranks announce the operations of all groups in orders that do not
 * contradict each other. While no pattern is in force they may contradict each other, if the
 * program does not wait between them. Two ranks wait for ever if the order changes while a pattern
 * is in force, on some ranks only, and one of them waits for X before it announces Y, while another
 * one has launched Y before X.
 *
 * Every epoch begins in a pattern of the world alone: a job without sets on GPUs sends no message.
 */
#ifndef HVD_NEGOTIATE_ORDER_H
#define HVD_NEGOTIATE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct order_config {
    int rank, size;
    int parent;          /* rank, -1 on the root */
    const int *children; /* ranks */
    int nchildren;
    uint32_t freeze_after; /* equal rounds before a pattern; 0: never */
};

struct order_ops {
    /* Sends a message to a child (its rank) or to the parent (NEGOTIATE_PARENT). */
    int (*send)(void *ctx, int to, const struct buf *msg);
};

struct order;

int order_create(const struct order_config *config, const struct order_ops *ops, void *ctx,
                 struct order **ret, struct err *err);
void order_destroy(struct order *o); /* NULL is allowed */

/* The world's group. Others have ids that are the same on all of their ranks, and are not used
 * twice. */
#define ORDER_WORLD 0

/* This rank can launch the next operation of the group: its first call for a group is about the
 * group's operation 0 in this epoch. size: ranks of the group, at least 2. key: the same on all
 * ranks for this operation, and each time that the program repeats it. Patterns follow the order of
 * these calls, over all groups. So it should be that in which the program submits the operations.
 * Returns 0, or order_failed(). */
int order_ready(struct order *o, uint64_t group, int size, uint64_t key);

/* As order_ready(), of an operation that has overtaken another one: the program has submitted that
 * one earlier, to another group, and this rank cannot launch it yet. It is not launched in a
 * pattern, because another rank may wait for the other one before it submits this one. */
int order_ready_early(struct order *o, uint64_t group, int size, uint64_t key);

/* Whether the next operation of the group is the one that this rank has to launch now. It was
 * announced by order_ready(). */
bool order_is_next(const struct order *o, uint64_t group);

/* The group whose operation this rank has to launch now. false: none. */
bool order_next(const struct order *o, uint64_t *ret_group);

/* Whether an operation of the group that this rank has announced has its place among the launches:
 * all ranks of the group have announced it. */
bool order_has(const struct order *o, uint64_t group);

/* It was launched. Only if order_is_next(). */
void order_launched(struct order *o, uint64_t group);

/* Whether order_drained() is wanted. Call it when the GPU has finished everything that this rank
 * has launched; nothing else is launched meanwhile that order does not know of. */
bool order_drains(const struct order *o);
void order_drained(struct order *o);

/* Whether the first pattern was left in this epoch: some rank has announced an operation of another
 * group than the world. */
bool order_is_used(const struct order *o);

/* Whether this rank follows the log: no pattern is in force, and nothing that it has launched in
 * one is still to end. Only then two ranks may agree on a message. In a pattern the other
 * rank may already have launched a collective that this rank submits only after the message: on
 * that rank's GPU the message would wait behind the collective, for ever. */
bool order_is_open(const struct order *o);

/* While this rank holds the order, it launches nothing in a pattern. */
void order_hold(struct order *o, bool holds);

/* Asks for a thaw, if a pattern is in force. */
void order_ask(struct order *o);

/* The group has ended or failed on this rank: its operations, also those of the log, are not
 * launched any more. If another rank has launched one, its GPU waits until the group fails there,
 * too. */
void order_drop(struct order *o, uint64_t group);

/* Processes a message from a child (its rank) or the parent (NEGOTIATE_PARENT). The bytes are
 * untrusted: -EPROTO for a malformed message, after which the state is undefined. */
int order_recv(struct order *o, int from, const void *msg, size_t len, struct err *err);

/* Sends the messages that earlier calls have queued; nothing else sends them. There is no timer. */
void order_tick(struct order *o);

/* 0, or why it cannot continue: -ENOMEM, or -EPROTO, if ranks announce different operations. */
int order_failed(const struct order *o);

struct order_stats {
    uint64_t logged; /* operations that this rank launched by the log */
    uint64_t frozen; /* by a pattern other than the first */
    uint64_t thaws;
};
void order_get_stats(const struct order *o, struct order_stats *ret);

#endif
