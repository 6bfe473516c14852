/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_gpu: what launch.c does to tensors of a GPU in a world that has lost ranks: memory there,
 * and copies. (lock) A failure is put into e->trouble.
 */
#ifndef HVD_ENGINE_LAUNCH_GPU_H
#define HVD_ENGINE_LAUNCH_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "core/backend/cuda.h"

struct engine;
struct slot;

struct launch_gpu {
    struct gpu *gpu; /* NULL: nothing was done there yet */
    struct cuda_memory scratch;
    struct CUevent_st *packed;
};

/* At least so many bytes, for the next operation. NULL: there are none. */
uint8_t *launch_gpu_scratch(struct engine *e, const struct slot *slot, size_t bytes);

/* Copies behind the slot's event; all of them together are what packed() makes its operation wait
 * for. */
int launch_gpu_pack(struct engine *e, const struct slot *slot, void *to, const void *from,
                    size_t bytes);
int launch_gpu_packed(struct engine *e, const struct slot *slot);

/* Waits, bounded. */
int launch_gpu_copy(struct engine *e, int device, void *to, const void *from, size_t bytes);

void launch_gpu_fini(struct launch_gpu *g);

/* Gives nothing of it back. */
void launch_gpu_leave(struct launch_gpu *g);

#endif
