/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_messages: the part of queue.h about messages between two ranks.
 */
#include "core/base/hash.h"
#include "core/engine/queue_private.h"

int queue_check_message(struct queue *q, const struct hvd_message *m, int size, struct p2p_op *ret,
                        struct err *err)
{
    if (atomic_load_explicit(&q->joined, memory_order_relaxed))
        return err_set(err, EBUSY, "a message: another thread is in hvd_join()");
    if (m->direction != HVD_SEND && m->direction != HVD_RECV)
        return err_set(err, EINVAL, "a message is sent or received, not %d", (int)m->direction);
    bool any = m->direction == HVD_RECV && m->peer == HVD_ANY;
    if (!any && (m->peer < 0 || m->peer >= size))
        return err_set(err, EINVAL, "a message: there is no rank %d in a %s of %d", m->peer,
                       m->set ? "set" : "job", size);
    if (m->tag < 0)
        return err_set(err, EINVAL, "a message: tag %d is negative", m->tag);
    if (m->bytes < 0 || (m->bytes > 0 && !m->data))
        return err_set(err, EINVAL, "a message of %lld bytes at %p", (long long)m->bytes, m->data);
    if (m->device < -1)
        return err_set(err, EINVAL,
                       "a message's device is %d: want -1, the host's memory, or a GPU's number",
                       m->device);
    *ret = (struct p2p_op){.sends = m->direction == HVD_SEND,
                           .peer = any ? P2P_ANY : m->peer,
                           .tag = (uint32_t)m->tag,
                           .data = m->data,
                           .staged = m->device >= 0,
                           .bytes = (size_t)m->bytes};
    return 0;
}

static int check(struct queue *q, const struct hvd_message *m, struct p2p_op *ret, struct err *err)
{
    const struct hvd_request r = {.name = "a message", .set = m->set, .device = -1};
    const struct queue_set *set = queue_set_of(q, &r, false, err);
    return set ? queue_check_message(q, m, set->size, ret, err) : err->code;
}

static void fill(struct queue *q, struct slot *s, const struct hvd_message *m)
{
    s->set = m->set;
    s->arrival = m->ret_arrival;
    s->is_message = true;
    s->facts =
        (struct request_facts){.sig = {.kind = HVD_BARRIER, .device = -1, .world = q->world}};
    s->device = m->device;
    s->opened = s->may_fly = false;
    s->ranks = 0;
    s->in = s->out = NULL;
    s->flight = NULL;
    s->status = 0;
    s->has_id = s->last = false;
    s->submit_ns = s->batch_ns = s->start_ns = 0;
    atomic_store_explicit(&s->done, 0, memory_order_relaxed);
    atomic_store_explicit(&s->aloft, 0, memory_order_relaxed);
    atomic_store_explicit(&s->prioritized, 0, memory_order_relaxed);
    s->name[0] = 0;
    s->hash = hash_mix(++q->messages);
}

/* Records the event after which the engine may use a GPU's memory. */
static int mark(struct queue *q, struct slot *s, const struct hvd_message *m, struct err *err)
{
    const struct hvd_request r = {
        .input = m->data, .output = m->data, .device = m->device, .stream = m->stream};
    size_t bytes = (size_t)m->bytes;
    if (m->device < 0)
        return 0;
    int rc = gpu_events_put(&q->gpu_events, &r, bytes, bytes, &s->ready, err);
    return rc < 0 ? err_prefix(err, "a message") : 0;
}

static int submit(struct queue *q, const struct hvd_message *messages, size_t n,
                  hvd_handle *ret_handles, struct err *err)
{
    struct slot *first = NULL, **end = &first;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct slot *s;
        rc = queue_take_slot(q, &s, err);
        if (rc < 0)
            break;
        rc = check(q, &messages[i], &s->message, err);
        if (rc == 0)
            rc = mark(q, s, &messages[i], err);
        if (rc == 0)
            fill(q, s, &messages[i]);
        *end = s;
        end = &s->next;
    }
    if (rc == 0) {
        for (struct slot *s = first; s; s = s->next)
            queue_names_add(q, s);
        queue_publish(q, first, end, n, ret_handles);
        return 0;
    }
    for (struct slot *s = first, *next; s; s = next) {
        next = s->next;
        s->is_message = false;
        queue_give_slot(q, s);
    }
    return rc;
}

int queue_submit_messages(struct queue *q, const struct hvd_message *messages, size_t n,
                          hvd_handle *ret_handles, struct err *err)
{
    if (n < 1 || n > HVD_MAX_GROUP)
        return err_set(err, EINVAL, "%zu messages, 1 to %d are possible", n, HVD_MAX_GROUP);
    pthread_mutex_lock(&q->lock);
    int rc = submit(q, messages, n, ret_handles, err);
    pthread_mutex_unlock(&q->lock);
    return rc;
}
