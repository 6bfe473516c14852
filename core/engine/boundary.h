/* SPDX-License-Identifier: Apache-2.0
 *
 * boundary: hvd_commit(): where losses and planned changes become visible, on every rank at the
 * same place of its program (REPAIR.md).
 */
#ifndef HVD_ENGINE_BOUNDARY_H
#define HVD_ENGINE_BOUNDARY_H

#include "core/base/err.h"

struct engine;

/* Any thread, without the lock. 0: the world is as it was; 1: it is another one; -EBUSY: operations
 * are under way; -ESHUTDOWN: this rank was asked to leave. */
int boundary_commit(struct engine *e, struct err *err);

/* The end of hvd_init(): agrees with those at the boundary, and with other new ranks, which world
 * it is. Then this rank counts as one that has the state. */
int boundary_join(struct engine *e, struct err *err);

#endif
