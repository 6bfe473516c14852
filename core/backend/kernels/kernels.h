/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels: the parameters that the host passes to the kernels of hvd_kernels.cu. Included by
 * C, by CUDA and by the fake driver of the tests.
 *
 * A kernel gets one of these structures by value: the driver takes a copy at the launch, so the
 * host may use its own again at once, and a CUDA graph keeps what it was captured with.
 */
#ifndef HVD_BACKEND_KERNELS_H
#define HVD_BACKEND_KERNELS_H

#include <stdint.h>

#define KERNEL_THREADS 256 /* threads of a block */
#define KERNEL_PIECES  512 /* most pieces of one launch */
#define KERNEL_CHUNK                                                                               \
    16384 /* bytes of a chunk, on the side with larger elements; a block moves one at a time */

/* Flags of the steps that are done to each element, in this order. A step without its flag is left
 * out, so that integers keep all their bits. */
#define KERNEL_PRESCALE  1u
#define KERNEL_DIVIDE    2u
#define KERNEL_POSTSCALE 4u

struct kernel_change {
    double prescale, postscale;
    int64_t divisor;
    uint32_t flags;
    uint32_t unused;
};

/* Moves pieces of memory to other places. Chunk c belongs to the last piece whose first is <= c. No
 * piece is empty. Any alignment. to may equal from if the elements of both have the same size. */
struct kernel_move {
    struct kernel_change change;
    uint32_t pieces;
    uint32_t chunks;
    uint32_t chunk; /* elements of a chunk */
    uint32_t unused;
    const void *from[KERNEL_PIECES];
    void *to[KERNEL_PIECES];
    uint64_t count[KERNEL_PIECES]; /* elements */
    uint32_t first[KERNEL_PIECES]; /* the number of its first chunk */
};

#endif
