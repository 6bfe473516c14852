/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_slots: the memory of slots, and of their results. See queue.h.
 */
#include <stdlib.h>

#include "core/engine/queue_private.h"

static void drop_result(struct queue *q, struct slot *s)
{
    if (s->on_gpu.at)
        gpu_events_give(&q->gpu_events, s->on_gpu);
    else if (!q->abandoned)
        free(s->result);
    s->on_gpu = (struct cuda_memory){0};
    s->result = NULL;
}

static void drop_ready(struct queue *q, struct slot *s)
{
    gpu_events_drop(&q->gpu_events, s->ready);
    s->ready = NULL;
}

void queue_slot_fini(struct queue *q, struct slot *s)
{
    drop_result(q, s);
    drop_ready(q, s);
    free(s->text);
    free(s->splits);
    free(s->rows);
}

static int grow(struct queue *q, struct err *err)
{
    if (q->nblocks == QUEUE_MAX_BLOCKS)
        return err_set(err, ENOSPC, "%d operations are in flight, no more are possible",
                       QUEUE_BLOCK * QUEUE_MAX_BLOCKS);
    struct slot *block = calloc(QUEUE_BLOCK, sizeof(*block));
    if (!block)
        return err_set(err, ENOMEM, "no memory for more operations");
    atomic_fetch_add_explicit(&q->allocations, 1, memory_order_relaxed);
    for (size_t i = QUEUE_BLOCK; i-- > 0;) {
        block[i].index = (uint32_t)(q->nblocks * QUEUE_BLOCK + i);
        block[i].next = q->free;
        q->free = &block[i];
    }
    atomic_store_explicit(&q->blocks[q->nblocks++], block, memory_order_release);
    return 0;
}

int queue_take_slot(struct queue *q, struct slot **ret, struct err *err)
{
    if (!q->free) {
        int rc = grow(q, err);
        if (rc < 0)
            return rc;
    }
    struct slot *s = q->free;
    q->free = s->next;
    s->next = NULL;
    *ret = s;
    return 0;
}

void queue_give_slot(struct queue *q, struct slot *s)
{
    atomic_store_explicit(&s->handle, 0, memory_order_relaxed);
    atomic_store_explicit(&s->open, 0, memory_order_relaxed);
    drop_result(q, s);
    drop_ready(q, s);
    free(s->text);
    s->text = NULL;
    s->waited = false;
    s->state = SLOT_FREE;
    s->next = q->free;
    q->free = s;
}

int queue_make_result(struct queue *q, struct slot *s, size_t bytes, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    drop_result(q, s);
    if (bytes > 0 && s->device >= 0) {
        rc = gpu_events_take(&q->gpu_events, bytes, &s->on_gpu, err);
        s->result = s->on_gpu.at;
    } else if (bytes > 0) {
        s->result = malloc(bytes);
        rc = s->result ? 0 : err_set(err, ENOMEM, "no memory for a result of %zu bytes", bytes);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}
