/* SPDX-License-Identifier: Apache-2.0
 *
 * set_gain: sets that ranks come to, in a job that keeps places. A set is then a list of places,
 * and a rank that joins the job is in all sets that have its place. So are the ranks of a unit that
 * is whole again: they have been out of their sets since it broke.
 */
#ifndef HVD_ENGINE_SET_GAIN_H
#define HVD_ENGINE_SET_GAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

struct engine;
struct world;

/* The user has entered world w, in which ranks have joined or a unit is whole again, and all ranks
 * know the same sets. stale: [w->size] ranks that have missed steps, or all of them. Their sets
 * take the ranks that have come, and the calls of hvd.h show them. Without the progress lock. */
void sets_gain(struct engine *e, struct world *w, const uint8_t *stale);

/* Whether ranks come to sets in world w, as far as this rank knows: it may never have been in an
 * epoch in which a unit was broken. (lock) */
bool sets_will_gain(const struct engine *e, const struct world *w);

/* Whether this rank has missed steps, or all of them, before world w. */
bool sets_is_stale(const struct engine *e, const struct world *w);

#endif
