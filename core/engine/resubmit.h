/* SPDX-License-Identifier: Apache-2.0
 *
 * resubmit: what happens to unfinished operations in a new epoch. Called with the progress lock
 * held.
 */
#ifndef HVD_ENGINE_RESUBMIT_H
#define HVD_ENGINE_RESUBMIT_H

struct engine;

/* Finishes a batch whose operations are all done, dissolves all other batches, and submits every
 * unfinished operation again in the original order. At a boundary, unfinished user operations end
 * with -ESTALE instead (engine_end_world()). */
void resubmit_all(struct engine *e);

#endif
