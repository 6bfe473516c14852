/* SPDX-License-Identifier: Apache-2.0
 *
 * marks: events that say when the engine may touch a GPU tensor. hvd_submit() records one on the
 * user's stream. Also keeps device memory for results whose size the engine learns late. Called
 * with the queue's lock held.
 *
 * A rank uses one GPU: that of its first GPU tensor.
 */
#ifndef HVD_ENGINE_MARKS_H
#define HVD_ENGINE_MARKS_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/cuda.h"

#define MARKS_SPARE 8 /* result buffers that marks_trim() keeps */

struct marks {
    struct cuda_device *device; /* NULL: no GPU tensor yet */
    /* Unused result buffers. They are not freed at once: cuMemFree waits for the device, and an
     * operation there may wait for another rank. */
    struct cuda_memory *spare;
    size_t nspare, cap;
    bool left; /* see marks_leave() */
};

/* Records the event after which the engine may use the request's tensors. -EINVAL: the tensors are
 * not on that GPU, or this rank uses another one. -EBUSY: the stream is being captured. */
int marks_put(struct marks *marks, const struct hvd_request *request, size_t in_bytes,
              size_t out_bytes, struct CUevent_st **ret, struct err *err);

/* Returns an event to the pool. NULL is allowed. */
void marks_drop(struct marks *marks, struct CUevent_st *event);

/* Device memory of at least so many bytes for a result. -ENOMEM. */
int marks_take(struct marks *marks, size_t bytes, struct cuda_memory *ret, struct err *err);
void marks_give(struct marks *marks, struct cuda_memory memory);

/* Frees all but MARKS_SPARE unused buffers. Only while no operation of ours is in flight on the
 * device. */
void marks_trim(struct marks *marks);

void marks_fini(struct marks *marks);

/* From here on device memory is forgotten instead of freed: the GPU may hang. */
void marks_leave(struct marks *marks);

#endif
