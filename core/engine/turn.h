/* SPDX-License-Identifier: Apache-2.0
 *
 * turn: one turn of work of whoever drives: new submissions, messages, batches. (lock)
 */
#ifndef HVD_ENGINE_TURN_H
#define HVD_ENGINE_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/negotiate/negotiate.h"

struct engine;
struct slot;

extern const struct negotiate_ops turn_negotiate_ops;

/* How much of it: */
enum turn_depth {
    TURN_SPIN,  /* what a spinning driver looks at: submissions and the collective */
    TURN_CHECK, /* messages, too; the mesh's events are left alone: the last look before sleep. (An
                   event that was taken in between would not wake the sleeper again.) */
    TURN_FULL,  /* the mesh's events, too */
};

/* Returns whether anything moved. */
bool turn(struct engine *e, enum turn_depth depth);

/* Hands a slot to negotiate. */
void turn_submit(struct engine *e, struct slot *slot, uint64_t now);

/* Only takes what was submitted; starts nothing. */
void turn_note(struct engine *e);

/* Tells negotiate that somebody is blocked on this slot. */
void turn_urge(struct engine *e, struct slot *slot);

/* Whether there is something that a driver must see to. */
bool turn_needed(struct engine *e);

#endif
