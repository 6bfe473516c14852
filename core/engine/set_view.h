/* SPDX-License-Identifier: Apache-2.0
 *
 * set_view: the ranks of a set as its user sees them. Like the world that hvd_rank() tells, they
 * change at a boundary only, although the set's circle may have lost some of them before. All
 * memory is allocated with the view, so only set_view_init() can fail.
 */
#ifndef HVD_ENGINE_SET_VIEW_H
#define HVD_ENGINE_SET_VIEW_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/engine/world.h"

struct set_view {
    int rank, size;    /* this rank's number in the set (-1: it is in another one); ranks in it */
    int *ranks;        /* [size] their numbers in the world */
    uint32_t *members; /* [size] their member numbers */
};

/* The view of a set of n ranks of the world w, with room for `whole`. v is zero-initialized. */
int set_view_init(struct set_view *v, const struct world *w, const int *ranks, int n, int whole,
                  struct err *err);
void set_view_fini(struct set_view *v);

/* Makes `to` a copy of `from`. Both come from the same set. */
void set_view_copy(struct set_view *to, const struct set_view *from);

/* The user moves to world w. Members that are not in it, or that have come anew since epoch
 * `since`, leave the set; the others are numbered in their old order. working: those that were part
 * of a broken unit leave it, too. */
void set_view_follow(struct set_view *v, const struct world *w, uint32_t since, bool working);

/* The number in the set of its lowest rank that is in no broken unit of w; -1: there is none. */
int set_view_find_working(const struct set_view *v, const struct world *w);

/* The user sees these n members, which are in w, from now on. */
void set_view_become(struct set_view *v, const struct world *w, const uint32_t *members, int n);

/* Of n members, keeps those that are in w and have not come anew since epoch `since`; working: and
 * were not part of a broken unit. Returns how many. */
int set_view_filter(uint32_t *members, int n, const struct world *w, uint32_t since, bool working);

/* The maps between the view and a mesh of n of the set's members, which are in the set's order. */
int set_view_map_init(struct world_map *m, int n, struct err *err);
void set_view_map(const struct set_view *v, const uint32_t *members, int n, struct world_map *m);

#endif
