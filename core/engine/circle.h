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
#include "core/engine/messages.h"
#include "core/engine/remains.h"
#include "core/engine/world.h"

struct coll;
struct cycles;
struct device;
struct engine;
struct mesh;
struct negotiate;
struct order;
struct rendezvous;
struct signature;
struct slot;

enum circle_state {
    CIRCLE_WORKS,  /* beside this, see circle.ending */
    CIRCLE_MAKING, /* the ranks do not know yet whether the set is made; it has no operations */
    CIRCLE_LOST,   /* its epoch has ended, and its operations wait for the next one */
    CIRCLE_FAILED, /* elastic: its operations and messages fail with circle.failure */
};

struct circle {
    struct engine *engine;
    /* The world's always works: if its mesh fails, the engine has failed. */
    enum circle_state state;
    bool ending; /* the set is being removed, and has no operations any more */
    struct err failure;
    /* Code not 0: collectives fail with it, on all ranks of the set; messages go on, and so do the
     * messages of negotiation, for other ranks. */
    struct err over;
    int set; /* the set's number; 0: the world */
    /* of a set; NULL: the world */
    const char *name;        /* "set 1 (ranks 0, 2)" */
    const int *world_ranks;  /* [size] the ranks' numbers in the world's mesh */
    const uint32_t *members; /* [size] their member numbers */
    int rank, size;          /* in the mesh, which may have fewer ranks than the world */
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
    struct order *order;           /* of the world (launch_order.h); NULL: the same */
    /* of the world, on rank 0; NULL: no rank has told that it is blocked */
    struct cycles *cycles;
    struct control control;
    struct messages messages;
    struct ids ids;
    struct device *device; /* for tensors of GPUs; the world's is that of engine.backends */
    struct batches batches;
    struct remains remains;
    uint64_t next_tick;      /* clock time at which negotiation has to be called; 0: at once */
    struct slot *submitting; /* the slot that is in negotiate_submit() now */
};

/* Creates control links and a negotiation that knows no operation, for the circle's mesh. */
int circle_negotiate(struct circle *c, struct err *err);

/* Ends negotiation, closes the control links, and suspends messages. */
void circle_dissolve(struct circle *c);

/* Adds what negotiation and mesh have counted to the engine's totals, before they end. */
void circle_keep_counters(struct circle *c);

/* Frees what circle_dissolve() leaves. */
void circle_fini(struct circle *c);

/* Computes both maps for the circle's mesh. */
int circle_map(struct circle *c, struct err *err);

/* The map of the world in which an operation was submitted. */
const struct world_map *circle_map_of(const struct circle *c, const struct signature *sig);

/* Whether operations are run. If not, the end of a connection is no loss. */
static inline bool circle_works(const struct circle *c)
{
    return c->state == CIRCLE_WORKS && !c->ending;
}

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
