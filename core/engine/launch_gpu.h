/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_gpu: what launch.c does to GPU tensors while the mesh has fewer ranks than the world:
 * device memory, and copies. Called with the progress lock held. A failure is set in e->trouble.
 */
#ifndef HVD_ENGINE_LAUNCH_GPU_H
#define HVD_ENGINE_LAUNCH_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "core/backend/cuda.h"

struct circle;
struct slot;

struct launch_gpu {
    struct gpu *gpu; /* NULL: not used yet */
    struct cuda_memory scratch;
    struct CUevent_st *packed;
};

/* Returns scratch memory of at least `bytes` bytes for the next operation. NULL: it failed. */
uint8_t *launch_gpu_scratch(struct circle *c, struct launch_gpu *g, const struct slot *slot,
                            size_t bytes);

/* launch_gpu_pack() enqueues one copy after the slot's event. launch_gpu_packed() records g->packed
 * after all of them, for which the operation has to wait. */
int launch_gpu_pack(struct circle *c, struct launch_gpu *g, const struct slot *slot, void *to,
                    const void *from, size_t bytes);
int launch_gpu_packed(struct circle *c, struct launch_gpu *g, const struct slot *slot);

/* Copies and waits for the end, with a time limit. */
int launch_gpu_copy(struct circle *c, struct launch_gpu *g, int device, void *to, const void *from,
                    size_t bytes);

void launch_gpu_fini(struct launch_gpu *g);

/* Drops the memory without freeing it, because the GPU may hang. */
void launch_gpu_abandon(struct launch_gpu *g);

#endif
