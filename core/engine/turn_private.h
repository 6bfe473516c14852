/* SPDX-License-Identifier: Apache-2.0
 *
 * turn_private: what turn.c and turn_ops.c share. Called with the progress lock held.
 */
#ifndef HVD_ENGINE_TURN_PRIVATE_H
#define HVD_ENGINE_TURN_PRIVATE_H

#include "core/base/err.h"

struct circle;
struct engine;
struct slot;

/* Ends an operation that is in no batch with err. */
void turn_finish_with(struct circle *c, struct slot *slot, const struct err *err);

/* Tells the agent, if there is one, of progress (state 1) or of a stall (2, with its text). */
void turn_tell_agent(struct engine *e, unsigned state, const char *text);

#endif
