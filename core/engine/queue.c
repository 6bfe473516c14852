/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: see queue.h. A handle is the slot's index in the low 24 bits and a sequence number above.
 */
#include "core/engine/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/hash.h"
#include "core/engine/meet.h"
#include "core/engine/queue_private.h"
#include "core/negotiate/signature.h"

_Static_assert(QUEUE_BLOCK *QUEUE_MAX_BLOCKS <= 1 << QUEUE_INDEX_BITS, "indexes do not fit");
_Static_assert(QUEUE_BLOCK *QUEUE_MAX_BLOCKS >= 2 * HVD_MAX_GROUP, "groups do not fit");

#define INDEX_MASK ((1u << QUEUE_INDEX_BITS) - 1)

int queue_create(int rank, int size, uint64_t first_seq, struct queue **ret, struct err *err)
{
    struct queue *q = calloc(1, sizeof(*q));
    struct queue_set *sets = calloc(1, sizeof(*sets));
    if (!q || !sets) {
        free(q);
        free(sets);
        return err_set(err, ENOMEM, "no memory for the queue");
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->opened, NULL);
    *sets = (struct queue_set){.rank = rank, .size = size};
    q->sets = sets;
    q->nsets = 1;
    q->seq = first_seq;
    q->inbox_end = &q->inbox;
    *ret = q;
    return 0;
}

void queue_destroy(struct queue *q)
{
    if (!q)
        return;
    for (size_t b = 0; b < q->nblocks; b++) {
        for (size_t i = 0; i < QUEUE_BLOCK; i++)
            queue_slot_fini(q, &q->blocks[b][i]);
        free(q->blocks[b]);
    }
    free(q->sets);
    gpu_events_fini(&q->gpu_events);
    pthread_cond_destroy(&q->opened);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static int set_name(struct queue *q, struct queue_set *set, struct slot *s,
                    const struct hvd_request *r, struct err *err)
{
    if ((unsigned)r->kind >= HVD_KINDS)
        return err_set(err, EINVAL, "unknown kind of operation %d", (int)r->kind);
    if (!r->name) {
        snprintf(s->name, sizeof(s->name), "%s.noname.%llu", hvd_kind_name(r->kind),
                 (unsigned long long)set->unnamed[r->kind]++);
    } else {
        size_t len = strnlen(r->name, HVD_MAX_NAME + 1);
        if (len == 0 || len > HVD_MAX_NAME)
            return err_set(err, EINVAL, "a tensor's name has 1 to %d bytes", HVD_MAX_NAME);
        memcpy(s->name, r->name, len + 1);
    }
    s->set = r->set;
    s->hash = hash_str(s->name) + (uint64_t)r->set;
    for (const struct slot *o = q->names[s->hash % QUEUE_NAMES]; o; o = o->name_next) {
        if (o->hash == s->hash && o->set == s->set && strcmp(o->name, s->name) == 0)
            return err_set(err, EEXIST,
                           "%s: an operation of this name is in flight; wait for it first",
                           s->name);
    }
    return 0;
}

void queue_names_add(struct queue *q, struct slot *s)
{
    struct slot **head = &q->names[s->hash % QUEUE_NAMES];
    s->name_next = *head;
    *head = s;
}

static void names_remove(struct queue *q, struct slot *s)
{
    for (struct slot **p = &q->names[s->hash % QUEUE_NAMES]; *p; p = &(*p)->name_next) {
        if (*p == s) {
            *p = s->name_next;
            return;
        }
    }
}

/* How many rows this rank sends to rank i of the set. */
static int64_t split_of(const struct queue_set *set, const struct hvd_request *r, size_t i)
{
    int64_t rows = r->shape ? r->shape[0] : 0; /* request_check() has seen that there is one */
    if (r->kind == HVD_GATHER)
        return (int)i == r->root ? rows : 0;
    if (r->kind == HVD_SCATTER && r->root != set->rank)
        return 0;
    return r->splits ? r->splits[i] : rows / set->size;
}

/* Allocates splits and rows. An alltoall's splits are known now; rows are filled in when all ranks
 * have submitted. */
static int fill_rows(struct queue *q, const struct queue_set *set, struct slot *s,
                     const struct hvd_request *r, struct err *err)
{
    if (s->facts.sig.kind != HVD_ALLTOALL && s->facts.sig.kind != HVD_ALLGATHER)
        return 0;
    size_t n = (size_t)set->size;
    if (s->rows && s->rows_cap < n) {
        free(s->rows);
        free(s->splits);
        s->rows = s->splits = NULL;
    }
    if (!s->rows) {
        /* Allocate both or neither: code elsewhere checks rows only. */
        auto_free int64_t *rows = calloc(n, sizeof(*rows));
        s->splits = calloc(n, sizeof(*s->splits));
        if (!rows || !s->splits) {
            free(s->splits);
            s->splits = NULL;
            return err_set(err, ENOMEM, "%s: no memory", s->name);
        }
        s->rows = TAKE(rows);
        s->rows_cap = n;
        atomic_fetch_add_explicit(&q->allocations, 2, memory_order_relaxed);
    }
    for (size_t i = 0; s->facts.sig.kind == HVD_ALLTOALL && i < n; i++)
        s->splits[i] = split_of(set, r, i);
    return 0;
}

/* Records the GPU event. Called last, so that no later failure has to take it back. */
static int mark(struct queue *q, struct slot *s, const struct hvd_request *r, struct err *err)
{
    size_t elem = hvd_dtype_size(r->dtype);
    s->device = s->facts.sig.device < 0 ? -1 : r->device;
    if (s->device < 0)
        return 0;
    int rc = gpu_events_put(&q->gpu_events, r, s->facts.count * elem, s->facts.out_count * elem,
                            &s->ready, err);
    return rc < 0 ? err_prefix(err, "%s", s->name) : 0;
}

/* What the job's settings add to a request, which all ranks must agree on as well. */
static void add_settings(const struct queue *q, struct signature *sig)
{
    sig->by_host = q->by_host && sig->kind == HVD_ALLREDUCE && sig->op == HVD_ADASUM;
}

static int fill_slot(struct queue *q, struct queue_set *set, struct slot *s,
                     const struct hvd_request *r, uint64_t now, struct err *err)
{
    int rc = set_name(q, set, s, r, err);
    if (rc == 0)
        rc = request_check(r, s->name, set->rank, set->size, &s->facts, err);
    if (rc == 0)
        add_settings(q, &s->facts.sig);
    if (rc == 0)
        rc = fill_rows(q, set, s, r, err);
    if (rc == 0)
        rc = mark(q, s, r, err);
    if (rc < 0)
        return rc;
    s->in = r->input;
    s->out = r->output;
    if (r->kind == HVD_BROADCAST && (r->root != set->rank || !s->in))
        s->in = s->out;
    s->status = 0;
    s->has_id = false;
    s->ranks = set->size;
    s->result_rows = 0;
    s->flight = NULL;
    s->announced = false;
    s->submit_ns = now;
    s->batch_ns = s->start_ns = 0;
    atomic_store_explicit(&s->done, 0, memory_order_relaxed);
    atomic_store_explicit(&s->aloft, 0, memory_order_relaxed);
    atomic_store_explicit(&s->prioritized, 0, memory_order_relaxed);
    return 0;
}

static int check_group(const struct hvd_request *requests, size_t n, struct err *err)
{
    if (n < 1 || n > HVD_MAX_GROUP)
        return err_set(err, EINVAL, "%zu operations, 1 to %d are possible", n, HVD_MAX_GROUP);
    for (size_t i = 1; i < n; i++) {
        if (requests[i].kind != requests[0].kind)
            return err_set(err, EINVAL, "a group of %s cannot have a %s",
                           hvd_kind_name(requests[0].kind), hvd_kind_name(requests[i].kind));
        if (requests[i].set != requests[0].set)
            return err_set(err, EINVAL, "a group in set %d cannot have a request in set %d",
                           requests[0].set, requests[i].set);
    }
    return 0;
}

static void stamp_group(struct slot *first, size_t n)
{
    if (n < 2)
        return;
    uint64_t hash = n;
    for (struct slot *s = first; s; s = s->next)
        hash = hash_mix(hash ^ s->hash);
    uint32_t index = 0;
    for (struct slot *s = first; s; s = s->next) {
        s->facts.sig.group_size = (uint32_t)n;
        s->facts.sig.group_index = index++;
        s->facts.sig.group_hash = hash;
    }
}

void queue_publish(struct queue *q, struct slot *first, struct slot **end, size_t n,
                   hvd_handle *ret_handles)
{
    size_t i = 0;
    for (struct slot *s = first; s; s = s->next) {
        s->state = SLOT_INBOX;
        hvd_handle handle = (hvd_handle)(++q->seq << QUEUE_INDEX_BITS | s->index);
        atomic_store_explicit(&s->open, handle, memory_order_relaxed);
        atomic_store_explicit(&s->handle, handle, memory_order_release);
        ret_handles[i++] = handle;
        q->last_slot = s;
    }
    *q->inbox_end = first;
    q->inbox_end = end;
    atomic_fetch_add_explicit(&q->in_flight, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&q->submitted, n, memory_order_relaxed);
    atomic_fetch_add(&q->inbox_count, n);
}

/* Called with the queue's lock held. world: see struct signature. sig: instead of the requests'
 * own; may be NULL. */
static int submit(struct queue *q, struct queue_set *set, const struct hvd_request *requests,
                  size_t n, uint64_t now, uint32_t world, bool last, const struct signature *sig,
                  hvd_handle *ret_handles, struct err *err)
{
    int rc = 0;
    struct slot *first = NULL, **end = &first;
    uint64_t unnamed[HVD_KINDS];
    memcpy(unnamed, set->unnamed, sizeof(unnamed));
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct slot *s;
        rc = queue_take_slot(q, &s, err);
        if (rc < 0)
            break;
        rc = fill_slot(q, set, s, &requests[i], now, err);
        if (rc < 0) {
            queue_give_slot(q, s);
            break;
        }
        s->facts.sig.world = world;
        if (sig)
            s->facts.sig = *sig;
        s->last = last;
        queue_names_add(q, s);
        *end = s;
        end = &s->next;
    }
    if (rc == 0) {
        stamp_group(first, n);
        queue_publish(q, first, end, n, ret_handles);
    } else {
        memcpy(set->unnamed, unnamed, sizeof(unnamed));
        for (struct slot *s = first, *next; s; s = next) {
            next = s->next;
            names_remove(q, s);
            queue_give_slot(q, s);
        }
    }
    return rc;
}

int queue_submit(struct queue *q, const struct hvd_request *requests, size_t n, uint64_t now,
                 hvd_handle *ret_handles, struct err *err)
{
    int rc = check_group(requests, n, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&q->lock);
    rc = queue_check_world(q, requests, n, err);
    struct queue_set *set = rc == 0 ? queue_set_of(q, &requests[0], false, err) : NULL;
    if (rc == 0)
        rc = set ? submit(q, set, requests, n, now, q->world, false, NULL, ret_handles, err)
                 : err->code;
    pthread_mutex_unlock(&q->lock);
    return rc;
}

/* A request of the engine itself. sig: as in submit(); meet: as in struct slot. */
static int submit_own(struct queue *q, const struct hvd_request *request, bool last,
                      const struct signature *sig, struct meet *meet, uint64_t now,
                      hvd_handle *ret_handle, struct err *err)
{
    pthread_mutex_lock(&q->lock);
    struct queue_set *set = queue_set_of(q, request, true, err);
    int rc = set ? submit(q, set, request, 1, now, 0, last, sig, ret_handle, err) : err->code;
    if (rc == 0)
        queue_find(q, *ret_handle)->meet = meet;
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int queue_submit_own(struct queue *q, const struct hvd_request *request, bool last, uint64_t now,
                     hvd_handle *ret_handle, struct err *err)
{
    return submit_own(q, request, last, NULL, NULL, now, ret_handle, err);
}

int queue_submit_neutral(struct queue *q, const struct hvd_request *request,
                         const struct signature *sig, uint64_t now, hvd_handle *ret_handle,
                         struct err *err)
{
    return submit_own(q, request, false, sig, NULL, now, ret_handle, err);
}

int queue_submit_meet(struct queue *q, struct meet *m, hvd_handle *ret_handle, struct err *err)
{
    const struct hvd_request r = {.kind = HVD_BARRIER, .name = m->what, .device = -1};
    return submit_own(q, &r, false, NULL, m, 0, ret_handle, err);
}

struct slot *queue_take(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct slot *first = q->inbox;
    q->inbox = NULL;
    q->inbox_end = &q->inbox;
    atomic_store(&q->inbox_count, 0);
    pthread_mutex_unlock(&q->lock);
    return first;
}

struct slot *queue_find(struct queue *q, hvd_handle handle)
{
    size_t index = (size_t)handle & INDEX_MASK;
    if (handle <= 0 || index / QUEUE_BLOCK >= QUEUE_MAX_BLOCKS)
        return NULL;
    struct slot *block =
        atomic_load_explicit(&q->blocks[index / QUEUE_BLOCK], memory_order_acquire);
    if (!block)
        return NULL;
    struct slot *s = &block[index % QUEUE_BLOCK];
    return atomic_load_explicit(&s->handle, memory_order_acquire) == handle ? s : NULL;
}

void queue_end_slot(struct queue *q, struct slot *s, const struct err *err)
{
    names_remove(q, s);
    s->meet = NULL;
    s->is_message = false;
    if (err) {
        s->status = err->code;
        s->text = strdup(err->msg); /* NULL when out of memory: then the error has only a code */
    }
    s->state = SLOT_DONE;
    atomic_fetch_sub_explicit(&q->in_flight, 1, memory_order_relaxed);
    atomic_store(&s->done, 1);
}

void queue_finish(struct queue *q, struct slot *slot, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    queue_end_slot(q, slot, err);
    pthread_mutex_unlock(&q->lock);
}

void queue_fail_all(struct queue *q, const struct err *err)
{
    pthread_mutex_lock(&q->lock);
    q->inbox = NULL;
    q->inbox_end = &q->inbox;
    atomic_store(&q->inbox_count, 0);
    for (size_t i = 0; i < QUEUE_NAMES; i++) {
        while (q->names[i])
            queue_end_slot(q, q->names[i], err);
    }
    /* Callers in queue_await_open() are refused by the failed engine instead. */
    queue_open_gate(q);
    pthread_mutex_unlock(&q->lock);
}

void queue_each(struct queue *q, void (*f)(void *ctx, struct slot *slot), void *ctx)
{
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < QUEUE_NAMES; i++) {
        for (struct slot *s = q->names[i]; s; s = s->name_next)
            f(ctx, s);
    }
    pthread_mutex_unlock(&q->lock);
}

void queue_abandon(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->abandoned = true;
    pthread_mutex_unlock(&q->lock);
}

bool queue_abandoned(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool abandoned = q->abandoned;
    pthread_mutex_unlock(&q->lock);
    return abandoned;
}

void queue_last(struct queue *q, char *text, size_t size)
{
    pthread_mutex_lock(&q->lock);
    const struct slot *s = q->last_slot;
    if (s)
        snprintf(text, size, "%s %s", hvd_kind_name(signature_asked(&s->facts.sig)), s->name);
    else
        text[0] = 0;
    pthread_mutex_unlock(&q->lock);
}

int queue_status(const struct slot *slot, struct err *err)
{
    int rc = slot->status;
    return rc < 0 ? err_set(err, -rc, "%s", slot->text ? slot->text : strerror(-rc)) : rc;
}

int queue_release(struct queue *q, struct slot *slot, hvd_handle handle)
{
    int rc = -EINVAL;
    pthread_mutex_lock(&q->lock);
    if (atomic_load_explicit(&slot->handle, memory_order_relaxed) == handle) {
        queue_give_slot(q, slot);
        /* Only when nothing is in flight: freeing GPU memory could wait for a hanging operation,
         * whose repair needs this lock. */
        if (atomic_load_explicit(&q->in_flight, memory_order_relaxed) == 0)
            gpu_events_trim(&q->gpu_events);
        rc = 0;
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}
