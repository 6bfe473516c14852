/* SPDX-License-Identifier: Apache-2.0
 *
 * reform: from one epoch to the next in place (REPAIR.md): the engine keeps its queue and its
 * user's memory, everything else is made anew; the operation under way is finished or begun anew.
 * (lock)
 *
 * Blocks whoever drives, until the coordinator has a roster for this rank; hvd_shutdown() ends it.
 */
#ifndef HVD_ENGINE_REFORM_H
#define HVD_ENGINE_REFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/engine/decision.h"

struct engine;
struct mesh;

/* An input that will be overwritten before the operation is done everywhere. */
struct reform_saved {
    const uint8_t *in;
    size_t len;
    uint8_t *copy;
};

struct reform {
    /* The epoch in which the operation under way lost a rank; NULL: none was under way. */
    struct mesh *old_mesh;
    struct coll *old_coll;
    bool active;   /* a repair has begun and is not over */
    bool boundary; /* it is for a planned change, at this rank's boundary */
    struct coll_rest rest;
    struct reform_saved *saved;
    size_t nsaved, saved_cap;
    struct report mine; /* as of the loss; nothing that happens in the old epoch later counts */
    struct decision decision; /* of the epoch that is entered */
    _Atomic uint64_t last_ns; /* what the last repair took; 0: none yet */
};

/* The first epoch: joins the world. 1: others train, and this rank has a place (boot.h). */
int reform_join(struct engine *e, uint64_t deadline, struct err *err);

/* The next epoch. why: CTL_REVOKED or CTL_BOUNDARY; cause: for the log. On failure the engine is to
 * fail with err; -ESHUTDOWN: this rank was asked to leave, or hvd_shutdown() was called. */
int reform(struct engine *e, int why, const char *cause, struct err *err);

/* What this rank has to say is from here on what it is now. */
void reform_report(struct engine *e);

#endif
