/* SPDX-License-Identifier: Apache-2.0
 *
 * remains: what a circle keeps of an epoch that has ended, until the operation that was in flight
 * is settled in a new one (settle.h): the old mesh with its shared segment, the old collective, and
 * this rank's report as of the end. REPAIR.md says why. With the progress lock held.
 */
#ifndef HVD_ENGINE_REMAINS_H
#define HVD_ENGINE_REMAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"
#include "core/engine/decision.h"

struct circle;
struct mesh;

/* A copy of an input that will be overwritten before the operation is done on all ranks. */
struct remains_saved {
    const uint8_t *in;
    size_t len;
    uint8_t *copy;
};

struct remains {
    bool active; /* the epoch has ended, and settle() has not succeeded since */
    /* Of the epoch in which the operation in flight lost a rank; NULL: no operation was in flight.
     */
    struct mesh *mesh;
    struct coll *coll;
    struct coll_rest rest;
    struct remains_saved *saved;
    size_t nsaved, saved_cap;
    /* This rank's report as of the loss; later events in the old epoch do not count. */
    struct report report;
    struct decision decision; /* for the epoch that is being entered */
};

/* Ends the circle's epoch. Negotiation and mesh are given up, and the circle has no collective any
 * more. The first time since settle() has succeeded: keeps what the operation in flight needs, and
 * writes the report. */
void remains_keep(struct circle *c);

/* Sets this rank's report to its present state. */
void remains_report(struct circle *c);

/* The decision is made from the reports of n ranks, this one is number `me`; see decision_make().
 * It stays valid even if this epoch fails, too: pieces that were decided to be final remain final
 * in this rank's own report, and batches on GPUs that are to be run again are not whole any more.
 */
int remains_decide(struct circle *c, const struct report *reports, int n, uint64_t departed_done,
                   int me, struct err *err);

/* Replaces the mesh. Keeps the old one if the operation in flight still needs it. */
void remains_take_mesh(struct circle *c, struct mesh *mesh);

/* Frees mesh and collective of the old epoch. */
void remains_drop_old(struct circle *c);

/* Frees everything. */
void remains_fini(struct circle *c);

#endif
