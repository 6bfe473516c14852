/* SPDX-License-Identifier: Apache-2.0
 *
 * settle: completes the operation in flight of a circle, and the batch that contains it, in a new
 * epoch. Depending on the decision, the result counts as final (this rank has it whole), is
 * finished from the old segment, is completed by the survivors, or the operation is submitted
 * again. Called with the progress lock held.
 */
#ifndef HVD_ENGINE_SETTLE_H
#define HVD_ENGINE_SETTLE_H

#include "core/base/err.h"

struct circle;

/* Uses the new epoch's mesh and coll. -ECONNRESET: the new epoch has lost a rank as well; nothing
 * is discarded, so the next epoch can repeat the call. */
int settle(struct circle *c, struct err *err);

/* The same in a set that goes on no more: finishes what another rank has finished, and gives up
 * what is left. Needs no other rank. */
int settle_without_mesh(struct circle *c, struct err *err);

#endif
