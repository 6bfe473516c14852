/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_thread: see nccl_thread.h.
 */
#include "core/backend/nccl_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/thread.h"

struct given {
    struct given *next;
    void (*fn)(void *arg);
    void *arg;
};

struct nccl_thread {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct given *first, **end;
    pthread_t thread;
    bool last;      /* no more calls will be given */
    bool abandoned; /* the thread frees this struct when it ends */
};

/* Waits for the next call and takes it from the queue. NULL: there are no more calls. */
static struct given *next(struct nccl_thread *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->first && !t->last)
        pthread_cond_wait(&t->more, &t->lock);
    struct given *g = t->first;
    if (g)
        t->first = g->next;
    if (!t->first)
        t->end = &t->first;
    pthread_mutex_unlock(&t->lock);
    return g;
}

static void thread_free(struct nccl_thread *t)
{
    pthread_cond_destroy(&t->more);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static void *thread_main(void *arg)
{
    struct nccl_thread *t = arg;
    struct given *g;
    while ((g = next(t)) != NULL) {
        g->fn(g->arg);
        free(g);
    }
    if (t->abandoned) /* set before last, and never after */
        thread_free(t);
    return NULL;
}

int nccl_thread_create(struct nccl_thread **ret, struct err *err)
{
    struct nccl_thread *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ENOMEM, "no memory for a thread");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    t->end = &t->first;
    int rc = thread_start(&t->thread, thread_main, t);
    if (rc != 0) {
        thread_free(t);
        return err_sys(err, rc, "no thread for calls into a library");
    }
    *ret = t;
    return 0;
}

int nccl_thread_give(struct nccl_thread *thread, void (*fn)(void *arg), void *arg, struct err *err)
{
    struct given *g = malloc(sizeof(*g));
    if (!g)
        return err_set(err, ENOMEM, "no memory for a call into a library");
    *g = (struct given){.fn = fn, .arg = arg};
    pthread_mutex_lock(&thread->lock);
    *thread->end = g;
    thread->end = &g->next;
    pthread_cond_signal(&thread->more);
    pthread_mutex_unlock(&thread->lock);
    return 0;
}

static void close_queue(struct nccl_thread *t, bool abandoned)
{
    pthread_mutex_lock(&t->lock);
    t->abandoned = abandoned;
    t->last = true;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
}

void nccl_thread_end(struct nccl_thread *thread)
{
    if (!thread)
        return;
    close_queue(thread, false);
    pthread_join(thread->thread, NULL);
    thread_free(thread);
}

void nccl_thread_abandon(struct nccl_thread *thread)
{
    if (!thread)
        return;
    pthread_detach(thread->thread); /* it ends when it sees `last` */
    close_queue(thread, true);
}
