/* SPDX-License-Identifier: Apache-2.0
 *
 * neutral: what a rank that has joined (join.h) contributes to an operation of the others: the
 * neutral element of its reduction, and no rows. In host memory, or on this rank's GPU. Not
 * thread-safe: belongs to the thread that is in hvd_join().
 */
#ifndef HVD_ENGINE_NEUTRAL_H
#define HVD_ENGINE_NEUTRAL_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "core/negotiate/negotiate.h"

/* The GPU of neutral elements, opened when the first is needed. Zero-initialized. */
struct neutral_gpu {
    struct cuda_device *device;
    struct CUstream_st *stream;
    struct CUevent_st *event;
};

/* Buffers of one operation. Zero-initialized. */
struct neutral {
    void *in, *out;               /* out NULL: the result is in `in`, or allocated by the queue */
    size_t bytes;                 /* of in */
    struct cuda_memory on_gpu[2]; /* in and out, if they are there */
};

/* Writes n elements to `to` that are neutral after they were multiplied by prescale (for a product,
 * up to rounding). A product of integers whose prescale is not 1 has no such element: they are 1.
 */
void neutral_fill(void *to, enum hvd_dtype dtype, enum hvd_op op, double prescale, size_t n);

/* Allocates and fills the buffers for an operation of this signature, which the request uses.
 * out_rows: of a reducescatter. ordinal: this rank's GPU. zeros: the elements are 0, whatever the
 * operation. -EINVAL: too large; -ENOMEM, and errors of the GPU. */
int neutral_make(struct neutral *neutral, struct neutral_gpu *gpu, int ordinal,
                 const struct signature *sig, int64_t out_rows, bool zeros, struct hvd_request *ret,
                 struct err *err);

/* No operation may use the buffers any more. */
void neutral_free(struct neutral *neutral, struct neutral_gpu *gpu);

void neutral_gpu_close(struct neutral_gpu *gpu);

#endif
