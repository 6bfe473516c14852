/* SPDX-License-Identifier: Apache-2.0
 *
 * fast: an operation that is submitted and waited for in one call.
 *
 * In the frozen state it needs no slot of the queue, no message and no lock but the progress lock.
 * Else it is submitted and driven to its end in one go, without waking anybody.
 */
#ifndef HVD_ENGINE_FAST_H
#define HVD_ENGINE_FAST_H

#include <hvd.h>

#include "core/base/err.h"

struct engine;

/* Whose operation it is. */
enum fast_for {
    FAST_USER,
    FAST_OWN,      /* the engine's own: it fits every world */
    FAST_OWN_LAST, /* the same, and no operation of a user begins behind it (batches.held) */
};

/* allreduce, broadcast, barrier. -ESTALE: the world has changed before it was done. */
int fast_run(struct engine *e, const struct hvd_request *request, enum fast_for whose,
             struct err *err);

#endif
