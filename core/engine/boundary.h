/* SPDX-License-Identifier: Apache-2.0
 *
 * boundary: hvd_commit(), the step boundary. Losses and planned changes become visible there, on
 * every rank at the same place of its program (REPAIR.md).
 */
#ifndef HVD_ENGINE_BOUNDARY_H
#define HVD_ENGINE_BOUNDARY_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct engine;

/* Called by any thread without the progress lock. Returns 0 when the world is unchanged, 1 when it
 * has changed, -EBUSY when operations are in flight, -ESHUTDOWN when this rank was asked to leave.
 * While a rank is in hvd_join() the world stays as it is.
 */
int boundary_commit(struct engine *e, struct err *err);

/* The other ranks are in boundary_commit(), and this one is in hvd_join() and contributes its n
 * words to the operation of this name: it says so. */
#define BOUNDARY_NAME "hvd.commit"
void boundary_say_joined(int64_t *words, size_t n);

/* The last step of hvd_init(), or of a joiner's admission: agrees on the epoch with the ranks at
 * the boundary and with other joiners. Afterwards this rank counts as one that has the training
 * state. */
int boundary_join(struct engine *e, struct err *err);

#endif
