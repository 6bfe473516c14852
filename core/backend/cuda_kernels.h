/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels: the kernels of kernels/hvd_kernels.cu: the preparation of launches on the host (the
 * choice of the kernel and its table of pieces); their file, hvd_kernels.fatbin, loaded when a
 * device first needs one; and launches.
 */
#ifndef HVD_BACKEND_CUDA_KERNELS_H
#define HVD_BACKEND_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "core/backend/kernels/kernels.h"

/* ---- preparation: pure; any thread ---- */

#define GPU_KERNELS 20

/* The kernels' names. A kernel's number is its index here. */
extern const char *const gpu_kernel_names[GPU_KERNELS];

/* A piece to move: count elements, from one place to another. */
struct gpu_piece {
    const void *from;
    void *to;
    size_t count;
};

/* The conversion on the way: times prescale, divided by divisor, times postscale; a factor of 1
 * is skipped. bool is never scaled, and becomes 0 or 1. When integers change their width, the
 * factors are applied in the narrower type. */
struct gpu_change {
    enum hvd_dtype from, to;
    double prescale;
    int divisor;
    double postscale;
};

/* The kernel for a conversion, and its units. */
struct gpu_move {
    int kernel; /* its number */
    struct kernel_change change;
    size_t from_bytes, to_bytes; /* bytes of an element before and after the conversion */
    size_t unit; /* what the kernel counts, per element of a piece: its bytes, or 1 */
};

/* -ENOTSUP: no kernel makes this conversion. */
int gpu_move_plan(const struct gpu_change *change, struct gpu_move *ret, struct err *err);

/* Fills the parameters of one launch with as many pieces as fit. Returns how many of the n
 * pieces it took, empty ones included. ret->pieces is 0 when all of these were empty. */
size_t gpu_move_fill(const struct gpu_move *move, const struct gpu_piece *pieces, size_t n,
                     struct kernel_move *ret);

/* The number of blocks to launch: enough to fill the device, but not more than there is work
 * for. */
unsigned gpu_blocks(uint64_t work, int multiprocessors);

/* Tensors in one buffer begin at multiples of 16 bytes: the size of one there. */
static inline size_t gpu_aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* ---- the content of the file: a head, and parts, each of which is machine code for one
 * architecture or PTX. Pure; any thread. The file is untrusted ---- */

struct cuda_fatbin_part {
    bool ptx;     /* else machine code */
    unsigned sm;  /* 90: compute capability 9.0 */
    size_t at, n; /* where it lies in the bytes */
};

/* Iterates over the parts; *at is 0 before the first call. 1: *ret is the next part; 0: there
 * are no more; -EINVAL: not such a file, or a part is cut off. */
int cuda_fatbin_next(const void *bytes, size_t n, size_t *at, struct cuda_fatbin_part *ret,
                     struct err *err);

/* "sm_75 sm_80 sm_90, PTX of sm_75", cut where dst is full. -EINVAL. */
int cuda_fatbin_text(const void *bytes, size_t n, char *dst, size_t size, struct err *err);

/* ---- on a device: between cuda_enter() and cuda_leave() ---- */

/* The CUDA version of the nvcc that makes the file (kernels/nvcc.sh): the driver must support
 * it. */
#define CUDA_KERNELS_VERSION 13000

/* Stores the path of the file: HVD_KERNELS, else hvd_kernels.fatbin of this installation
 * (library_beside()). -ENOENT: it is not there. */
int cuda_kernels_path(char *ret, size_t size, struct err *err);

/* Loads the kernels, once per device. A failure is not kept: the next call tries again. -ENOENT:
 * there is no file of kernels; -ENOTSUP: the driver is too old for it, or it has no code for this
 * GPU. */
int cuda_kernels_load(struct cuda_device *device, struct err *err);

/* For cuda_device_close(). */
void cuda_kernels_unload(struct cuda_device *device);

/* Moves pieces of memory and converts them on the way, in the order of the stream; KERNEL_PIECES
 * per launch. The caller may reuse pieces at once. */
int cuda_move(struct cuda_device *device, const struct gpu_change *change,
              const struct gpu_piece *pieces, size_t n, struct CUstream_st *stream,
              struct err *err);

#endif
