/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: a GPU as the back ends use it, through the driver (cuda_api.h).
 *
 * The context is the device's primary one, which the frameworks use too; none is made here. Every
 * call that takes a struct cuda_device is made between cuda_enter() and cuda_leave(), which put the
 * context on top of this thread's and take it off again, and see to it that a graph which another
 * thread captures is not disturbed. One thread at a time: all runs under the engine's progress
 * lock.
 *
 * Nothing here waits for a device: what is under way is asked for. Once a device has failed for
 * good (an illegal address, an error of its memory) every call gives that error, in the same words.
 */
#ifndef HVD_BACKEND_CUDA_H
#define HVD_BACKEND_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "core/backend/cuda_api.h"

/* Which GPU it is, whatever number a process has for it. Plain bytes: may be sent to other ranks.
 */
struct cuda_identity {
    unsigned char has_uuid;
    unsigned char uuid[CUDA_UUID_SIZE]; /* of a part of a GPU (MIG) where that is what we have */
    char pci[16];                       /* "0000:07:00.0"; other hosts have the same ones */
};

struct cuda_kernels;

struct cuda_device {
    const struct cuda_api *api;
    struct CUctx_st *context;
    int ordinal; /* as this process counts them */
    int handle;
    int sm; /* 90: compute capability 9.0 */
    int multiprocessors;
    int priority; /* the highest for a stream */
    char name[96];
    struct cuda_identity identity;
    struct err lost;          /* code: nothing works on it any more */
    struct CUevent_st **free; /* events that nobody uses */
    size_t nfree, events;     /* events: all of them, for which free has room */
    struct cuda_kernels *kernels;
};

/* The device of that number. -ENODEV and others: why it cannot be used. */
int cuda_device_open(int ordinal, struct cuda_device **ret, struct err *err);

/* Destroys what is left of its events; whatever else was made on it must be gone. Does not wait for
 * the device. NULL is fine. */
void cuda_device_close(struct cuda_device *device);

/* ---- visits ---- */

struct cuda_visit {
    struct cuda_device *device; /* NULL: none is going on */
    unsigned mode;              /* of capture, as it was */
};

/* Fails where the device is lost. */
int cuda_enter(struct cuda_device *device, struct cuda_visit *ret, struct err *err);

/* A visit that has not begun, or is over, is fine. */
void cuda_leave(struct cuda_visit *visit);

/* What an answer of the driver means for this device: 0, or -errno and whose call it was. */
int cuda_check(struct cuda_device *device, unsigned code, const char *call, struct err *err);

/* ---- streams ---- */

/* One of ours: of the highest priority, and independent of the default stream. */
int cuda_stream_create(struct cuda_device *device, struct CUstream_st **ret, struct err *err);
void cuda_stream_destroy(struct cuda_device *device, struct CUstream_st *stream);

/* -EBUSY: this stream of the user's is being captured into a graph, of which an operation that
 * other ranks take part in cannot be a part. */
int cuda_stream_usable(struct cuda_device *device, struct CUstream_st *stream, struct err *err);

/* ---- events: a pool; the steady state makes none ---- */

int cuda_event_get(struct cuda_device *device, struct CUevent_st **ret, struct err *err);

/* NULL is fine. It may still be waited for by streams. */
void cuda_event_put(struct cuda_device *device, struct CUevent_st *event);

int cuda_event_record(struct cuda_device *device, struct CUevent_st *event,
                      struct CUstream_st *stream, struct err *err);

/* 0: what was before it on its stream is done; 1: not yet. */
int cuda_event_done(struct cuda_device *device, struct CUevent_st *event, struct err *err);

/* What comes on this stream waits for the event. */
int cuda_stream_wait(struct cuda_device *device, struct CUstream_st *stream,
                     struct CUevent_st *event, struct err *err);

/* ---- memory ---- */

/* Memory that grows and is kept. */
struct cuda_memory {
    void *at;
    size_t size;
    bool host; /* the host's, locked in place, so that copies run beside everything else */
};

/* At least so many bytes; the former content is lost. Nothing that is under way may use it: growing
 * may wait for the device. -ENOMEM says how much was asked for. */
int cuda_memory_reserve(struct cuda_device *device, struct cuda_memory *memory, size_t bytes,
                        struct err *err);
void cuda_memory_free(struct cuda_device *device, struct cuda_memory *memory);

enum cuda_copy { CUDA_COPY_IN, CUDA_COPY_OUT, CUDA_COPY_INSIDE };

/* In the order of the stream: from the host, to the host, or on the device. */
int cuda_copy(struct cuda_device *device, enum cuda_copy way, void *to, const void *from,
              size_t bytes, struct CUstream_st *stream, struct err *err);

/* The device that a pointer is on, -1: the host's memory, ours or not. No visit is needed. */
int cuda_pointer_device(const struct cuda_api *api, const void *at, int *ret, struct err *err);

#endif
