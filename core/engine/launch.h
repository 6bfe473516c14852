/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: from the slots of a batch to a collective operation: counts, fused tensors, memory for
 * results. (lock)
 */
#ifndef HVD_ENGINE_LAUNCH_H
#define HVD_ENGINE_LAUNCH_H

struct batch;
struct engine;
struct signature;

/* Fills e->batches.op (and op_n) with the next operation of the batch. A failure is put into
 * e->trouble. */
int launch_prepare(struct engine *e, struct batch *batch);

/* The part of the operation that the signature tells; one tensor, no counts. */
void launch_fill_op(struct engine *e, const struct signature *sig);

#endif
