/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_kernels: the kernels of kernels/hvd_kernels.cu by name, and what the host works out for their
 * launches: which kernel does it, and the table of pieces. Pure: no device is touched. Any thread.
 */
#ifndef HVD_BACKEND_GPU_KERNELS_H
#define HVD_BACKEND_GPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/kernels/kernels.h"
#include "core/base/err.h"
#include "core/coll/reduce.h"

#define GPU_KERNELS 31 /* 20 that move, 11 that combine */

/* In the order of the file; a kernel's number is its place here. */
extern const char *const gpu_kernel_names[GPU_KERNELS];

/* count elements from one place to another. */
struct gpu_piece {
    const void *from;
    void *to;
    size_t count;
};

/* What becomes of them on the way: times prescale, divided by divisor, times postscale; 1 leaves
 * each of them out. bool is never scaled, and comes out as 0 or 1. Where integers become wider or
 * are cut, this is done to the narrow ones. */
struct gpu_change {
    enum hvd_dtype from, to;
    double prescale;
    int divisor;
    double postscale;
};

/* Which kernel does that, and how. */
struct gpu_move {
    int kernel; /* its number */
    struct kernel_change change;
    size_t from_bytes, to_bytes; /* of an element */
    size_t unit;                 /* elements of the kernel in one of a piece: bytes, or 1 */
};

/* -ENOTSUP: no kernel converts so. */
int gpu_move_plan(const struct gpu_change *change, struct gpu_move *ret, struct err *err);

/* The parameters of one launch with as many pieces as go in; how many of n that were, empty ones
 * included. ret->pieces is 0 when all of these were empty. */
size_t gpu_move_fill(const struct gpu_move *move, const struct gpu_piece *pieces, size_t n,
                     struct kernel_move *ret);

/* The number of the kernel. */
int gpu_combine_kernel(enum hvd_dtype dtype);

/* The parameters of combining nsrc sources as core/coll/reduce.h says. -EINVAL: too many of them.
 * -ENOTSUP: an operation that there is no kernel for. */
int gpu_combine_fill(const struct reduce_plan *plan, void *dst, const void *const *src, int nsrc,
                     size_t n, struct kernel_combine *ret, struct err *err);

/* Blocks to launch: enough to fill the device, not more than there is work for. */
unsigned gpu_blocks(uint64_t work, int multiprocessors);

/* Where tensors lie in a buffer that holds all of them: each at a multiple of 16 bytes.
 * ret_at[n], in bytes; may be counts. The size of the whole. elem: bytes of an element there. */
size_t gpu_layout(const size_t *counts, size_t n, size_t elem, size_t *ret_at);

#endif
