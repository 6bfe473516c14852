/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: from the slots of a batch to a collective operation: counts, fused tensors, memory for
 * results. (lock)
 */
#ifndef HVD_ENGINE_LAUNCH_H
#define HVD_ENGINE_LAUNCH_H

#include <stdint.h>

struct batch;
struct engine;
struct signature;
struct slot;

/* Fills e->batches.op (and op_n) with the next operation of the batch. A failure is put into
 * e->trouble. */
int launch_prepare(struct engine *e, struct batch *batch);

/* After the operation: brings the result where it belongs, if that was not possible before. */
void launch_finish(struct engine *e);

/* Who is the root in the mesh, -1: it is lost; 0 for what has no root. */
int launch_root(const struct engine *e, const struct signature *sig);

/* An alltoall's splits for the ranks of the mesh, until the next call; NULL: it is none. */
const int64_t *launch_wire_splits(struct engine *e, const struct slot *slot);

/* The part of the operation that the signature tells; one tensor, no counts. */
void launch_fill_op(struct engine *e, const struct signature *sig);

#endif
