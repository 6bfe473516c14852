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

/* allreduce, broadcast, barrier. */
int fast_run(struct engine *e, const struct hvd_request *request, struct err *err);

#endif
