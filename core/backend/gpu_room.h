/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_room: how much of a GPU's memory NCCL's communicators take. NCCL does not say how much a
 * communicator needs, so it is measured: the free memory before a communicator is made, less the
 * free memory when it is ready. The difference includes what the program, or another process on the
 * GPU, has taken in between.
 *
 * A part of struct gpu. nccl_run.c writes it, the engine reads it (engine/set_room.c,
 * engine/set_tell.c). libcuda is asked when a communicator is about to be made, is ready, or was
 * freed, and when something has failed for lack of memory. An operation that succeeds never asks.
 * Under the progress lock. Each function that takes a struct gpu that is not const is called in a
 * visit, except gpu_room_ended().
 */
#ifndef HVD_BACKEND_GPU_ROOM_H
#define HVD_BACKEND_GPU_ROOM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

struct gpu;

struct gpu_room {
    int communicators;  /* ready ones, of the world and of all sets */
    int making;         /* communicators that were begun, and are neither ready nor given up */
    unsigned changes;   /* how often a communicator was begun, became ready or has ended */
    size_t most;        /* bytes: the most that a communicator has taken so far; 0: not known */
    size_t left, total; /* bytes of the GPU, as of the last look; total 0: not known */
};

/* The GPU memory that one communicator takes, while that is measured and afterwards. All zero
 * before gpu_room_begin(). */
struct gpu_room_part {
    enum { GPU_ROOM_NONE, GPU_ROOM_MAKING, GPU_ROOM_READY } state;
    /* when its making began: */
    size_t left;      /* 0: not known */
    bool little;      /* less was left than another communicator had taken */
    bool alone;       /* no other communicator was in the making */
    unsigned changes; /* of the room */
};

/* Asks libcuda for left and total. A failure is no error: they are not known then. */
void gpu_room_look(struct gpu *gpu);

/* The part's communicator is about to be made. */
void gpu_room_begin(struct gpu *gpu, struct gpu_room_part *part);

/* The part's communicator is ready. The memory that this communicator has taken is measured if no
 * other communicator was begun, became ready or has ended in the meantime. */
void gpu_room_made(struct gpu *gpu, struct gpu_room_part *part);

/* The part's communicator is given up, in whatever state. Its memory is freed later. */
void gpu_room_ended(struct gpu *gpu, struct gpu_room_part *part);

/* Whether less was free at the last look than the largest communicator so far has taken. */
bool gpu_room_is_little(const struct gpu_room *room);

/* An operation of NCCL's has failed with err. If that was for lack of memory, as its text or the
 * state of the GPU before the making of the communicator says, adds the numbers. err NULL is
 * allowed. */
void gpu_room_explain(struct gpu *gpu, const struct gpu_room_part *part, struct err *err);

#endif
