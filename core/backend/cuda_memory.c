/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_memory: buffers, copies, and whose memory a pointer is, see cuda.h.
 */
#include <stdint.h>

#include "core/backend/cuda.h"

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
