/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: streams with a thread each, events between them, and functions of the host on them.
 */
#include "tests/fake/cuda/fake.h"

/* Events that are not destroyed stay reachable here, so that the leak checker does not report
 * them: with the real driver it would not see them either. */
static struct CUevent_st *events;

/* ---- the thread of a stream; called with the lock ---- */

static void put_event(struct CUevent_st *event)
{
    struct CUevent_st **link = &events;
    if (!event || --event->users > 0)
        return;
    while (*link != event)
        link = &(*link)->next;
    *link = event->next;
    free(event);
}

void fake_finish(struct fake_task *task, unsigned code, uint64_t end)
{
    struct CUctx_st *c = task->stream->context;
    if (code && !c->sticky)
        c->sticky = code;
    if (task->ret_end)
        *task->ret_end = end;
    if (task->drop)
        task->drop(task);
    put_event(task->event);
    free(task);
    c->done++;
    if (c->busy_until < end)
        c->busy_until = end;
    pthread_cond_broadcast(&fake_moved);
}

/* skip may have to wait for another stream, so it runs without the lock. */
static void skip_first(struct fake_task *task)
{
    pthread_mutex_unlock(&fake_lock);
    task->skip(task->data);
    pthread_mutex_lock(&fake_lock);
}

struct fake_task *fake_run_first(struct CUstream_st *s, bool data, unsigned *ret_code)
{
    struct fake_task *task = s->first;
    struct CUctx_st *c = s->context;
    s->first = task->next;
    if (!s->first)
        s->end = &s->first;
    s->running = true;
    unsigned code = task->fails ? task->fails : c->breaks;
    unsigned delay_us = fake_time()->on ? 0 : fake_delay_us;
    c->breaks = 0;
    if (delay_us) {
        pthread_mutex_unlock(&fake_lock);
        usleep(delay_us);
        pthread_mutex_lock(&fake_lock);
    }
    /* After a sticky error no task runs, but every task ends. */
    if (!code && !c->sticky)
        code = data ? task->run(task) : CUDA_OK;
    else if (task->skip)
        skip_first(task);
    s->running = false;
    *ret_code = code;
    return task;
}

static void run_first(struct CUstream_st *s)
{
    unsigned code;
    struct fake_task *task = fake_run_first(s, true, &code);
    fake_finish(task, code, 1);
}

static void *stream_main(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&fake_lock);
    if (fake_time()->on)
        fake_serve(s);
    while (s->first || !s->closing) {
        if (s->first && !s->first->stalls && !fake_stalled)
            run_first(s);
        else
            pthread_cond_wait(s->first ? &fake_moved : &s->wake, &fake_lock);
    }
    fake_remove_stream(s);
    pthread_mutex_unlock(&fake_lock);
    pthread_cond_destroy(&s->wake);
    free(s);
    return NULL;
}

/* Called with the lock. */
static struct CUstream_st *new_stream(struct CUctx_st *context)
{
    pthread_t thread;
    pthread_attr_t attr;
    struct CUstream_st *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->context = context;
    s->end = &s->first;
    pthread_cond_init(&s->wake, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, stream_main, s) != 0) {
        pthread_cond_destroy(&s->wake);
        free(s);
        s = NULL;
    }
    pthread_attr_destroy(&attr);
    if (s)
        fake_add_stream(s);
    return s;
}

/* The handles 0, 1 and 2 are default streams. */
static struct CUstream_st *stream_of(struct CUstream_st *stream)
{
    struct CUctx_st *c = fake_current();
    if ((uintptr_t)stream > 2)
        return stream;
    if (!c)
        return NULL;
    if (!c->null)
        c->null = new_stream(c);
    return c->null;
}

/* Returns the code of the script's entry "key=FUNCTION:code" for tasks of a function; 1 for an
 * entry without code, 0 if there is no entry. */
static unsigned scripted(const char *key, const char *function)
{
    char text[96];
    size_t n = strlen(function);
    if (!script_text(SCRIPT, key, text, sizeof(text)) || strncmp(text, function, n) != 0)
        return 0;
    return text[n] == ':' ? (unsigned)atoi(text + n + 1) : text[n] == '\0';
}

struct fake_task *fake_append(const char *function, enum fake_kind kind, struct CUstream_st *stream,
                              unsigned (*run)(struct fake_task *task))
{
    struct CUstream_st *s = stream_of(stream);
    struct fake_task *task = s ? calloc(1, sizeof(*task)) : NULL;
    if (!task)
        return NULL;
    task->run = run;
    task->kind = kind;
    task->stream = s;
    task->fails = scripted("later", function);
    task->stalls = scripted("stall", function);
    *s->end = task;
    s->end = &task->next;
    s->context->queued++;
    fake_issue(task);
    fake_wake(task);
    return task;
}

/* ---- streams ---- */

unsigned cuStreamCreateWithPriority(struct CUstream_st **ret, unsigned flags, int priority)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct CUstream_st *s = new_stream(fake_current());
    fake_live += s != NULL;
    pthread_mutex_unlock(&fake_lock);
    if (!s)
        return CUDA_OUT_OF_MEMORY;
    *ret = s;
    return CUDA_OK;
}

/* Tasks on the stream still run. */
unsigned cuStreamDestroy_v2(struct CUstream_st *stream)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    stream->closing = true;
    fake_live--;
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_OK;
}

unsigned cuStreamQuery(struct CUstream_st *stream)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct CUstream_st *s = stream_of(stream);
    fake_advance();
    bool idle = s && !s->first && !s->running && s->busy_until <= fake_now();
    code = s && s->context->sticky ? s->context->sticky : idle ? CUDA_OK : CUDA_NOT_READY;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

unsigned cuStreamIsCapturing(struct CUstream_st *stream, unsigned *ret)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct CUstream_st *s = stream_of(stream);
    *ret = s ? s->capturing : 0;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_OK;
}

static unsigned call_host(struct fake_task *task)
{
    pthread_mutex_unlock(&fake_lock);
    task->f(task->data);
    pthread_mutex_lock(&fake_lock);
    return CUDA_OK;
}

static bool append_host(const char *function, struct CUstream_st *stream, void (*f)(void *),
                        void (*skip)(void *), void *ctx)
{
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(function, FAKE_HOST, stream, call_host);
    if (task) {
        task->f = f;
        task->skip = skip;
        task->data = ctx;
    }
    pthread_mutex_unlock(&fake_lock);
    return task != NULL;
}

int fake_cuda_enqueue(void *stream, void (*f)(void *), void (*skip)(void *), void *ctx)
{
    return append_host(__func__, stream, f, skip, ctx) ? 0 : -1;
}

unsigned cuLaunchHostFunc(struct CUstream_st *stream, void (*f)(void *), void *ctx)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    return append_host(__func__, stream, f, NULL, ctx) ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* ---- events ---- */

unsigned cuEventCreate(struct CUevent_st **ret, unsigned flags)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    struct CUevent_st *event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_OUT_OF_MEMORY;
    event->users = 1;
    pthread_mutex_lock(&fake_lock);
    event->next = events;
    events = event;
    fake_live++;
    pthread_mutex_unlock(&fake_lock);
    *ret = event;
    return CUDA_OK;
}

unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    put_event(event);
    fake_live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_OK;
}

static unsigned reach(struct fake_task *task)
{
    if (task->event->done < task->mark)
        task->event->done = task->mark;
    task->event->at[task->mark % FAKE_MARKS] = fake_now();
    return CUDA_OK;
}

unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(__func__, FAKE_RECORD, stream, reach);
    if (task) {
        task->event = event;
        task->mark = ++event->recorded;
        event->users++;
    }
    pthread_mutex_unlock(&fake_lock);
    return task ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* The time of the last record. */
static uint64_t time_of(const struct CUevent_st *event)
{
    return event->at[event->recorded % FAKE_MARKS];
}

static bool is_reached(const struct CUevent_st *event)
{
    return event->done == event->recorded && time_of(event) <= fake_now();
}

unsigned cuEventQuery(struct CUevent_st *event)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    fake_advance();
    code = is_reached(event) ? CUDA_OK : CUDA_NOT_READY;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

unsigned cuEventElapsedTime(float *ret_ms, struct CUevent_st *from, struct CUevent_st *to)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    fake_advance();
    bool ready = is_reached(from) && is_reached(to);
    *ret_ms = (float)((double)(time_of(to) - time_of(from)) / 1e6);
    pthread_mutex_unlock(&fake_lock);
    return ready ? CUDA_OK : CUDA_NOT_READY;
}

/* Waits for what was recorded at the time of the call, not later. */
static unsigned wait_for(struct fake_task *task)
{
    while (task->event->done < task->mark && !task->stream->context->sticky)
        pthread_cond_wait(&fake_moved, &fake_lock);
    return CUDA_OK;
}

unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(__func__, FAKE_AWAIT, stream, wait_for);
    if (task) {
        task->event = event;
        task->mark = event->recorded;
        event->users++;
    }
    pthread_mutex_unlock(&fake_lock);
    return task ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}
