/* SPDX-License-Identifier: Apache-2.0
 *
 * marks: from when on the engine may touch a tensor of a GPU: behind an event on the user's stream,
 * recorded when the operation is submitted. Also memory for results there, of which the engine
 * learns the size last. Under the queue's lock.
 *
 * A rank has one GPU: that of its first such tensor.
 */
#ifndef HVD_ENGINE_MARKS_H
#define HVD_ENGINE_MARKS_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

#include "core/backend/cuda.h"

#define MARKS_SPARE 8 /* that are kept in the end */

struct marks {
    struct cuda_device *device; /* NULL: no tensor of a GPU yet */
    /* Given back: freeing would wait for the device, where an operation may wait for a rank. */
    struct cuda_memory *spare;
    size_t nspare, cap;
    bool left; /* see marks_leave() */
};

/* The event behind which the request's tensors are the engine's. -EINVAL: they are not on that GPU,
 * or this rank uses another one; -EBUSY: the stream is being captured. */
int marks_put(struct marks *marks, const struct hvd_request *request, size_t in_bytes,
              size_t out_bytes, struct CUevent_st **ret, struct err *err);

/* NULL is fine. */
void marks_drop(struct marks *marks, struct CUevent_st *event);

/* For a result, of at least so many bytes. -ENOMEM. */
int marks_take(struct marks *marks, size_t bytes, struct cuda_memory *ret, struct err *err);
void marks_give(struct marks *marks, struct cuda_memory memory);

/* Nothing of ours is under way on the device: frees what is not worth keeping. */
void marks_trim(struct marks *marks);

void marks_fini(struct marks *marks);

/* From here on memory on the GPU is forgotten where it would be given back. */
void marks_leave(struct marks *marks);

#endif
