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

#include "core/base/err.h"

struct engine;

struct repair {
    bool boundary;            /* it is a planned change, at this rank's boundary */
    _Atomic uint64_t last_ns; /* duration of the last repair; 0: there was none */
};

/* Enters the first epoch. Returns 1 when this rank is a joiner and got provisional numbers
 * (boot.h). */
int repair_first_epoch(struct engine *e, uint64_t deadline, struct err *err);

/* Enters the next epoch. why: CTL_REVOKED or CTL_BOUNDARY; cause: text for the log. On failure the
 * caller must fail the engine with err; -ESHUTDOWN: this rank was asked to leave, or hvd_shutdown()
 * was called. */
int repair_next_epoch(struct engine *e, int why, const char *cause, struct err *err);

#endif
