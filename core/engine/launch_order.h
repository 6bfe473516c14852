/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order: the NCCL operations of all circles of a rank are launched in one order, the same on
 * all ranks that share them (negotiate/order.h). They go through one stream of the GPU, so they
 * also run in that order. The log's batches of a circle are in the circle's GPU lane (gpu_lane.h);
 * launch_order says when the next one of a lane may be launched. Its messages go over the world's
 * control links. A circle of one rank takes no part. Called with the progress lock held.
 */
#ifndef HVD_ENGINE_LAUNCH_ORDER_H
#define HVD_ENGINE_LAUNCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct circle;
struct engine;

/* For the world's circle of a new epoch, with its control links. */
int launch_order_begin(struct circle *world, struct err *err);
void launch_order_end(struct circle *world);

/* The circle takes part from here on, until launch_order_leave(). */
void launch_order_join(struct circle *c);

/* The circle launches nothing more: it fails, or ends. */
void launch_order_leave(struct circle *c);

/* Announces the batches of all lanes that could be launched now, in the order in which the program
 * has submitted them. A failure is set in e->trouble. */
void launch_order_announce(struct engine *e);

/* Whether launches of the circle are ordered. */
bool launch_order_takes_part(const struct circle *c);

/* Whether two of its ranks may add a message to the order now (order_is_open()). If not, asks for
 * it, so that later ones may. */
bool launch_order_is_open(const struct circle *c);

/* How many messages this rank may add to the order, or has added: while there are any, it launches
 * nothing in a pattern. */
void launch_order_hold(struct engine *e, size_t messages);

/* Whether the lane's next batch may be launched now, as far as other circles are concerned. */
bool launch_order_allows(const struct circle *c);

/* It was launched. */
void launch_order_note(struct circle *c);

/* A message (messages_nccl.h) is an operation of a group of two ranks. It is announced as one that
 * has overtaken others: a receive meets its send at any time, so messages have no place in a
 * pattern. A failure is set in e->trouble. */
void launch_order_announce_pair(struct engine *e, uint64_t group, uint64_t key);

/* Whether the log has an operation of the group that this rank has not launched. */
bool launch_order_has_pair(const struct circle *c, uint64_t group);

/* The group that is to launch its next operation now, if other circles allow that. */
bool launch_order_next_pair(const struct circle *c, uint64_t *ret_group);
void launch_order_note_pair(struct engine *e, uint64_t group);

/* The group launches nothing more. */
void launch_order_drop_pair(struct engine *e, uint64_t group);

/* The GPU has been asked how many of the lane's batches, and of its messages, it has finished. */
void launch_order_landed(const struct circle *c);

/* Takes a message of a child (its rank) or the parent (NEGOTIATE_PARENT). -EPROTO, -ENOMEM. */
int launch_order_recv(struct circle *world, int from, const void *msg, size_t len, struct err *err);

/* Whether other ranks may need this rank for their order after it has shut down. It then serves
 * them until all have shut down, or for so long. Not in an elastic job, where the others go on to
 * the next epoch. */
bool launch_order_serves(const struct circle *world);
#define LAUNCH_ORDER_SERVES_MS 600000

/* Sends messages. */
void launch_order_tick(struct circle *world);

/* Ranks have shut down. If one of them is needed for the order of this circle's next launch, and
 * does not serve it any more, this rank fails with -ESHUTDOWN, and tells the others. */
void launch_order_check_departed(struct circle *c, uint64_t now);

#endif
