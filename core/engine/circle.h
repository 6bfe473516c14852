/* SPDX-License-Identifier: Apache-2.0
 *
 * circle: what carries the operations of a group of ranks in one epoch: mesh, control tree,
 * negotiation, collectives and the batches of the group's log. The ranks of the world are a circle
 * (engine.circle), the only one so far (SETS.md). Belongs to the holder of the progress lock.
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
struct engine;
struct mesh;
struct negotiate;
struct signature;
struct slot;

struct circle {
    struct engine *engine;
    int rank, size; /* in the mesh, which may have fewer ranks than the world */
    struct mesh *mesh;
    bool spin;            /* every rank of this host has a processor of its own: mesh_may_spin() */
    struct world_map map; /* between mesh ranks and ranks of the user's world */
    struct world_map map_previous; /* the same for engine.previous */
    /* operations of coll's that are done; every rank has the same number at the same place of the
     * log */
    uint64_t done;
    struct coll *coll;
    struct negotiate *neg; /* NULL: the epoch is not complete */
    struct control control;
    struct ids ids;
    struct batches batches;
    int64_t *splits;         /* [size] rows of an alltoall, by mesh rank: launch_wire_splits() */
    uint64_t next_tick;      /* clock time at which negotiation has to be called; 0: at once */
    struct slot *submitting; /* the slot that is in negotiate_submit() now */
};

/* Creates control links and a negotiation that knows no operation, for the circle's mesh. */
int circle_negotiate(struct circle *c, struct err *err);

/* Ends negotiation and closes the control links. */
void circle_dissolve(struct circle *c);

/* Frees what circle_dissolve() leaves. */
void circle_fini(struct circle *c);

/* Computes both maps for the circle's mesh. */
int circle_map(struct circle *c, struct err *err);

/* The map of the world in which an operation was submitted. */
const struct world_map *circle_map_of(const struct circle *c, const struct signature *sig);

#endif
