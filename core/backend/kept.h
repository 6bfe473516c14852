/* SPDX-License-Identifier: Apache-2.0
 *
 * kept: an operation that is in flight on the GPU, as it was asked for, and copies of the inputs
 * that it overwrites. With them the survivors can run it again after a rank was lost
 * (core/coll/guard.h does the same in the host's memory). In a visit of the GPU; all copies are
 * made in the order of gpu->stream.
 */
#ifndef HVD_BACKEND_KEPT_H
#define HVD_BACKEND_KEPT_H

#include "core/backend/gpu.h"

struct kept {
    /* The operation. Its lists of tensors and events are copies; recv_counts and send_counts are
     * those of the caller. It reads a retained copy where it would overwrite an input. */
    struct coll_op op;
    struct coll_tensor *tensors; /* [cap] */
    void **ready;                /* [cap], behind tensors */
    size_t cap;
    size_t bytes; /* retained; 0: the operation overwrites no input, or nothing is retained */
    struct cuda_memory memory;
    struct CUevent_st *event; /* after this event the copies are complete */
};

/* Copies op; retain: also the inputs that it would overwrite, once they are ready. Call kept_drop()
 * before it is called again. -ENOMEM: nothing was enqueued. */
int kept_take(struct kept *kept, struct gpu *gpu, const struct coll_op *op, bool retain,
              struct err *err);

/* Whether an input, or a copy of it, is not complete yet: the program's own work on the GPU has not
 * ended. False after kept_drop(). */
bool kept_waits(const struct kept *kept, struct gpu *gpu);

/* Enqueues that the retained inputs are copied back to where they were. */
int kept_restore(struct kept *kept, struct gpu *gpu, struct err *err);

/* Gives the memory of the copies back. No work on the device uses it any more. */
void kept_drop(struct kept *kept, struct gpu *gpu);

/* gpu NULL: what is on the device is left as it is, because no GPU was used or NCCL may still use
 * it. */
void kept_fini(struct kept *kept, struct gpu *gpu);

#endif
