/* SPDX-License-Identifier: Apache-2.0
 *
 * turn: one turn of the driver's work: new submissions, messages, batches. Called with the progress
 * lock held.
 */
#ifndef HVD_ENGINE_TURN_H
#define HVD_ENGINE_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/engine/queue.h"
#include "core/negotiate/negotiate.h"

struct circle;
struct engine;
struct slot;

extern const struct negotiate_ops turn_negotiate_ops;

/* How much a turn does. */
enum turn_depth {
    TURN_SPIN, /* for a spinning driver: submissions and the collective */
    /* Also messages, but no events of the mesh's epoll: the last check before sleeping. An event
     * that was taken here would not wake the sleeper. */
    TURN_CHECK,
    TURN_FULL, /* also the mesh's events */
};

/* Returns true when there was something to do. */
bool turn(struct engine *e, enum turn_depth depth);

/* Hands a submitted operation (a slot of the queue) to negotiation. */
void turn_submit(struct circle *c, struct slot *slot, uint64_t now);

/* Takes new submissions into negotiation, but starts no operation. */
void turn_note(struct engine *e);

/* Tells negotiation that a caller polls this slot or is blocked on it. */
void turn_prioritize(struct engine *e, struct slot *slot, enum priority priority);

/* Returns true when there is work for a driver. */
bool turn_needed(struct engine *e);

#endif
