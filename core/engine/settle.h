/* SPDX-License-Identifier: Apache-2.0
 *
 * settle: what becomes of the operation under way, and of the batch it is in, in a new epoch: taken
 * over, finished from the old segment, done by those who are left, or given back. (lock)
 */
#ifndef HVD_ENGINE_SETTLE_H
#define HVD_ENGINE_SETTLE_H

#include "core/base/err.h"

struct engine;

/* In the new epoch's mesh and coll. -ECONNRESET: it has lost a rank, too; everything is still there
 * for the next one. */
int settle(struct engine *e, struct err *err);

/* The repair is over, well or not: the old epoch's memory is given up. */
void settle_fini(struct engine *e);

#endif
