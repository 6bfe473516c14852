/* SPDX-License-Identifier: Apache-2.0
 *
 * set_groups: the groups of a set by rule in a world, as this rank computes them, and whether all
 * ranks have computed the same.
 */
#ifndef HVD_ENGINE_SET_GROUPS_H
#define HVD_ENGINE_SET_GROUPS_H

#include "core/base/err.h"

struct engine;
struct vote;
struct world;

/* Computes the group of each rank by the rule. ret_groups: [w->size]. Calls the program's function,
 * so without locks. -ENOENT: this rank does not have the function. -EINVAL: the text is no rule, or
 * the function has failed. */
int set_groups_compute(const char *rule, const struct world *w, int *ret_groups, struct err *err);

/* All ranks of the vote compare what they have computed. mine: as of vote_well(). Returns 0 if all
 * have the same; 1 and an error, the same on all of them, if they differ or one has failed; the
 * vote's own error. */
int set_groups_compare(const struct vote *v, const char *rule, const struct world *w,
                       const int *groups, const struct err *mine, struct err *err);

#endif
