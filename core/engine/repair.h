/* SPDX-License-Identifier: Apache-2.0
 *
 * repair: moves the engine from one epoch to the next in place (REPAIR.md). The engine keeps its
 * queue and its user's buffers; everything else is created anew. The operation in flight is
 * finished or run again. Called with the progress lock held.
 *
 * Blocks the driver until the coordinator has a roster for this rank; hvd_shutdown() ends the wait.
 */
#ifndef HVD_ENGINE_REPAIR_H
#define HVD_ENGINE_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/engine/decision.h"

struct engine;
struct mesh;

/* A copy of an input that will be overwritten before the operation is done on all ranks. */
struct repair_saved {
    const uint8_t *in;
    size_t len;
    uint8_t *copy;
};

struct repair {
    /* Mesh and coll of the epoch in which the operation in flight lost a rank; NULL: no operation
     * was in flight. */
    struct mesh *old_mesh;
    struct coll *old_coll;
    bool active;   /* a repair has begun and has not ended */
    bool boundary; /* it is a planned change, at this rank's boundary */
    struct coll_rest rest;
    struct repair_saved *saved;
    size_t nsaved, saved_cap;
    /* This rank's report as of the loss; later events in the old epoch do not count. */
    struct report mine;
    struct decision decision; /* for the epoch that is being entered */
    _Atomic uint64_t last_ns; /* duration of the last repair; 0: there was none */
};

/* Enters the first epoch. Returns 1 when this rank is a joiner and got provisional numbers
 * (boot.h). */
int repair_first_epoch(struct engine *e, uint64_t deadline, struct err *err);

/* Enters the next epoch. why: CTL_REVOKED or CTL_BOUNDARY; cause: text for the log. On failure the
 * caller must fail the engine with err; -ESHUTDOWN: this rank was asked to leave, or hvd_shutdown()
 * was called. */
int repair_next_epoch(struct engine *e, int why, const char *cause, struct err *err);

/* Sets this rank's report to its present state. */
void repair_report(struct engine *e);

#endif
