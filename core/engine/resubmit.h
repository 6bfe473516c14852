/* SPDX-License-Identifier: Apache-2.0
 *
 * resubmit: what happens to unfinished operations in a new epoch. Called with the progress lock
 * held.
 */
#ifndef HVD_ENGINE_RESUBMIT_H
#define HVD_ENGINE_RESUBMIT_H

struct circle;
struct engine;

/* Finishes a batch whose operations are all done, dissolves all other batches, and submits every
 * unfinished operation of the circle again in the original order. */
void resubmit_circle(struct circle *c);

/* The same for the world. At a boundary, unfinished user operations end with -ESTALE instead
 * (engine_end_world()). */
void resubmit_world(struct engine *e);

#endif
