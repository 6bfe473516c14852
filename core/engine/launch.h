/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: turns slots of a batch into a collective operation: counts, fused tensors, memory for
 * results. Called with the progress lock held.
 */
#ifndef HVD_ENGINE_LAUNCH_H
#define HVD_ENGINE_LAUNCH_H

#include <stdint.h>

struct batch;
struct engine;
struct signature;
struct slot;

/* Fills e->batches.op and op_n with the batch's next operation. A failure is set in e->trouble. */
int launch_prepare(struct engine *e, struct batch *batch);

/* Called after the operation: makes the copy in batches.pending_copy, if there is one. */
void launch_finish(struct engine *e);

/* The root's rank in the mesh; -1 when the root is lost; 0 for operations without a root. */
int launch_root(const struct engine *e, const struct signature *sig);

/* An alltoall's splits by mesh rank, valid until the next call. NULL for other operations. */
const int64_t *launch_wire_splits(struct engine *e, const struct slot *slot);

/* Fills e->batches.op with what the signature determines, for one tensor and without counts. */
void launch_fill_op(struct engine *e, const struct signature *sig);

#endif
