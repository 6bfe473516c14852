/* SPDX-License-Identifier: Apache-2.0
 *
 * kept: copies, on the device, of the inputs that an operation will overwrite, so that the
 * survivors can restart the operation after a rank was lost (core/coll/guard.h does the same in the
 * host's memory). In a visit of the GPU; all copies are made in the order of the GPU's stream.
 */
#ifndef HVD_BACKEND_KEPT_H
#define HVD_BACKEND_KEPT_H

#include "core/backend/gpu.h"

struct kept {
    struct cuda_memory memory;
    struct CUevent_st *event; /* after this event the copies are complete */
    struct coll_op op;        /* the operation that reads them */
    struct coll_tensor *tensors;
    void **ready;
    size_t *at; /* offset in memory of each copy */
    struct gpu_piece *pieces;
    size_t cap, n;
    bool owed; /* inputs must be copied back before any other operation */
};

/* Sets *ret to op, or, if op would overwrite its inputs, to a duplicate that reads retained copies
 * and is valid until the next call. -ENOMEM. */
int kept_begin(struct kept *kept, struct gpu *gpu, const struct coll_op *op,
               const struct coll_op **ret, struct err *err);

/* Copies the retained inputs back, if kept->owed is set. */
int kept_restore(struct kept *kept, struct gpu *gpu, struct err *err);

/* gpu NULL: the device's memory is not freed, because no GPU was used or NCCL may still use it. */
void kept_fini(struct kept *kept, struct gpu *gpu);

#endif
