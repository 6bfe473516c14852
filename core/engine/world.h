/* SPDX-License-Identifier: Apache-2.0
 *
 * world: a roster as the user sees it: hvd_rank(), hvd_size() and so on. One object is made for
 * each epoch. engine.world is the world of the last boundary; the engine keeps it and the worlds of
 * later epochs.
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
    int place; /* this rank's place */
    bool homogeneous;
    bool is_new; /* this rank has joined an existing world */
    int source;  /* the lowest rank that is not new; 0 when all are new */
    /* Ranks that joined and ranks that left since the previous world; set before the user sees it.
     */
    int joined, left;
    int table; /* what all ranks do about the table of sets (set_table.h); set before that, too */
    uint32_t *members; /* [size] member numbers by rank */
    int *places;       /* [size] the ranks' places, which rise with the ranks */
    int *hosts;        /* [size] numbers of the ranks' hosts, in the order of their lowest ranks */
    int *local_ranks;  /* [size] */
    bool *fresh;       /* [size] whether the rank joined in this epoch, without training state */
    bool *starts;      /* [size] whether this is the first epoch of the rank's process */
    bool *broken; /* [size] whether the rank is part of a broken unit (units.h) in this epoch */
    int nbroken;
    int *by_member; /* [size] ranks sorted by member number */
    struct world *older;
};

/* Creates the world of the mesh's epoch. NULL: out of memory. */
struct world *world_make(const struct boot *boot, const struct mesh *mesh);

/* Frees w and all older worlds. */
void world_destroy(struct world *w);

/* The world of an epoch among w and older ones, NULL when there is none. */
struct world *world_of(struct world *w, uint32_t epoch);

/* The member's rank in w; -1 when it is not in w. */
int world_rank_of(const struct world *w, uint32_t member);

/* Whether the member is in w and has been in every world since epoch `since`. The list of w->older
 * must reach back to that epoch. */
bool world_has_kept(const struct world *w, uint32_t since, uint32_t member);

/* The same, and in none of them, nor in the one of epoch `since` itself, was it part of a broken
 * unit. */
bool world_has_worked(const struct world *w, uint32_t since, uint32_t member);

/* Whether the member was part of a broken unit in an epoch after `since`. The list of w->older must
 * reach back to that epoch. */
bool world_was_broken(const struct world *w, uint32_t since, uint32_t member);

/* The rank that has the place; -1: none has it. */
int world_at_place(const struct world *w, int place);

/* Whether the member is in w, and is the process that it was in epoch `since`. */
bool world_has_process(const struct world *w, uint32_t since, uint32_t member);

/* Counts the members of w that need the training state when the user moves from world `before` to
 * w: members that were not in `before`, and members that were but have rejoined since. The list of
 * w->older must reach back to `before`. */
int world_joined(const struct world *w, const struct world *before);

/* Maps ranks of a mesh to ranks of a world, or of a set as its user sees it, and back; -1: no
 * counterpart. A repaired mesh has fewer ranks than the world. */
struct world_map {
    int rank, size; /* this rank's number in the world or set, and how many ranks that has */
    int *to_mesh;   /* [size] */
    int *to_world;  /* [mesh size] */
    bool same;      /* both directions are the identity */
};

int world_map_init(struct world_map *m, const struct world *w, const struct mesh *mesh,
                   struct err *err);
void world_map_fini(struct world_map *m);

#endif
