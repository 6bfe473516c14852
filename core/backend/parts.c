/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: see parts.h.
 */
#include "core/backend/parts.h"

#include <stdlib.h>

/* ---- life ----------------------------------------------------------------------------------- */

void parts_close(struct parts *p)
{
    if (!p)
        return;
    struct cuda_device *d = p->gpu->device;
    for (int w = 0; w < PARTS_WAYS; w++) {
        cuda_stream_destroy(d, p->streams[w]);
        for (int i = 0; i < PARTS_EACH; i++)
            cuda_event_put(d, p->all[w][i].event);
    }
    cuda_memory_free(d, &p->memory);
    free(p);
}

static int open_way(struct parts *p, enum parts_way way, struct err *err)
{
    int rc = cuda_stream_create(p->gpu->device, &p->streams[way], err);
    for (int i = 0; i < PARTS_EACH && rc == 0; i++) {
        struct part *part = &p->all[way][i];
        size_t before = (size_t)way * PARTS_EACH + (size_t)i;
        part->way = way;
        part->data = (uint8_t *)p->memory.at + before * PARTS_BYTES;
        rc = cuda_event_get(p->gpu->device, &part->event, err);
    }
    return rc;
}

int parts_open(struct gpu *gpu, struct parts **ret, struct err *err)
{
    struct parts *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ENOMEM, "no memory for messages of GPU %d", gpu->device->ordinal);
    p->gpu = gpu;
    p->memory.host = true;
    int rc =
        cuda_memory_reserve(gpu->device, &p->memory, PARTS_WAYS * PARTS_EACH * PARTS_BYTES, err);
    for (int w = 0; w < PARTS_WAYS && rc == 0; w++)
        rc = open_way(p, (enum parts_way)w, err);
    if (rc < 0)
        parts_close(p);
    else
        *ret = p;
    return rc;
}

/* ---- use ------------------------------------------------------------------------------------ */

struct part *parts_take(struct parts *p, enum parts_way way, const void *owner)
{
    for (struct part *part = p->all[way]; part < p->all[way] + PARTS_EACH; part++) {
        if (part->state != PART_FREE)
            continue;
        part->state = PART_HOST;
        part->owner = owner;
        part->at = SIZE_MAX;
        return part;
    }
    return NULL;
}

struct part *parts_find(struct parts *p, enum parts_way way, const void *owner, size_t at)
{
    for (struct part *part = p->all[way]; part < p->all[way] + PARTS_EACH; part++) {
        bool fits = at == SIZE_MAX ? part->state == PART_HOST : part->at == at;
        if (part->state != PART_FREE && part->owner == owner && fits && !part->given)
            return part;
    }
    return NULL;
}

static void make_free(struct part *part)
{
    part->state = PART_FREE;
    part->owner = NULL;
    part->given = false;
}

int parts_copy(struct parts *p, struct part *part, void *memory, size_t at, size_t bytes,
               struct err *err)
{
    struct cuda_device *d = p->gpu->device;
    struct CUstream_st *stream = p->streams[part->way];
    uint8_t *there = (uint8_t *)memory + at;
    int rc = part->way == PARTS_OUT
                 ? cuda_copy(d, CUDA_COPY_OUT, part->data, there, bytes, stream, err)
                 : cuda_copy(d, CUDA_COPY_IN, there, part->data, bytes, stream, err);
    if (rc == 0)
        rc = cuda_event_record(d, part->event, stream, err);
    if (rc < 0) {
        make_free(part);
        return rc;
    }
    part->at = at;
    part->bytes = bytes;
    part->state = PART_COPIES;
    p->copying++;
    return 0;
}

void parts_give(struct parts *p, struct part *part)
{
    (void)p;
    if (part->state == PART_COPIES)
        part->given = true;
    else
        make_free(part);
}

void parts_give_all(struct parts *p, const void *owner)
{
    for (int w = 0; w < PARTS_WAYS; w++)
        for (int i = 0; i < PARTS_EACH; i++)
            if (p->all[w][i].owner == owner && p->all[w][i].state != PART_FREE)
                parts_give(p, &p->all[w][i]);
}

static void end_copy(struct parts *p, struct part *part)
{
    p->copying--;
    part->state = PART_HOST;
    if (part->given || part->way == PARTS_IN)
        make_free(part);
}

int parts_progress(struct parts *p, struct err *err)
{
    int ended = 0, failed = 0;
    for (int w = 0; w < PARTS_WAYS && p->copying > 0; w++)
        for (int i = 0; i < PARTS_EACH; i++) {
            struct part *part = &p->all[w][i];
            int rc =
                part->state == PART_COPIES ? cuda_event_done(p->gpu->device, part->event, err) : 1;
            if (rc == 1)
                continue;
            failed = rc < 0 ? rc : failed;
            ended++;
            end_copy(p, part);
        }
    return failed < 0 ? failed : ended > 0;
}

bool parts_copies(const struct parts *p, const void *owner)
{
    for (int w = 0; w < PARTS_WAYS; w++)
        for (int i = 0; i < PARTS_EACH; i++)
            if (p->all[w][i].state == PART_COPIES && p->all[w][i].owner == owner)
                return true;
    return false;
}
