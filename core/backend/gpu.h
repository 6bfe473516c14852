/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: the GPU of this rank: streams and memory. A rank has one, from its first tensor on a device
 * to the end of the engine, across epochs; the world and all sets share it (struct gpu_home), so
 * that the end of a set does not close it: that would wait for the whole device, where operations
 * of other sets may wait for other ranks. Under the progress lock. Functions marked "in a visit"
 * are called between cuda_enter() and cuda_leave().
 */
#ifndef HVD_BACKEND_GPU_H
#define HVD_BACKEND_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/cuda.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/gpu_room.h"
#include "core/coll/coll.h"

struct gpu {
    struct cuda_device *device;
    struct CUstream_st *stream;     /* copies and kernels that read inputs */
    struct CUstream_st *call, *out; /* NCCL; kernels that write results (nccl_flight.h) */
    struct CUevent_st *event; /* reused: recorded and then polled or waited for within one call */
    bool kernels;             /* hvd's kernels are loaded */
    struct err no_kernels;    /* if not: why */
    struct cuda_memory *old;  /* [nold], see gpu_reserve() */
    size_t nold;
    struct cuda_memory *spare; /* [nspare] for gpu_take(); has room for [blocks] */
    size_t nspare, blocks;
    void *scratch; /* [nscratch], see gpu_scratch() */
    size_t nscratch;
    size_t flights; /* operations by NCCL in flight, of all users */
    bool hangs;     /* work of one of them did not end in time */
    struct gpu_room room;
};

int gpu_open(int ordinal, struct gpu **ret, struct err *err);

/* Call when all work on its stream has ended, or never will. NULL is allowed. */
void gpu_close(struct gpu *gpu);

/* Where those that share a GPU find it. Starts as zero. */
struct gpu_home {
    struct gpu *gpu; /* NULL: not opened yet */
    size_t users;
};

/* Opens the GPU of that number if none is open, and counts one more user. -EINVAL: another one is
 * open. */
int gpu_home_enter(struct gpu_home *home, int ordinal, struct gpu **ret, struct err *err);

/* The last user closes the GPU, unless it hangs. A user whose work never ends must not leave. */
void gpu_home_leave(struct gpu_home *home);

/* The communicators of NCCL that are open on the GPU, and its memory, for the agent; all 0 if none
 * is. */
struct gpu_use {
    int communicators;
    size_t left, total; /* bytes, see struct gpu_room */
};
struct gpu_use gpu_home_use(const struct gpu_home *home);

/* Copies between places of the device and waits, bounded, until it is done. Makes a visit. */
int gpu_copy_now(struct gpu *gpu, void *to, const void *from, size_t bytes, struct err *err);

/* In a visit. Makes memory at least so many bytes large; its content is lost. Outgrown memory is
 * freed with the GPU, or earlier if memory is short and our streams are idle: freeing waits for
 * all streams, and the user's streams may wait for other ranks. Memory doubles where possible,
 * so that all outgrown parts together are no larger than the present one. -ENOMEM: memory is
 * unchanged, or empty. */
int gpu_reserve(struct gpu *gpu, struct cuda_memory *memory, size_t bytes, struct err *err);

/* In a visit. Ends the use of memory of gpu_reserve(). It is freed at once if our streams are idle
 * or there is no memory for a list, else later, as outgrown memory. */
void gpu_retire(struct gpu *gpu, struct cuda_memory *memory);

/* In a visit. Memory of at least so many bytes for an operation in flight, from what earlier ones
 * have given back if possible. 0 bytes: none. -ENOMEM. */
int gpu_take(struct gpu *gpu, size_t bytes, struct cuda_memory *ret, struct err *err);

/* Gives memory back that no work on the device uses any more. */
void gpu_give(struct gpu *gpu, struct cuda_memory *memory);

/* Memory of the host for lists of an operation's tensors, until the next call. NULL: no memory,
 * which cannot happen if a call for as many bytes has succeeded before. */
void *gpu_scratch(struct gpu *gpu, size_t bytes, struct err *err);

/* In a visit. Moves bytes between places on the device in the order of the stream: many of them
 * in one launch, or without kernels each with a copy. */
int gpu_move_bytes(struct gpu *gpu, const struct gpu_piece *pieces, size_t n,
                   struct CUstream_st *stream, struct err *err);

/* In a visit. Later work on the stream waits for the operation's inputs. */
int gpu_await(struct gpu *gpu, struct CUstream_st *stream, const struct coll_op *op,
              struct err *err);

/* In a visit. Later work on the other streams waits for what is on gpu->stream. */
int gpu_join(struct gpu *gpu, struct err *err);

#endif
