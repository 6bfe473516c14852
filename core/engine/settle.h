/* SPDX-License-Identifier: Apache-2.0
 *
 * settle: completes the operation in flight, and the batch that contains it, in a new epoch.
 * Depending on the decision, the result counts as final (this rank has it whole), is finished from
 * the old segment, is completed by the survivors, or the operation is submitted again. Called with
 * the progress lock held.
 */
#ifndef HVD_ENGINE_SETTLE_H
#define HVD_ENGINE_SETTLE_H

#include "core/base/err.h"

struct engine;

/* Uses the new epoch's mesh and coll. -ECONNRESET: the new epoch has lost a rank as well; nothing
 * is discarded, so the next epoch can repeat the call. */
int settle(struct engine *e, struct err *err);

/* Called when a repair ends, successful or not: frees the old epoch's memory and the saved inputs.
 */
void settle_fini(struct engine *e);

#endif
