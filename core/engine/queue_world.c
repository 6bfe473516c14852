/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_world: the part of queue.h about worlds: the world that requests are made for, its end, and
 * the time between two worlds, or in hvd_join(), in which requests are refused.
 */
#include "core/engine/queue.h"

#include <errno.h>
#include <string.h>

#include "core/engine/queue_private.h"

void queue_open_gate(struct queue *q)
{
    q->closed = false;
    pthread_cond_broadcast(&q->opened);
}

void queue_lock(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
}

void queue_unlock(struct queue *q)
{
    pthread_mutex_unlock(&q->lock);
}

void queue_set_world(struct queue *q, uint32_t epoch, int rank, int size, bool open)
{
    q->world = epoch;
    q->sets[0] = (struct queue_set){.rank = rank, .size = size};
    if (open)
        queue_open_gate(q);
    else
        q->closed = true;
}

void queue_open(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    queue_open_gate(q);
    pthread_mutex_unlock(&q->lock);
}

void queue_await_open(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->closed)
        pthread_cond_wait(&q->opened, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

int queue_check_world(const struct queue *q, const struct hvd_request *requests, size_t n,
                      struct err *err)
{
    if (atomic_load(&q->joined))
        return err_set(err, EBUSY,
                       "a thread is in hvd_join(): nothing can be submitted until it returns");
    if (q->closed)
        return err_set(err, ESTALE,
                       "hvd_commit() in another thread was changing the world: nothing was "
                       "submitted. Look at rank and size, and submit it again");
    for (size_t i = 0; i < n; i++)
        if (requests[i].epoch != 0 && q->world != 0 && requests[i].epoch != q->world)
            return err_set(err, ESTALE,
                           "a request was made for epoch %u, and the world is that of epoch %u: "
                           "nothing was submitted. Look at rank and size, and submit it again",
                           requests[i].epoch, q->world);
    return 0;
}

bool queue_has_operations(struct queue *q)
{
    bool any = false;
    if (atomic_load(&q->in_flight) == 0)
        return false;
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++)
        for (const struct slot *s = q->names[i]; s; s = s->name_next)
            any = any || !s->is_message;
    pthread_mutex_unlock(&q->lock);
    return any;
}

int queue_join(struct queue *q, struct err *err)
{
    pthread_mutex_lock(&q->lock);
    bool busy = atomic_exchange(&q->joined, true);
    int rc = busy ? err_set(err, EBUSY, "another thread is in hvd_join()") : 0;
    pthread_mutex_unlock(&q->lock);
    return rc;
}

void queue_joined(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    atomic_store(&q->joined, false);
    for (size_t i = 0; i < q->nsets; i++)
        memset(q->sets[i].unnamed, 0, sizeof(q->sets[i].unnamed));
    pthread_mutex_unlock(&q->lock);
}

static bool ends_with_world(const struct slot *s)
{
    return s->facts.sig.world != 0 && s->set == 0 && !s->is_message;
}

/* Removes requests that belong to a world from the inbox. Called with the queue's lock held. */
static void clear_inbox(struct queue *q)
{
    struct slot *s = q->inbox;
    size_t n = 0;
    q->inbox = NULL;
    q->inbox_end = &q->inbox;
    for (struct slot *next; s; s = next) {
        next = s->next;
        s->next = NULL;
        if (ends_with_world(s))
            continue;
        *q->inbox_end = s;
        q->inbox_end = &s->next;
        n++;
    }
    atomic_store(&q->inbox_count, n);
}

void queue_end_world(struct queue *q, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    clear_inbox(q);
    for (size_t i = 0; i < QUEUE_NAMES; i++) {
        for (struct slot *s = q->names[i], *next; s; s = next) {
            next = s->name_next;
            if (ends_with_world(s))
                queue_end_slot(q, s, err);
        }
    }
    pthread_mutex_unlock(&q->lock);
}
