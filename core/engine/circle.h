/* SPDX-License-Identifier: Apache-2.0
 *
 * circle: what carries the operations of a group of ranks in one epoch: mesh, control tree,
 * negotiation, collectives and the batches of the group's log. The ranks of the world are a circle
 * (engine.circle), and those of each set (sets.h) are one. Belongs to the holder of the progress
 * lock.
 */
#ifndef HVD_ENGINE_CIRCLE_H
#define HVD_ENGINE_CIRCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/engine/batches.h"
#include "core/engine/control.h"
#include "core/engine/ids.h"
#include "core/engine/world.h"

struct coll;
struct cycles;
struct engine;
struct mesh;
struct negotiate;
struct p2p;
struct rendezvous;
struct signature;
struct slot;

enum circle_state {
    CIRCLE_WORKS,
    CIRCLE_MAKING, /* the ranks do not know yet whether the set is made; it has no operations */
    CIRCLE_ENDING, /* the set is being removed; it has no operations any more */
    CIRCLE_FAILED, /* its operations fail with circle.failure */
};

struct circle {
    struct engine *engine;
    /* The world's always works: if it fails, the engine has failed. In every other state the end of
     * a connection is no loss. */
    enum circle_state state;
    struct err failure;
    int set; /* the set's number; 0: the world */
    /* of a set; NULL: the world */
    const char *name;       /* "set 1 (ranks 0, 2)" */
    const int *world_ranks; /* [size] the ranks' numbers in the world */
    int rank, size;         /* in the mesh, which may have fewer ranks than the world */
    struct mesh *mesh;
    bool spin;            /* every rank of this host has a processor of its own: mesh_may_spin() */
    struct world_map map; /* between mesh ranks and ranks of the user's world */
    struct world_map map_previous; /* the same for engine.previous */
    /* operations of coll's that are done; every rank has the same number at the same place of the
     * log */
    uint64_t done;
    struct coll *coll;
    struct negotiate *neg;         /* NULL: the epoch is not complete */
    struct rendezvous *rendezvous; /* of the world; NULL: a set's circle, or no negotiation */
    /* of the world, on rank 0; NULL: no rank has told that it is blocked */
    struct cycles *cycles;
    struct control control;
    struct p2p *p2p; /* messages between two ranks; NULL: there was none yet */
    /* The number of the oldest message that has not ended, since when it is that, and when it was
     * reported last. */
    uint64_t message_oldest, message_since, message_told;
    struct ids ids;
    struct batches batches;
    uint64_t next_tick;      /* clock time at which negotiation has to be called; 0: at once */
    struct slot *submitting; /* the slot that is in negotiate_submit() now */
};

/* Creates control links and a negotiation that knows no operation, for the circle's mesh. */
int circle_negotiate(struct circle *c, struct err *err);

/* Ends negotiation and closes the control links. */
void circle_dissolve(struct circle *c);

/* Adds what negotiation and mesh have counted to the engine's totals, before they end. */
void circle_keep_counters(struct circle *c);

/* Frees what circle_dissolve() leaves. */
void circle_fini(struct circle *c);

/* Computes both maps for the circle's mesh. */
int circle_map(struct circle *c, struct err *err);

/* The map of the world in which an operation was submitted. */
const struct world_map *circle_map_of(const struct circle *c, const struct signature *sig);

/* The number in the world of a rank of the circle. */
static inline int circle_world_rank(const struct circle *c, int rank)
{
    return c->world_ranks ? c->world_ranks[rank] : rank;
}

/* ---- all circles of an engine ---- */

/* A descriptor for poll(2) that is readable when one of the meshes has an event (mesh_fd()). -1:
 * the engine is broken. */
int circles_fd(const struct engine *e);

/* mesh_sleep_begin() and mesh_sleep_end() of all meshes. */
void circles_sleep_begin(struct engine *e);
void circles_sleep_end(struct engine *e);

/* Whether no circle has a batch. */
bool circles_idle(struct engine *e);

/* The clock time at which a negotiation has to be called; 0: at once. */
uint64_t circles_next_tick(struct engine *e);

#endif
