/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: see cuda.h.
 */
#include "core/backend/cuda.h"

#include <stdint.h>
#include <stdlib.h>

#include "core/backend/cuda_kernels.h"
#include "core/backend/doctor.h"

/* ---- life ---- */

int cuda_check(struct cuda_device *d, unsigned code, const char *call, struct err *err)
{
    struct err why = {0};
    int rc = cuda_api_check(d->api, code, call, &why);
    if (rc == 0)
        return 0;
    err_prefix(&why, "GPU %d (%s)", d->ordinal, d->name[0] ? d->name : "without a name");
    if (cuda_api_sticks(code) && !d->lost.code)
        err_set(&d->lost, -rc, "%s; nothing of this process works on it any more: start it anew",
                why.msg);
    return err_set(err, -rc, "%s", d->lost.code ? d->lost.msg : why.msg);
}

static int ask_number(struct cuda_device *d, unsigned attribute, int *ret, struct err *err)
{
    return cuda_check(d, d->api->device_attribute(ret, attribute, d->handle),
                      "cuDeviceGetAttribute", err);
}

/* Stays zero if the driver reports neither: the identity is only used for checks. */
static void ask_identity(struct cuda_device *d)
{
    const struct cuda_api *api = d->api;
    struct CUuuid_st *uuid = (void *)d->identity;
    unsigned code = api->device_uuid       ? api->device_uuid(uuid, d->handle)
                    : api->device_uuid_old ? api->device_uuid_old(uuid, d->handle)
                                           : CUDA_NOT_SUPPORTED;
    if (code != CUDA_OK &&
        api->device_pci((char *)d->identity, CUDA_UUID_SIZE, d->handle) != CUDA_OK)
        d->identity[0] = 0;
}

static int ask_facts(struct cuda_device *d, struct err *err)
{
    int major, minor, rc;
    rc = cuda_check(d, d->api->device_name(d->name, sizeof(d->name), d->handle), "cuDeviceGetName",
                    err);
    if (rc < 0 || (rc = ask_number(d, CUDA_ATTR_MAJOR, &major, err)) < 0 ||
        (rc = ask_number(d, CUDA_ATTR_MINOR, &minor, err)) < 0 ||
        (rc = ask_number(d, CUDA_ATTR_MULTIPROCESSORS, &d->multiprocessors, err)) < 0)
        return rc;
    d->sm = major * 10 + minor;
    ask_identity(d);
    return 0;
}

static int ask_priority(struct cuda_device *d, struct err *err)
{
    auto_visit visit = {0};
    int least, rc = cuda_enter(d, &visit, err);
    return rc < 0 ? rc
                  : cuda_check(d, d->api->priorities(&least, &d->priority),
                               "cuCtxGetStreamPriorityRange", err);
}

static int find_device(struct cuda_device *d, struct err *err)
{
    int count = 0;
    int rc = cuda_check(d, d->api->device_count(&count), "cuDeviceGetCount", err);
    if (rc < 0)
        return rc;
    if (d->ordinal < 0 || d->ordinal >= count) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return err_set(err, ENODEV,
                       "there is no GPU %d: this process sees %d%s%s: start fewer ranks on this "
                       "host, or show it more GPUs " DOCTOR(CHECK_GPU_COUNT),
                       d->ordinal, count, visible ? " with CUDA_VISIBLE_DEVICES=" : "",
                       visible ? visible : "");
    }
    return cuda_check(d, d->api->device_get(&d->handle, d->ordinal), "cuDeviceGet", err);
}

int cuda_device_open(int ordinal, struct cuda_device **ret, struct err *err)
{
    const struct cuda_api *api;
    int rc = cuda_api_start(&api, err);
    if (rc < 0)
        return rc;
    struct cuda_device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(err, ENOMEM, "no memory for GPU %d", ordinal);
    d->api = api;
    d->ordinal = ordinal;
    rc = find_device(d, err);
    if (rc == 0)
        rc = ask_facts(d, err);
    if (rc == 0)
        rc = cuda_check(d, api->context_retain(&d->context, d->handle), "cuDevicePrimaryCtxRetain",
                        err);
    if (rc == 0)
        rc = ask_priority(d, err);
    if (rc < 0) {
        cuda_device_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void cuda_device_close(struct cuda_device *d)
{
    struct cuda_visit visit = {0};
    if (!d)
        return;
    /* Nothing on a lost device can be destroyed: it is freed when the process ends. */
    if (d->context && cuda_enter(d, &visit, NULL) == 0) {
        for (size_t i = 0; i < d->nfree; i++)
            d->api->event_destroy(d->free[i]);
        cuda_kernels_unload(d);
    }
    cuda_leave(&visit);
    if (d->context)
        d->api->context_release(d->handle);
    free(d->kernels);
    free(d->free);
    free(d);
}

/* ---- visits ---- */

int cuda_enter(struct cuda_device *d, struct cuda_visit *ret, struct err *err)
{
    unsigned mode = CUDA_CAPTURE_RELAXED;
    if (d->lost.code)
        return err_set(err, -d->lost.code, "%s", d->lost.msg);
    int rc = cuda_check(d, d->api->context_push(d->context), "cuCtxPushCurrent", err);
    if (rc < 0)
        return rc;
    rc = cuda_check(d, d->api->capture_mode(&mode), "cuThreadExchangeStreamCaptureMode", err);
    if (rc < 0) {
        struct CUctx_st *popped;
        d->api->context_pop(&popped);
        return rc;
    }
    *ret = (struct cuda_visit){d, mode};
    return 0;
}

void cuda_leave(struct cuda_visit *visit)
{
    struct cuda_device *d = visit->device;
    struct CUctx_st *popped;
    if (!d)
        return;
    d->api->capture_mode(&visit->mode);
    d->api->context_pop(&popped);
    visit->device = NULL;
}

/* ---- streams ---- */

int cuda_stream_create(struct cuda_device *d, struct CUstream_st **ret, struct err *err)
{
    struct CUstream_st *stream;
    int rc =
        cuda_check(d, d->api->stream_create(&stream, CUDA_FLAG_STREAM_NON_BLOCKING, d->priority),
                   "cuStreamCreateWithPriority", err);
    if (rc == 0)
        *ret = stream;
    return rc;
}

void cuda_stream_destroy(struct cuda_device *d, struct CUstream_st *stream)
{
    if (stream)
        d->api->stream_destroy(stream);
}

int cuda_stream_usable(struct cuda_device *d, struct CUstream_st *stream, struct err *err)
{
    unsigned state = 0;
    unsigned code = d->api->stream_capturing(stream, &state);
    /* CUDA_STREAM_CAPTURE_IMPLICIT: the default stream reports it while another stream is captured.
     */
    if (code == CUDA_OK && state == 0)
        return 0;
    if (code != CUDA_OK && code != CUDA_STREAM_CAPTURE_IMPLICIT)
        return cuda_check(d, code, "cuStreamIsCapturing", err);
    return err_set(err, EBUSY,
                   "this stream is being captured into a CUDA graph, and an operation of several "
                   "ranks cannot be a part of one: submit it outside of the capture");
}

/* ---- events ---- */

int cuda_event_get(struct cuda_device *d, struct CUevent_st **ret, struct err *err)
{
    struct CUevent_st *event;
    if (d->nfree > 0) {
        *ret = d->free[--d->nfree];
        return 0;
    }
    /* Room in the pool for one more, so that returning it cannot fail. */
    struct CUevent_st **grown = realloc(d->free, (d->events + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for an event of GPU %d", d->ordinal);
    d->free = grown;
    int rc = cuda_check(d, d->api->event_create(&event, CUDA_FLAG_EVENT_DISABLE_TIMING),
                        "cuEventCreate", err);
    if (rc < 0)
        return rc;
    d->events++;
    *ret = event;
    return 0;
}

void cuda_event_put(struct cuda_device *d, struct CUevent_st *event)
{
    if (event)
        d->free[d->nfree++] = event;
}

int cuda_event_record(struct cuda_device *d, struct CUevent_st *event, struct CUstream_st *stream,
                      struct err *err)
{
    return cuda_check(d, d->api->event_record(event, stream), "cuEventRecord", err);
}

int cuda_event_done(struct cuda_device *d, struct CUevent_st *event, struct err *err)
{
    unsigned code = d->api->event_query(event);
    return code == CUDA_NOT_READY ? 1 : cuda_check(d, code, "cuEventQuery", err);
}

int cuda_stream_wait(struct cuda_device *d, struct CUstream_st *stream, struct CUevent_st *event,
                     struct err *err)
{
    return cuda_check(d, d->api->stream_wait(stream, event, 0), "cuStreamWaitEvent", err);
}

int cuda_stream_follow(struct cuda_device *d, struct CUstream_st *stream,
                       struct CUstream_st *before, struct CUevent_st *event, struct err *err)
{
    int rc = cuda_event_record(d, event, before, err);
    return rc == 0 ? cuda_stream_wait(d, stream, event, err) : rc;
}

/* ---- memory ---- */

static cuda_address address(const void *at)
{
    return (uintptr_t)at;
}

static int allocate(struct cuda_device *d, bool host, size_t bytes, void **ret, struct err *err)
{
    cuda_address at = 0;
    if (host)
        return cuda_check(d, d->api->host_alloc(ret, bytes, CUDA_FLAG_HOST_PORTABLE),
                          "cuMemHostAlloc", err);
    int rc = cuda_check(d, d->api->mem_alloc(&at, bytes), "cuMemAlloc", err);
    if (rc == 0)
        *ret = (void *)(uintptr_t)at;
    return rc;
}

int cuda_memory_reserve(struct cuda_device *d, struct cuda_memory *memory, size_t bytes,
                        struct err *err)
{
    const size_t page = 1 << 16;
    void *at = NULL;
    if (bytes <= memory->size)
        return 0;
    /* Frees the old memory first: both at the same time may not fit. */
    cuda_memory_free(d, memory);
    /* An eighth more, so that it grows less often. */
    size_t size = bytes < SIZE_MAX / 2 ? (bytes + bytes / 8 + page - 1) / page * page : bytes;
    int rc = allocate(d, memory->host, size, &at, err);
    if (rc == -ENOMEM && size > bytes)
        rc = allocate(d, memory->host, size = bytes, &at, err);
    if (rc < 0) {
        err_prefix(err, "%zu bytes of %s", bytes,
                   memory->host ? "locked memory of the host" : "the device's memory");
        return rc;
    }
    memory->at = at;
    memory->size = size;
    return 0;
}

void cuda_memory_free(struct cuda_device *d, struct cuda_memory *memory)
{
    if (memory->at && memory->host)
        d->api->host_free(memory->at);
    else if (memory->at)
        d->api->mem_free(address(memory->at));
    memory->at = NULL;
    memory->size = 0;
}

int cuda_memory_left(struct cuda_device *d, size_t *ret_left, size_t *ret_total, struct err *err)
{
    size_t left = 0, total = 0;
    int rc = cuda_check(d, d->api->mem_info(&left, &total), "cuMemGetInfo", err);
    if (rc < 0)
        return rc;
    *ret_left = left;
    *ret_total = total;
    return 0;
}

int cuda_copy(struct cuda_device *d, enum cuda_copy way, void *to, const void *from, size_t bytes,
              struct CUstream_st *stream, struct err *err)
{
    if (bytes == 0)
        return 0;
    switch (way) {
    case CUDA_COPY_IN:
        return cuda_check(d, d->api->copy_in(address(to), from, bytes, stream), "cuMemcpyHtoDAsync",
                          err);
    case CUDA_COPY_OUT:
        return cuda_check(d, d->api->copy_out(to, address(from), bytes, stream),
                          "cuMemcpyDtoHAsync", err);
    case CUDA_COPY_INSIDE:
        break;
    }
    return cuda_check(d, d->api->copy(address(to), address(from), bytes, stream),
                      "cuMemcpyDtoDAsync", err);
}

int cuda_pointer_device(const struct cuda_api *api, const void *at, int *ret, struct err *err)
{
    unsigned type = 0;
    int ordinal = -1;
    unsigned code = api->pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, address(at));
    if (code == CUDA_INVALID_VALUE || (code == CUDA_OK && type == CUDA_MEMORY_HOST)) {
        *ret = -1; /* unknown to CUDA, or page-locked host memory */
        return 0;
    }
    if (code == CUDA_OK)
        code = api->pointer_attribute(&ordinal, CUDA_POINTER_ORDINAL, address(at));
    int rc = cuda_api_check(api, code, "cuPointerGetAttribute", err);
    if (rc == 0)
        *ret = ordinal;
    return rc;
}
