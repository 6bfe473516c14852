/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: the GPU of this rank as whoever drives works on it: one stream, in whose order operations
 * run, and memory. One a rank, from its first tensor on a device to the end of the engine; it
 * outlives epochs. Under the progress lock, and between gpu_enter() and gpu_leave() where it says
 * so by taking no visit of its own.
 */
#ifndef HVD_BACKEND_GPU_H
#define HVD_BACKEND_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/cuda.h"
#include "core/backend/gpu_kernels.h"
#include "core/coll/coll.h"

struct gpu {
    struct cuda_device *device;
    struct CUstream_st *stream;
    struct CUevent_st *event; /* for a moment: recorded and asked or waited for in one call */
    bool kernels;             /* ours are loaded for it */
    struct err no_kernels;    /* else why not */
    struct cuda_memory *old;  /* [nold], see gpu_reserve() */
    size_t nold;
};

int gpu_open(int ordinal, struct gpu **ret, struct err *err);

/* Everything on its stream has ended, or never will. NULL is fine. */
void gpu_close(struct gpu *gpu);

/* Copies between places of the device and waits, bounded, until it is done. Makes a visit. */
int gpu_copy_now(struct gpu *gpu, void *to, const void *from, size_t bytes, struct err *err);

/* In a visit. At least so many bytes; what was there is lost. What memory has grown out of is freed
 * with the GPU, or where memory is short and our stream is idle: freeing waits for all streams, and
 * the user's may wait for other ranks. It doubles where it can, so that all former ones of it
 * together are no larger than the present one. -ENOMEM: memory is as it was, or none. */
int gpu_reserve(struct gpu *gpu, struct cuda_memory *memory, size_t bytes, struct err *err);

/* In a visit. Pieces of bytes to other places of the device, in the stream's order: one launch for
 * many of them, or without kernels a copy for each. */
int gpu_move_bytes(struct gpu *gpu, const struct gpu_piece *pieces, size_t n,
                   struct CUstream_st *stream, struct err *err);

/* In a visit. What comes on the stream waits for the operation's inputs. */
int gpu_await(struct gpu *gpu, const struct coll_op *op, struct err *err);

#endif
