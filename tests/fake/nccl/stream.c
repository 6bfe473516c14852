/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: what is enqueued on a stream runs in order on a thread. If a libcuda of tests/fake is in
 * the process, its streams are used. Otherwise each stream pointer has a queue here. See fake.h.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/nccl/fake.h"

#define STREAMS_MAX 64

typedef int enqueue_f(void *stream, void (*fn)(void *arg), void (*skip)(void *arg), void *arg);

struct job {
    struct job *next;
    void (*fn)(void *arg);
    void *arg;
};

struct stream {
    void *stream;
    pthread_cond_t cond;
    struct job *first, **end;
    int left; /* queued or running */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams[STREAMS_MAX];

EXPORT int fake_nccl_idle(void *stream);

static void *serve(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first)
            pthread_cond_wait(&s->cond, &lock);
        struct job *job = s->first;
        s->first = job->next;
        if (!s->first)
            s->end = &s->first;
        pthread_mutex_unlock(&lock);
        job->fn(job->arg);
        free(job);
        pthread_mutex_lock(&lock);
        s->left--;
    }
    return NULL;
}

/* Called with the lock. */
static struct stream *find(void *stream, bool make)
{
    int i = 0;
    while (i < STREAMS_MAX && streams[i] && streams[i]->stream != stream)
        i++;
    if (i == STREAMS_MAX || streams[i] || !make)
        return i < STREAMS_MAX ? streams[i] : NULL;
    struct stream *s = calloc(1, sizeof(*s));
    pthread_t thread;
    if (!s)
        return NULL;
    s->stream = stream;
    s->end = &s->first;
    pthread_cond_init(&s->cond, NULL);
    if (pthread_create(&thread, NULL, serve, s) != 0) {
        free(s);
        return NULL;
    }
    pthread_detach(thread);
    return streams[i] = s;
}

void *stream_symbol(const char *name)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = cuda ? dlsym(cuda, name) : NULL;
    if (cuda)
        dlclose(cuda);
    return symbol;
}

int stream_enqueue(void *stream, void (*fn)(void *arg), void (*skip)(void *arg), void *arg)
{
    void *symbol = stream_symbol("fake_cuda_enqueue");
    enqueue_f *cuda;
    memcpy(&cuda, &symbol, sizeof(cuda));
    if (cuda)
        return cuda(stream, fn, skip, arg) == 0 ? NCCL_ABI_SUCCESS : NCCL_ABI_CUDA_ERROR;
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return NCCL_ABI_SYSTEM_ERROR;
    *job = (struct job){.fn = fn, .arg = arg};
    pthread_mutex_lock(&lock);
    struct stream *s = find(stream, true);
    if (s) {
        *s->end = job;
        s->end = &job->next;
        s->left++;
        pthread_cond_signal(&s->cond);
    }
    pthread_mutex_unlock(&lock);
    if (s)
        return NCCL_ABI_SUCCESS;
    free(job);
    return NCCL_ABI_SYSTEM_ERROR;
}

/* For tests without a libcuda: 1 if nothing of this stream is queued or runs. */
int fake_nccl_idle(void *stream)
{
    pthread_mutex_lock(&lock);
    const struct stream *s = find(stream, false);
    int idle = !s || s->left == 0;
    pthread_mutex_unlock(&lock);
    return idle;
}
