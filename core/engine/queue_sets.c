/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_sets: the part of queue.h about sets.
 */
#include "core/engine/queue.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/queue_private.h"

static int compare(const void *number, const void *set)
{
    int a = *(const int *)number, b = ((const struct queue_set *)set)->number;
    return (a > b) - (a < b);
}

static struct queue_set *find(const struct queue *q, int set)
{
    return bsearch(&set, q->sets, q->nsets, sizeof(*q->sets), compare);
}

struct queue_set *queue_set_of(struct queue *q, const struct hvd_request *r, bool own,
                               struct err *err)
{
    struct queue_set *s = find(q, r->set);
    if (!s) {
        err_set(err, EINVAL, "%s: there is no set %d", r->name ? r->name : "a request", r->set);
        return NULL;
    }
    if (s->rank < 0) {
        err_set(err, EINVAL, "%s: this rank is not in set %d", r->name ? r->name : "a request",
                r->set);
        return NULL;
    }
    if (s->closed && !own) {
        err_set(err, EINVAL, "%s: set %d is being made or removed", r->name ? r->name : "a request",
                r->set);
        return NULL;
    }
    return s;
}

int queue_add_set(struct queue *q, int set, int rank, int size, struct err *err)
{
    size_t at = 0;
    pthread_mutex_lock(&q->lock);
    struct queue_set *grown = realloc(q->sets, (q->nsets + 1) * sizeof(*grown));
    if (grown) {
        q->sets = grown;
        while (at < q->nsets && grown[at].number < set)
            at++;
        memmove(&grown[at + 1], &grown[at], (q->nsets++ - at) * sizeof(*grown));
        grown[at] = (struct queue_set){.number = set, .rank = rank, .size = size, .closed = true};
    }
    pthread_mutex_unlock(&q->lock);
    return grown ? 0 : err_set(err, ENOMEM, "no memory for a set");
}

void queue_change_set(struct queue *q, int set, int rank, int size)
{
    struct queue_set *s = find(q, set);
    s->rank = rank;
    s->size = size;
}

void queue_move_set(struct queue *q, int set, int rank, int size)
{
    queue_change_set(q, set, rank, size);
    memset(find(q, set)->unnamed, 0, sizeof(find(q, set)->unnamed));
}

int queue_place(struct queue *q, int set, int *ret_size)
{
    pthread_mutex_lock(&q->lock);
    const struct queue_set *s = find(q, set);
    int rank = s ? s->rank : -1;
    *ret_size = s ? s->size : 0;
    pthread_mutex_unlock(&q->lock);
    return rank;
}

int queue_gpu(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    int ordinal = q->gpu_events.device ? q->gpu_events.device->ordinal : -1;
    pthread_mutex_unlock(&q->lock);
    return ordinal;
}

size_t queue_pending(struct queue *q, int set)
{
    size_t n = 0;
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++)
        for (const struct slot *s = q->names[i]; s; s = s->name_next)
            n += s->set == set;
    pthread_mutex_unlock(&q->lock);
    return n;
}

static void set_closed(struct queue *q, int set, bool closed)
{
    pthread_mutex_lock(&q->lock);
    find(q, set)->closed = closed;
    pthread_mutex_unlock(&q->lock);
}

void queue_close_set(struct queue *q, int set)
{
    set_closed(q, set, true);
}

void queue_open_set(struct queue *q, int set)
{
    set_closed(q, set, false);
}

void queue_fail_set(struct queue *q, int set, uint32_t world, bool messages, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++)
        for (struct slot *s = q->names[i], *next; s; s = next) {
            next = s->name_next;
            if (s->set == set && s->state != SLOT_INBOX && s->facts.sig.world < world &&
                (messages || !s->is_message) && !s->meet)
                queue_end_slot(q, s, err);
        }
    pthread_mutex_unlock(&q->lock);
}

void queue_end_stale(struct queue *q, int set, uint32_t world, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++)
        for (struct slot *s = q->names[i], *next; s; s = next) {
            uint32_t of = s->facts.sig.world;
            next = s->name_next;
            if (s->set == set && s->state != SLOT_INBOX && !s->is_message && of > 0 && of < world)
                queue_end_slot(q, s, err);
        }
    pthread_mutex_unlock(&q->lock);
}

void queue_drop_set(struct queue *q, int set)
{
    pthread_mutex_lock(&q->lock);
    struct queue_set *s = set > 0 ? find(q, set) : NULL;
    if (s)
        memmove(s, s + 1, (size_t)(&q->sets[--q->nsets] - s) * sizeof(*s));
    pthread_mutex_unlock(&q->lock);
}
