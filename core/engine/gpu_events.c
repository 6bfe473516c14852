/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_events: see gpu_events.h.
 */
#include "core/engine/gpu_events.h"

#include <stdlib.h>

static int use_device(struct gpu_events *m, int ordinal, struct err *err)
{
    if (!m->device)
        return cuda_device_open(ordinal, &m->device, err);
    if (m->device->ordinal == ordinal)
        return 0;
    return err_set(err, EINVAL,
                   "a tensor on GPU %d: this rank uses GPU %d, and uses one only (take the device "
                   "of hvd_local_rank())",
                   ordinal, m->device->ordinal);
}

/* A pointer to other memory would cause an illegal address on the GPU, after which every call
 * fails. */
static int check_place(const struct gpu_events *m, const void *at, size_t bytes, const char *what,
                       struct err *err)
{
    int ordinal = -1;
    if (!at || bytes == 0)
        return 0;
    int rc = cuda_pointer_device(m->device->api, at, &ordinal, err);
    if (rc < 0 || ordinal == m->device->ordinal)
        return rc;
    if (ordinal < 0)
        return err_set(err, EINVAL, "its %s is in the host's memory, not on GPU %d", what,
                       m->device->ordinal);
    return err_set(err, EINVAL, "its %s is on GPU %d, not on GPU %d", what, ordinal,
                   m->device->ordinal);
}

static int record(struct gpu_events *m, struct CUstream_st *stream, struct CUevent_st **ret,
                  struct err *err)
{
    struct CUevent_st *event = NULL;
    int rc = cuda_stream_usable(m->device, stream, err);
    if (rc == 0)
        rc = cuda_event_get(m->device, &event, err);
    if (rc < 0)
        return rc;
    rc = cuda_event_record(m->device, event, stream, err);
    if (rc < 0)
        cuda_event_put(m->device, event);
    else
        *ret = event;
    return rc;
}

int gpu_events_put(struct gpu_events *m, const struct hvd_request *r, size_t in_bytes,
                   size_t out_bytes, struct CUevent_st **ret, struct err *err)
{
    struct cuda_visit visit = {0};
    int rc = use_device(m, r->device, err);
    if (rc == 0)
        rc = cuda_enter(m->device, &visit, err);
    if (rc == 0)
        rc = check_place(m, r->input, in_bytes, "input", err);
    if (rc == 0 && (r->output != r->input || out_bytes > in_bytes))
        rc = check_place(m, r->output, out_bytes, "output", err);
    if (rc == 0)
        rc = record(m, r->stream, ret, err);
    cuda_leave(&visit);
    return rc;
}

void gpu_events_drop(struct gpu_events *m, struct CUevent_st *event)
{
    if (event)
        cuda_event_put(m->device, event);
}

/* ---- results -------------------------------------------------------------------------------- */

static bool fits(const struct cuda_memory *memory, size_t bytes)
{
    return memory->at && memory->size >= bytes && memory->size / 4 <= bytes;
}

static int allocate(struct gpu_events *m, size_t bytes, struct cuda_memory *ret, struct err *err)
{
    struct cuda_visit visit = {0};
    *ret = (struct cuda_memory){0};
    int rc = cuda_enter(m->device, &visit, err);
    if (rc == 0)
        rc = cuda_memory_reserve(m->device, ret, bytes, err);
    cuda_leave(&visit);
    return rc;
}

static void release(struct gpu_events *m, struct cuda_memory *memory)
{
    struct cuda_visit visit = {0};
    if (memory->at && !m->abandoned && cuda_enter(m->device, &visit, NULL) == 0)
        cuda_memory_free(m->device, memory);
    cuda_leave(&visit);
    *memory = (struct cuda_memory){0};
}

int gpu_events_take(struct gpu_events *m, size_t bytes, struct cuda_memory *ret, struct err *err)
{
    struct cuda_memory *best = NULL;
    for (size_t i = 0; i < m->nspare; i++)
        if (fits(&m->spare[i], bytes) && (!best || m->spare[i].size < best->size))
            best = &m->spare[i];
    if (!best)
        return allocate(m, bytes, ret, err);
    *ret = *best;
    *best = m->spare[--m->nspare];
    return 0;
}

void gpu_events_give(struct gpu_events *m, struct cuda_memory memory)
{
    if (m->nspare == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : GPU_EVENTS_SPARE;
        struct cuda_memory *grown = realloc(m->spare, cap * sizeof(*grown));
        if (!grown) {
            release(m, &memory);
            return;
        }
        m->spare = grown;
        m->cap = cap;
    }
    m->spare[m->nspare++] = memory;
}

void gpu_events_trim(struct gpu_events *m)
{
    while (m->nspare > GPU_EVENTS_SPARE) {
        struct cuda_memory *least = m->spare;
        for (struct cuda_memory *s = m->spare; s < m->spare + m->nspare; s++)
            if (s->size < least->size)
                least = s;
        release(m, least);
        *least = m->spare[--m->nspare];
    }
}

void gpu_events_fini(struct gpu_events *m)
{
    for (size_t i = 0; i < m->nspare; i++)
        release(m, &m->spare[i]);
    free(m->spare);
    if (!m->abandoned)
        cuda_device_close(m->device);
    *m = (struct gpu_events){0};
}

void gpu_events_abandon(struct gpu_events *m)
{
    m->abandoned = true;
}
