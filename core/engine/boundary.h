/* SPDX-License-Identifier: Apache-2.0
 *
 * boundary: hvd_commit(), the step boundary. Losses and planned changes become visible there, on
 * every rank at the same place of its program (REPAIR.md).
 */
#ifndef HVD_ENGINE_BOUNDARY_H
#define HVD_ENGINE_BOUNDARY_H

#include "core/base/err.h"

struct engine;

/* Called by any thread without the progress lock. Returns 0 when the world is unchanged, 1 when it
 * has changed, -EBUSY when operations are in flight, -ESHUTDOWN when this rank was asked to leave.
 */
int boundary_commit(struct engine *e, struct err *err);

/* The last step of hvd_init(), or of a joiner's admission: agrees on the epoch with the ranks at
 * the boundary and with other joiners. Afterwards this rank counts as one that has the training
 * state. */
int boundary_join(struct engine *e, struct err *err);

#endif
