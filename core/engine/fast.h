/* SPDX-License-Identifier: Apache-2.0
 *
 * fast: an operation that is submitted and waited for in one call.
 *
 * While the schedule is frozen it needs no slot of the queue, no message and no lock but the
 * progress lock. Otherwise it is submitted and driven to its end by the caller, without waking
 * another thread.
 */
#ifndef HVD_ENGINE_FAST_H
#define HVD_ENGINE_FAST_H

#include <hvd.h>

#include "core/base/err.h"

struct engine;

/* The owner of the operation. */
enum fast_for {
    FAST_USER,
    FAST_OWN,      /* the engine's own: belongs to no world, so it never gets -ESTALE */
    FAST_OWN_LAST, /* the engine's own, after which no user operation begins (batches.held) */
};

/* For allreduce, broadcast and barrier. -ESTALE: the world changed before the operation was done.
 */
int fast_run(struct engine *e, const struct hvd_request *request, enum fast_for whose,
             struct err *err);

#endif
