/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels: the file of kernels (kernels/hvd_kernels.cu, built into hvd_kernels.fatbin), loaded
 * when a device first needs one, and their launches. Between cuda_enter() and cuda_leave().
 */
#ifndef HVD_BACKEND_CUDA_KERNELS_H
#define HVD_BACKEND_CUDA_KERNELS_H

#include "core/backend/cuda.h"
#include "core/backend/gpu_kernels.h"

/* The CUDA version of the nvcc that makes the file (kernels/nvcc.sh): the driver must support
 * it. */
#define CUDA_KERNELS_VERSION 13000

/* Stores the path of the file: HVD_KERNELS, else hvd_kernels.fatbin in the folder lib beside the
 * folder of libhvd.so (or of the program that contains this code), else in that folder itself.
 * -ENOENT: it is not there. */
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
