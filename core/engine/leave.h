/* SPDX-License-Identifier: Apache-2.0
 *
 * leave: how a rank leaves a job in order.
 */
#ifndef HVD_ENGINE_LEAVE_H
#define HVD_ENGINE_LEAVE_H

struct engine;

/* Tells all ranks that this rank leaves in order, and forwards their farewells. Operations that
 * this rank has finished stay valid even if the other ranks lose a rank before they have finished
 * them: the next roster has the number of finished operations (REPAIR.md).
 * Where it serves the order of launches (launch_order.h) it returns when all have left. (lock) */
void leave_world(struct engine *e);

#endif
