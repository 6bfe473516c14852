/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_sets: the part of queue.h about sets.
 */
#include "core/engine/queue.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/queue_private.h"

struct queue_set *queue_set_of(struct queue *q, const struct hvd_request *r, bool own,
                               struct err *err)
{
    struct queue_set *s = r->set >= 0 && (size_t)r->set < q->nsets ? &q->sets[r->set] : NULL;
    if (!s || s->size == 0) {
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
    if (r->set > 0 && r->device >= 0 && r->kind != HVD_BARRIER) {
        err_set(err, ENOTSUP, "%s: operations of sets are not possible on GPUs yet",
                r->name ? r->name : "a request");
        return NULL;
    }
    return s;
}

static int make_room(struct queue *q, size_t n, struct err *err)
{
    if (n <= q->nsets)
        return 0;
    struct queue_set *grown = realloc(q->sets, n * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for a set");
    memset(grown + q->nsets, 0, (n - q->nsets) * sizeof(*grown));
    q->sets = grown;
    q->nsets = n;
    return 0;
}

int queue_add_set(struct queue *q, int set, int rank, int size, struct err *err)
{
    pthread_mutex_lock(&q->lock);
    int rc = make_room(q, (size_t)set + 1, err);
    if (rc == 0)
        q->sets[set] = (struct queue_set){.rank = rank, .size = size, .closed = true};
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int queue_place(struct queue *q, int set, int *ret_size)
{
    pthread_mutex_lock(&q->lock);
    bool known = set >= 0 && (size_t)set < q->nsets && q->sets[set].size > 0;
    int rank = known ? q->sets[set].rank : -1;
    *ret_size = known ? q->sets[set].size : 0;
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
    q->sets[set].closed = closed;
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

void queue_fail_set(struct queue *q, int set, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++)
        for (struct slot *s = q->names[i], *next; s; s = next) {
            next = s->name_next;
            if (s->set == set && s->state != SLOT_INBOX)
                queue_end_slot(q, s, err);
        }
    pthread_mutex_unlock(&q->lock);
}

void queue_drop_set(struct queue *q, int set)
{
    pthread_mutex_lock(&q->lock);
    if (set > 0 && (size_t)set < q->nsets)
        q->sets[set] = (struct queue_set){.size = 0};
    pthread_mutex_unlock(&q->lock);
}
