/* SPDX-License-Identifier: Apache-2.0
 *
 * set_move: sets by rule at a boundary. Their groups are made anew of the ranks that the job has
 * then, and ranks move between them (SETS.md, Sets by rule).
 */
#ifndef HVD_ENGINE_SET_MOVE_H
#define HVD_ENGINE_SET_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

struct engine;
struct world;

/* Whether this rank knows a set by rule. */
bool sets_have_rules(const struct engine *e);

/* The user has entered world w, all of its ranks know the same sets by rule, and no request of an
 * earlier world is in the inbox any more. stale: [w->size] as for sets_gain(). All ranks of w call.
 * Returns 0, also if the ranks have computed different groups for a set: then that set stays as it
 * is, and *ret_refused has the error, the same on all ranks. Other errors concern this rank alone.
 * Without the progress lock; blocks as hvd_wait() does. */
int sets_move(struct engine *e, const struct world *w, const uint8_t *stale,
              struct err *ret_refused, struct err *err);

#endif
