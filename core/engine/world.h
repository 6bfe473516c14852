/* SPDX-License-Identifier: Apache-2.0
 *
 * world: a roster as the user sees it: hvd_rank(), hvd_size() and the like. One is made for each
 * epoch; the engine points at the one of the last boundary and keeps it and those of later epochs.
 */
#ifndef HVD_ENGINE_WORLD_H
#define HVD_ENGINE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

struct boot;
struct mesh;

struct world {
    uint32_t epoch;
    int rank, size, local_rank, local_size, cross_rank, cross_size;
    bool homogeneous;
    bool is_new;       /* this rank came into a world that was there */
    int source;        /* the lowest rank that is not new, 0 when all are */
    int joined, left;  /* ranks that are new, that are gone; set before the user sees it */
    uint32_t *members; /* [size] */
    bool *fresh;       /* [size], came in with this epoch and without a state */
    int *by_member;    /* [size], ranks in the order of their members */
    struct world *older;
};

/* Of the epoch that the mesh is in. NULL: no memory. */
struct world *world_make(const struct boot *boot, const struct mesh *mesh);

/* It and all older ones. */
void world_destroy(struct world *w);

/* The one of an epoch among w and the older ones, NULL when there is none. */
struct world *world_of(struct world *w, uint32_t epoch);

/* The rank of a member, -1: it is not in it. */
int world_rank_of(const struct world *w, uint32_t member);

/* Members of w that need the state, for those who come to it from the world before: who was not in
 * that one, and who was, but has come anew since. w's older ones reach back to before. */
int world_joined(const struct world *w, const struct world *before);

/* Which rank of a mesh is which of the world and back; -1: none. A mesh that was repaired has fewer
 * ranks than the world. */
struct world_map {
    int *to_mesh;  /* [world size] */
    int *to_world; /* [mesh size] */
    bool same;     /* they are the same ranks */
};

int world_map_init(struct world_map *m, const struct world *w, const struct mesh *mesh,
                   struct err *err);
void world_map_fini(struct world_map *m);

#endif
