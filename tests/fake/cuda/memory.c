/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: device memory, pinned host memory, and copies between them. New memory holds garbage. A
 * copy from or to memory that CUDA did not allocate is done before the call returns, as the real
 * driver may do. A device has the memory that the script says: memory=BYTES. With unified=N+1 in
 * the script all other memory of the process belongs to device N, so tensors of a framework without
 * GPU support can stand for GPU tensors.
 */
#include "tests/fake/cuda/fake.h"

#define MEMORY                                                                                     \
    (80ll                                                                                          \
     << 30) /* bytes of a device, if the script says nothing; also the most of one allocation */

static struct block {
    struct block *next;
    uint8_t *at;
    size_t bytes;
    int device;
    bool host;
} * blocks;

static struct block *block_of(const void *at, size_t bytes)
{
    const uint8_t *p = at;
    for (struct block *b = blocks; b; b = b->next)
        if (p >= b->at && p < b->at + b->bytes && bytes <= (size_t)(b->at + b->bytes - p))
            return b;
    return NULL;
}

static long unified(void)
{
    return script_number(SCRIPT, "unified", 0, 0);
}

bool fake_mapped(const void *at, size_t bytes)
{
    return block_of(at, bytes) || unified() > 0;
}

static bool on_device(const void *at, size_t bytes)
{
    const struct block *b = block_of(at, bytes);
    return b ? !b->host : unified() > 0;
}

static bool on_host(const void *at, size_t bytes)
{
    const struct block *b = block_of(at, bytes);
    return b ? b->host : unified() == 0;
}

/* Called with the lock. */
static size_t left_on(int device)
{
    size_t left = (size_t)script_number(SCRIPT, "memory", device, MEMORY);
    for (const struct block *b = blocks; b; b = b->next)
        if (!b->host && b->device == device)
            left -= b->bytes < left ? b->bytes : left;
    return left;
}

static size_t most(bool host)
{
    pthread_mutex_lock(&fake_lock);
    size_t bytes = host ? (size_t)MEMORY : left_on(fake_current()->device);
    pthread_mutex_unlock(&fake_lock);
    return bytes;
}

static unsigned allocate(size_t bytes, bool host, void **ret)
{
    struct block *b = calloc(1, sizeof(*b));
    void *at = bytes && bytes <= most(host) ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (!b || !at) {
        free(b);
        free(at);
        return bytes ? CUDA_OUT_OF_MEMORY : CUDA_INVALID_VALUE;
    }
    /* This pattern shows a reader of memory that nobody has written. A build with TSan leaves it
     * out: filling the memory would take a quarter of a test's time. */
#ifndef __SANITIZE_THREAD__
    if (fake_time()->data)
        memset(at, 0xa5, bytes);
#endif
    *b = (struct block){.at = at, .bytes = bytes, .device = fake_current()->device, .host = host};
    pthread_mutex_lock(&fake_lock);
    b->next = blocks;
    blocks = b;
    fake_live++;
    fake_locked += host ? bytes : 0;
    pthread_mutex_unlock(&fake_lock);
    *ret = at;
    return CUDA_OK;
}

/* Waits for all tasks on the device, like the real driver. */
static unsigned release(const void *at, bool host)
{
    struct CUctx_st *c = fake_current();
    pthread_mutex_lock(&fake_lock);
    fake_advance();
    for (long before = c->queued; c->done < before;)
        pthread_cond_wait(&fake_moved, &fake_lock);
    fake_sleep(c->busy_until);
    struct block **link = &blocks, *b;
    while ((b = *link) && (b->at != at || b->host != host))
        link = &b->next;
    if (b) {
        *link = b->next;
        fake_live--;
        fake_locked -= host ? b->bytes : 0;
    }
    pthread_mutex_unlock(&fake_lock);
    if (!b)
        return CUDA_INVALID_VALUE;
    free(b->at);
    free(b);
    return CUDA_OK;
}

unsigned cuMemAlloc_v2(cuda_address *ret, size_t bytes)
{
    void *at;
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    if (code == CUDA_OK)
        code = allocate(bytes, false, &at);
    if (code == CUDA_OK)
        *ret = (uintptr_t)at;
    return code;
}

unsigned cuMemFree_v2(cuda_address at)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    return code ? code : release((void *)(uintptr_t)at, false);
}

unsigned cuMemGetInfo_v2(size_t *ret_left, size_t *ret_total)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    int device = fake_current()->device;
    pthread_mutex_lock(&fake_lock);
    *ret_left = left_on(device);
    pthread_mutex_unlock(&fake_lock);
    *ret_total = (size_t)script_number(SCRIPT, "memory", device, MEMORY);
    return CUDA_OK;
}

unsigned cuMemHostAlloc(void **ret, size_t bytes, unsigned flags)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    return code ? code : allocate(bytes, true, ret);
}

unsigned cuMemFreeHost(void *at)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    return code ? code : release(at, true);
}

unsigned cuPointerGetAttribute(void *ret, unsigned attribute, cuda_address at)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    const struct block *b = block_of((const void *)(uintptr_t)at, 1);
    if (!b && unified() == 0)
        code = CUDA_INVALID_VALUE;
    else if (attribute == CUDA_POINTER_MEMORY_TYPE)
        *(unsigned *)ret = b && b->host ? CUDA_MEMORY_HOST : 2;
    else if (attribute == CUDA_POINTER_ORDINAL)
        *(int *)ret = b ? b->device : (int)unified() - 1;
    else
        code = CUDA_NOT_SUPPORTED;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

/* ---- copies ---- */

static unsigned copy(struct fake_task *task)
{
    if (on_host(task->to, task->bytes) && on_host(task->from, task->bytes))
        return CUDA_ILLEGAL_ADDRESS;
    memcpy(task->to, task->from, task->bytes);
    return CUDA_OK;
}

/* at_once: returns only when the copy is done. Called with the lock. */
static unsigned enqueue(const char *function, enum fake_kind kind, void *to, const void *from,
                        size_t bytes, bool at_once, struct CUstream_st *stream)
{
    uint64_t end = 0;
    struct fake_task *task = fake_append(function, kind, stream, copy);
    if (!task)
        return CUDA_OUT_OF_MEMORY;
    task->to = to;
    task->from = from;
    task->bytes = bytes;
    task->takes = fake_takes(kind, bytes);
    if (!at_once)
        return CUDA_OK;
    task->ret_end = &end;
    fake_advance();
    while (!end)
        pthread_cond_wait(&fake_moved, &fake_lock);
    fake_sleep(end);
    return CUDA_OK;
}

unsigned cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes,
                              struct CUstream_st *stream)
{
    void *at = (void *)(uintptr_t)to;
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    code = !on_device(at, bytes)
               ? CUDA_INVALID_VALUE
               : enqueue(__func__, FAKE_H2D, at, from, bytes, !fake_mapped(from, bytes), stream);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

unsigned cuMemcpyDtoHAsync_v2(void *to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    const void *at = (const void *)(uintptr_t)from;
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    code = !on_device(at, bytes)
               ? CUDA_INVALID_VALUE
               : enqueue(__func__, FAKE_D2H, to, at, bytes, !fake_mapped(to, bytes), stream);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

unsigned cuMemcpyDtoDAsync_v2(cuda_address to, cuda_address from, size_t bytes,
                              struct CUstream_st *stream)
{
    void *a = (void *)(uintptr_t)to, *b = (void *)(uintptr_t)from;
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    code = !on_device(a, bytes) || !on_device(b, bytes)
               ? CUDA_INVALID_VALUE
               : enqueue(__func__, FAKE_D2D, a, b, bytes, false, stream);
    pthread_mutex_unlock(&fake_lock);
    return code;
}
