/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_events: events that say when the engine may touch a GPU tensor. hvd_submit() records one on
 * the user's stream. Also keeps device memory for results whose size the engine learns late. Called
 * with the queue's lock held.
 *
 * A rank uses one GPU: that of its first GPU tensor.
 */
#ifndef HVD_ENGINE_GPU_EVENTS_H
#define HVD_ENGINE_GPU_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/cuda.h"

#define GPU_EVENTS_SPARE 8 /* result buffers that gpu_events_trim() keeps */

struct gpu_events {
    struct cuda_device *device; /* NULL: no GPU tensor yet */
    /* Unused result buffers. They are not freed at once: cuMemFree waits for the device, and an
     * operation there may wait for another rank. */
    struct cuda_memory *spare;
    size_t nspare, cap;
    bool abandoned; /* see gpu_events_abandon() */
};

/* Records the event after which the engine may use the request's tensors. -EINVAL: the tensors are
 * not on the GPU of the request, or this rank uses another GPU. -EBUSY: the stream is being
 * captured. */
int gpu_events_put(struct gpu_events *events, const struct hvd_request *request, size_t in_bytes,
                   size_t out_bytes, struct CUevent_st **ret, struct err *err);

/* Returns an event to the pool. NULL is allowed. */
void gpu_events_drop(struct gpu_events *events, struct CUevent_st *event);

/* Device memory of at least so many bytes for a result. -ENOMEM. */
int gpu_events_take(struct gpu_events *events, size_t bytes, struct cuda_memory *ret,
                    struct err *err);
void gpu_events_give(struct gpu_events *events, struct cuda_memory memory);

/* Frees all but GPU_EVENTS_SPARE unused buffers. Only while no operation of ours is in flight on
 * the device. */
void gpu_events_trim(struct gpu_events *events);

void gpu_events_fini(struct gpu_events *events);

/* After this call device memory is not freed any more, because the GPU may hang. */
void gpu_events_abandon(struct gpu_events *events);

#endif
