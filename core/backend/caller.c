/* SPDX-License-Identifier: Apache-2.0
 *
 * caller: see caller.h.
 */
#include "core/backend/caller.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/thread.h"

struct caller {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct call *first, **end; /* the first one is in progress */
    pthread_t thread;
    bool last;      /* no more calls will be given */
    bool abandoned; /* the thread frees this struct when it ends */
};

static void caller_free(struct caller *c)
{
    pthread_cond_destroy(&c->more);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void *thread_main(void *arg)
{
    struct caller *c = arg;
    pthread_mutex_lock(&c->lock);
    while (c->first || !c->last) {
        struct call *call = c->first;
        if (!call) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        call->result = call->fn(call->arg);
        pthread_mutex_lock(&c->lock);
        if (!(c->first = call->next))
            c->end = &c->first;
        atomic_store_explicit(&call->done, true, memory_order_release);
        call_release(call);
    }
    bool abandoned = c->abandoned;
    pthread_mutex_unlock(&c->lock);
    if (abandoned)
        caller_free(c);
    return NULL;
}

int caller_create(struct caller **ret, struct err *err)
{
    struct caller *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for a thread");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    c->end = &c->first;
    int rc = thread_start(&c->thread, thread_main, c);
    if (rc != 0) {
        caller_free(c);
        return err_sys(err, rc, "no thread for calls into a library");
    }
    *ret = c;
    return 0;
}

void caller_end(struct caller *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    bool busy = c->first;
    if (busy)
        pthread_detach(c->thread);
    c->abandoned = busy;
    c->last = true;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (busy)
        return;
    pthread_join(c->thread, NULL);
    caller_free(c);
}

struct call *call_create(call_f *fn, size_t size, struct err *err)
{
    struct call *call = calloc(1, sizeof(*call) + size);
    if (!call) {
        err_set(err, ENOMEM, "no memory for a call into a library");
        return NULL;
    }
    atomic_init(&call->holders, 2);
    call->fn = fn;
    return call;
}

void caller_give(struct caller *caller, struct call *call)
{
    pthread_mutex_lock(&caller->lock);
    *caller->end = call;
    caller->end = &call->next;
    pthread_cond_signal(&caller->more);
    pthread_mutex_unlock(&caller->lock);
}

void call_release(struct call *call)
{
    if (call && atomic_fetch_sub(&call->holders, 1) == 1)
        free(call);
}
