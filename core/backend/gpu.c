/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: see gpu.h.
 */
#include "core/backend/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/clock.h"

/* time limit of gpu_copy_now(), including the wait for earlier work on the stream */
#define COPY_MS 30000
/* A block of memory of this size may serve any smaller need. */
#define SMALL_BYTES ((size_t)4 << 20)

/* ---- life ---- */

/* In a visit. Missing kernels are not an error, unless loading them has made the device fail. */
static int open_inside(struct gpu *gpu, struct err *err)
{
    struct cuda_device *d = gpu->device;
    int rc = cuda_stream_create(d, &gpu->stream, err);
    if (rc == 0)
        rc = cuda_stream_create(d, &gpu->call, err);
    if (rc == 0)
        rc = cuda_stream_create(d, &gpu->out, err);
    if (rc == 0)
        rc = cuda_event_get(d, &gpu->event, err);
    if (rc < 0)
        return rc;
    gpu->kernels = cuda_kernels_load(d, &gpu->no_kernels) == 0;
    return d->lost.code ? err_set(err, -d->lost.code, "%s", d->lost.msg) : 0;
}

int gpu_open(int ordinal, struct gpu **ret, struct err *err)
{
    struct cuda_visit visit = {0};
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return err_set(err, ENOMEM, "no memory for GPU %d", ordinal);
    int rc = cuda_device_open(ordinal, &gpu->device, err);
    if (rc == 0)
        rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0)
        rc = open_inside(gpu, err);
    cuda_leave(&visit);
    if (rc < 0)
        gpu_close(gpu);
    else
        *ret = gpu;
    return rc;
}

static void free_unused(struct gpu *gpu)
{
    gpu->blocks -= gpu->nspare;
    while (gpu->nspare > 0)
        cuda_memory_free(gpu->device, &gpu->spare[--gpu->nspare]);
    while (gpu->nold > 0)
        cuda_memory_free(gpu->device, &gpu->old[--gpu->nold]);
}

void gpu_close(struct gpu *gpu)
{
    struct cuda_visit visit = {0};
    if (!gpu)
        return;
    /* Nothing on a lost device can be freed. */
    if (gpu->device && cuda_enter(gpu->device, &visit, NULL) == 0) {
        free_unused(gpu);
        cuda_event_put(gpu->device, gpu->event);
        cuda_stream_destroy(gpu->device, gpu->stream);
        cuda_stream_destroy(gpu->device, gpu->call);
        cuda_stream_destroy(gpu->device, gpu->out);
    }
    cuda_leave(&visit);
    cuda_device_close(gpu->device);
    free(gpu->old);
    free(gpu->spare);
    free(gpu->scratch);
    free(gpu);
}

int gpu_home_enter(struct gpu_home *home, int ordinal, struct gpu **ret, struct err *err)
{
    int rc = home->gpu ? 0 : gpu_open(ordinal, &home->gpu, err);
    if (rc == 0 && home->gpu->device->ordinal != ordinal)
        rc = err_set(err, EINVAL,
                     "a tensor is on GPU %d, but this rank uses GPU %d: put all tensors of a rank "
                     "on one GPU",
                     ordinal, home->gpu->device->ordinal);
    if (rc < 0)
        return rc;
    home->users++;
    *ret = home->gpu;
    return 0;
}

void gpu_home_leave(struct gpu_home *home)
{
    if (--home->users > 0 || home->gpu->hangs)
        return;
    gpu_close(home->gpu);
    home->gpu = NULL;
}

struct gpu_use gpu_home_use(const struct gpu_home *home)
{
    const struct gpu_room *r = home->gpu ? &home->gpu->room : NULL;
    return r ? (struct gpu_use){r->communicators, r->left, r->total} : (struct gpu_use){0};
}

/* ---- work ---- */

static int wait_for_event(struct gpu *gpu, struct err *err)
{
    const struct timespec nap = {.tv_nsec = 20000};
    uint64_t deadline = deadline_in_ms(COPY_MS);
    int rc;
    while ((rc = cuda_event_done(gpu->device, gpu->event, err)) == 1) {
        if (deadline_passed(deadline))
            return err_set(
                err, ETIMEDOUT,
                "GPU %d (%s): a copy on it did not end in %d s: earlier work on its stream hangs",
                gpu->device->ordinal, gpu->device->name, COPY_MS / 1000);
        nanosleep(&nap, NULL);
    }
    return rc;
}

int gpu_copy_now(struct gpu *gpu, void *to, const void *from, size_t bytes, struct err *err)
{
    auto_visit visit = {0};
    int rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0)
        rc = cuda_copy(gpu->device, CUDA_COPY_INSIDE, to, from, bytes, gpu->stream, err);
    if (rc == 0)
        rc = cuda_event_record(gpu->device, gpu->event, gpu->stream, err);
    return rc == 0 ? wait_for_event(gpu, err) : rc;
}

int gpu_await(struct gpu *gpu, struct CUstream_st *stream, const struct coll_op *op,
              struct err *err)
{
    const void *before = NULL; /* tensors of one submission often have one event */
    int rc = 0;
    for (size_t i = 0; op->ready && i < op->n && rc == 0; i++) {
        if (op->ready[i] && op->ready[i] != before)
            rc = cuda_stream_wait(gpu->device, stream, op->ready[i], err);
        before = op->ready[i];
    }
    return rc;
}

int gpu_join(struct gpu *gpu, struct err *err)
{
    int rc = cuda_stream_follow(gpu->device, gpu->call, gpu->stream, gpu->event, err);
    return rc == 0 ? cuda_stream_wait(gpu->device, gpu->out, gpu->event, err) : rc;
}

int gpu_move_bytes(struct gpu *gpu, const struct gpu_piece *pieces, size_t n,
                   struct CUstream_st *stream, struct err *err)
{
    static const struct gpu_change none = {HVD_UINT8, HVD_UINT8, 1.0, 1, 1.0};
    int rc = 0;
    if (gpu->kernels)
        return n > 0 ? cuda_move(gpu->device, &none, pieces, n, stream, err) : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = cuda_copy(gpu->device, CUDA_COPY_INSIDE, pieces[i].to, pieces[i].from, pieces[i].count,
                       stream, err);
    return rc;
}

/* ---- memory ---- */

/* Whether none of our streams has work. */
static bool is_idle(struct gpu *gpu)
{
    struct CUstream_st *const streams[] = {gpu->stream, gpu->call, gpu->out};
    bool idle = true;
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]) && idle; i++)
        idle = cuda_event_record(gpu->device, gpu->event, streams[i], NULL) == 0 &&
               cuda_event_done(gpu->device, gpu->event, NULL) == 0;
    return idle;
}

static bool room_for_old(struct gpu *gpu)
{
    struct cuda_memory *old = realloc(gpu->old, (gpu->nold + 1) * sizeof(*old));
    gpu->old = old ? old : gpu->old;
    return old;
}

void gpu_retire(struct gpu *gpu, struct cuda_memory *memory)
{
    if (memory->at && (is_idle(gpu) || !room_for_old(gpu)))
        cuda_memory_free(gpu->device, memory);
    if (memory->at)
        gpu->old[gpu->nold++] = *memory;
    *memory = (struct cuda_memory){0};
}

int gpu_reserve(struct gpu *gpu, struct cuda_memory *memory, size_t bytes, struct err *err)
{
    struct cuda_memory larger = {.host = memory->host};
    size_t twice = 2 * memory->size;
    if (bytes <= memory->size)
        return 0;
    if (!room_for_old(gpu))
        return err_set(err, ENOMEM, "no memory for a larger buffer");
    int rc = cuda_memory_reserve(gpu->device, &larger, bytes > twice ? bytes : twice, err);
    if (rc == -ENOMEM && is_idle(gpu)) {
        free_unused(gpu);
        cuda_memory_free(gpu->device, memory);
    }
    if (rc == -ENOMEM)
        rc = cuda_memory_reserve(gpu->device, &larger, bytes, err);
    if (rc < 0)
        return rc;
    if (memory->at)
        gpu->old[gpu->nold++] = *memory;
    *memory = larger;
    return 0;
}

/* A block that is much larger than needed is left for others. */
static bool fits(const struct cuda_memory *m, size_t bytes)
{
    return m->size >= bytes && (m->size / 4 <= bytes || m->size <= SMALL_BYTES);
}

static int allocate(struct gpu *gpu, size_t bytes, struct cuda_memory *ret, struct err *err)
{
    struct cuda_memory *spare = realloc(gpu->spare, (gpu->blocks + 1) * sizeof(*spare));
    if (!spare)
        return err_set(err, ENOMEM, "no memory for one more buffer");
    gpu->spare = spare;
    int rc = cuda_memory_reserve(gpu->device, ret, bytes, err);
    if (rc == -ENOMEM && is_idle(gpu)) {
        free_unused(gpu);
        rc = cuda_memory_reserve(gpu->device, ret, bytes, err);
    }
    gpu->blocks += rc == 0;
    return rc;
}

int gpu_take(struct gpu *gpu, size_t bytes, struct cuda_memory *ret, struct err *err)
{
    struct cuda_memory *best = NULL;
    *ret = (struct cuda_memory){0};
    if (bytes == 0)
        return 0;
    for (size_t i = 0; i < gpu->nspare; i++)
        if (fits(&gpu->spare[i], bytes) && (!best || gpu->spare[i].size < best->size))
            best = &gpu->spare[i];
    if (!best)
        return allocate(gpu, bytes, ret, err);
    *ret = *best;
    *best = gpu->spare[--gpu->nspare];
    return 0;
}

void gpu_give(struct gpu *gpu, struct cuda_memory *memory)
{
    if (memory->at)
        gpu->spare[gpu->nspare++] = *memory;
    *memory = (struct cuda_memory){0};
}

void *gpu_scratch(struct gpu *gpu, size_t bytes, struct err *err)
{
    if (bytes <= gpu->nscratch)
        return gpu->scratch;
    free(gpu->scratch);
    gpu->scratch = malloc(2 * bytes);
    gpu->nscratch = gpu->scratch ? 2 * bytes : 0;
    if (!gpu->scratch)
        err_set(err, ENOMEM, "no memory for lists of tensors of %zu bytes", bytes);
    return gpu->scratch;
}
