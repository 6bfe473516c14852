/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: a GPU as the back ends use it, through the driver (cuda_api.h).
 *
 * The context is the device's primary one, which the frameworks use, too; this file creates none.
 * Every call that takes a struct cuda_device is made between cuda_enter() and cuda_leave(), which
 * push the context onto this thread's stack and pop it again, and set the capture mode so that a
 * graph capture in another thread is not disturbed. One thread at a time: all runs under the
 * engine's progress lock.
 *
 * Nothing here blocks on a device, except that freeing memory may (cuda_memory_reserve() frees,
 * too): callers poll for completion. Once a device has failed for good (an illegal address, a
 * memory error) every call returns that error with the same text.
 */
#ifndef HVD_BACKEND_CUDA_H
#define HVD_BACKEND_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "core/backend/cuda_api.h"
#include "core/base/cleanup.h"

struct cuda_kernels;

struct cuda_device {
    const struct cuda_api *api;
    struct CUctx_st *context;
    int ordinal; /* the GPU's number, as this process counts GPUs */
    int handle;
    int sm; /* 90: compute capability 9.0 */
    int multiprocessors;
    int priority; /* the highest for a stream */
    char name[96];
    /* Identifies the GPU on this host: UUID of the GPU, or of the MIG instance that the process was
     * given; from old drivers "0000:07:00.0". Plain bytes: may be sent to other ranks. */
    unsigned char identity[CUDA_UUID_SIZE];
    struct err lost;          /* code != 0: the device failed for good */
    struct CUevent_st **free; /* events that are not in use */
    size_t nfree, events;     /* events: all that exist; free has room for as many */
    struct cuda_kernels *kernels;
};

/* Opens the device of that number. -ENODEV and others: err says why it cannot be used. */
int cuda_device_open(int ordinal, struct cuda_device **ret, struct err *err);

/* Destroys the remaining events. Everything else that was created on the device must be
 * destroyed already. Does not wait for the device. NULL is allowed. */
void cuda_device_close(struct cuda_device *device);

/* ---- visits ---- */

struct cuda_visit {
    struct cuda_device *device; /* NULL: no visit has begun */
    /* the thread's stream capture mode before cuda_enter(); cuda_leave() restores it */
    unsigned mode;
};

/* Begins a visit. Fails if the device has failed for good. */
int cuda_enter(struct cuda_device *device, struct cuda_visit *ret, struct err *err);

/* Does nothing if the visit has not begun or has ended. */
void cuda_leave(struct cuda_visit *visit);

/* A variable with which a visit ends at the end of its scope: auto_visit visit = {0}; */
#define auto_visit CLEANUP(cuda_leave) struct cuda_visit

/* Converts a result of the driver: 0, or -errno with the name of the call in err. Remembers a
 * permanent failure of the device. */
int cuda_check(struct cuda_device *device, unsigned code, const char *call, struct err *err);

/* ---- streams ---- */

/* Creates a stream of the highest priority that is independent of the default stream. */
int cuda_stream_create(struct cuda_device *device, struct CUstream_st **ret, struct err *err);
void cuda_stream_destroy(struct cuda_device *device, struct CUstream_st *stream);

/* -EBUSY: this stream of the user's is being captured into a CUDA graph. A graph cannot contain
 * an operation in which other ranks take part. */
int cuda_stream_usable(struct cuda_device *device, struct CUstream_st *stream, struct err *err);

/* ---- events: a pool; in the steady state no event is created ---- */

int cuda_event_get(struct cuda_device *device, struct CUevent_st **ret, struct err *err);

/* Returns an event to the pool, also while streams still wait for it. NULL is allowed. */
void cuda_event_put(struct cuda_device *device, struct CUevent_st *event);

int cuda_event_record(struct cuda_device *device, struct CUevent_st *event,
                      struct CUstream_st *stream, struct err *err);

/* 0: the work before the event on its stream is done; 1: not yet. */
int cuda_event_done(struct cuda_device *device, struct CUevent_st *event, struct err *err);

/* Later work on this stream waits for the event. */
int cuda_stream_wait(struct cuda_device *device, struct CUstream_st *stream,
                     struct CUevent_st *event, struct err *err);

/* Records the event on the stream `before`, and makes later work on the stream wait for it. */
int cuda_stream_follow(struct cuda_device *device, struct CUstream_st *stream,
                       struct CUstream_st *before, struct CUevent_st *event, struct err *err);

/* ---- memory ---- */

/* Memory that grows on demand and is reused. */
struct cuda_memory {
    void *at;
    size_t size;
    bool host; /* in host memory, page-locked, so that copies are asynchronous */
};

/* Makes the memory at least so many bytes large; the content is lost. No work in flight may use it:
 * growing may wait for the device. -ENOMEM: err has the size. */
int cuda_memory_reserve(struct cuda_device *device, struct cuda_memory *memory, size_t bytes,
                        struct err *err);
void cuda_memory_free(struct cuda_device *device, struct cuda_memory *memory);

/* Bytes of the device's memory: those that are free for all processes, and all. */
int cuda_memory_left(struct cuda_device *device, size_t *ret_left, size_t *ret_total,
                     struct err *err);

enum cuda_copy { CUDA_COPY_IN, CUDA_COPY_OUT, CUDA_COPY_INSIDE };

/* Copies in the order of the stream: from the host, to the host, or on the device. */
int cuda_copy(struct cuda_device *device, enum cuda_copy way, void *to, const void *from,
              size_t bytes, struct CUstream_st *stream, struct err *err);

/* Sets *ret to the number of the device that a pointer is on, or to -1 for host memory, page-locked
 * or not. Needs no visit. */
int cuda_pointer_device(const struct cuda_api *api, const void *at, int *ret, struct err *err);

#endif
