/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: streams in time (FAKE_CUDA_TIME). Each task starts when its stream is free, the host's
 * call has reached the device, and what it waits for has ended, and ends after its duration. These
 * times are computed, not measured: any thread that holds the lock continues the schedules as far
 * as they are known, often ahead of the clock, and a query compares the end with the clock. So a
 * thread that wakes up late on a busy machine changes no schedule. A stream's thread only moves
 * bytes, runs functions of the host, and continues the schedule of a program that does not ask.
 */
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/fake/cuda/fake.h"

#define SLACK_NS 1000      /* a sleep may take so much longer, as far as the kernel's timers go */
#define LOOK_NS  1000000u  /* from one look of look_main() to the next */
#define AGAIN_NS 1000000u  /* from a look at a schedule that cannot continue until the next */
#define FUTEX_NS 20000000u /* the same, if a futex tells when it can */
#define SECOND   1000000000u

/* ---- FAKE_CUDA_TIME ---- */

static struct fake_time config;

static void set(const char *key, const char *value)
{
    const struct {
        const char *key;
        double *to;
    } numbers[] = {
        {"h2d", &config.h2d},       {"d2h", &config.d2h},       {"d2d", &config.d2d},
        {"copy", &config.copy},     {"kernel", &config.kernel}, {"call", &config.call},
        {"launch", &config.launch},
    };
    if (strcmp(key, "data") == 0) {
        config.data = strcmp(value, "off") != 0;
        return;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            *numbers[i].to = strtod(value, NULL);
            return;
        }
    }
    fprintf(stderr, "FAKE_CUDA_TIME: there is no %s\n", key);
    abort();
}

static void read_config(void)
{
    const char *text = getenv("FAKE_CUDA_TIME");
    config = (struct fake_time){.on = text != NULL, .data = true};
    for (const char *s = text ? text : ""; *s; s += strcspn(s, ","), s += *s == ',') {
        char key[16] = "", value[32] = "";
        if (sscanf(s, "%15[^=,]=%31[^,]", key, value) < 1)
            continue;
        set(key, value);
    }
}

const struct fake_time *fake_time(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_config);
    return &config;
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

uint64_t fake_takes(enum fake_kind kind, size_t bytes)
{
    const struct fake_time *t = fake_time();
    double bw = kind == FAKE_H2D ? t->h2d : kind == FAKE_D2H ? t->d2h : t->d2d;
    double fixed = kind == FAKE_KERNEL ? t->kernel : t->copy;
    return ns_of(fixed + (bw > 0 ? (double)bytes / bw : 0));
}

/* ---- the clock ---- */

uint64_t fake_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

void fake_sleep(uint64_t until)
{
    const struct timespec ts = {(time_t)(until / SECOND), (long)(until % SECOND)};
    if (until <= fake_now())
        return;
    pthread_mutex_unlock(&fake_lock);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) != 0)
        ;
    pthread_mutex_lock(&fake_lock);
}

/* A call takes microseconds, too little to sleep. It holds the lock meanwhile, as the driver holds
 * the context's. */
void fake_issue(struct fake_task *task)
{
    const struct fake_time *t = fake_time();
    if (!t->on)
        return;
    uint64_t until = fake_now() + ns_of(t->call);
    do
        task->issued = fake_now();
    while (task->issued < until);
}

/* ---- the log ---- */

static struct fake_cuda_op *ops;
static size_t nops, room;

static void log_op(const struct fake_task *task, uint64_t start, uint64_t end)
{
    static const char *const names[] = {"kernel", "h2d", "d2h", "d2d", "nccl", "host"};
    if (task->kind >= FAKE_RECORD)
        return;
    if (nops == room) {
        size_t more = room ? 2 * room : 4096;
        struct fake_cuda_op *grown = realloc(ops, more * sizeof(*ops));
        if (!grown)
            abort();
        ops = grown;
        room = more;
    }
    ops[nops++] = (struct fake_cuda_op){.stream = task->stream,
                                        .kind = names[task->kind],
                                        .bytes = task->bytes,
                                        .issued = task->issued,
                                        .start = start,
                                        .end = end};
}

size_t fake_log(struct fake_cuda_op *ret, size_t most)
{
    pthread_mutex_lock(&fake_lock);
    fake_advance();
    size_t n = nops;
    if (ret && n > 0)
        memcpy(ret, ops, (n < most ? n : most) * sizeof(*ops));
    pthread_mutex_unlock(&fake_lock);
    return n;
}

/* ---- the schedule; called with the lock ---- */

static struct CUstream_st *streams;

/* The time of the record that the task waits for, or the oldest one that is known after it. */
static uint64_t time_of(const struct fake_task *task)
{
    const struct CUevent_st *e = task->event;
    uint64_t oldest = e->done < FAKE_MARKS ? 0 : e->done - FAKE_MARKS + 1;
    return e->at[(task->mark < oldest ? oldest : task->mark) % FAKE_MARKS];
}

/* When the stream's first task runs. False: that is not known yet. */
static bool span_of(struct CUstream_st *s, uint64_t *ret_start, uint64_t *ret_end)
{
    struct fake_task *t = s->first;
    bool broken = s->context->sticky != 0;
    uint64_t ready = t->issued + ns_of(fake_time()->launch);
    s->word = NULL;
    if (ready < s->busy_until)
        ready = s->busy_until;
    if (t->kind == FAKE_AWAIT && !broken) {
        if (t->event->done < t->mark)
            return false;
        if (ready < time_of(t))
            ready = time_of(t);
    }
    if (t->timed.when && !broken)
        return t->timed.when(t->data, ready, ret_start, ret_end, &s->word, &s->value);
    *ret_start = ready;
    *ret_end = ready + t->takes;
    return true;
}

/* Whether only the stream's thread may run the task. */
static bool is_for_thread(const struct fake_task *t)
{
    if (t->kind == FAKE_RECORD || t->kind == FAKE_AWAIT)
        return false;
    return fake_time()->data || t->kind == FAKE_HOST || t->timed.real;
}

static void run_first(struct CUstream_st *s, uint64_t start, uint64_t end)
{
    struct fake_task *t = s->first;
    bool real = t->kind == FAKE_HOST || t->timed.real;
    unsigned code;
    if (t->kind == FAKE_HOST)
        fake_sleep(start);
    t = fake_run_first(s, is_for_thread(t), &code);
    if (real && end < fake_now())
        end = fake_now();
    if (t->kind == FAKE_RECORD) {
        t->event->done = t->mark > t->event->done ? t->mark : t->event->done;
        t->event->at[t->mark % FAKE_MARKS] = end;
    }
    if (t->timed.done)
        t->timed.done(t->data);
    s->busy_until = end;
    log_op(t, start, end);
    fake_finish(t, code, end);
}

/* mine: the stream whose thread calls. */
static bool advance(struct CUstream_st *s, const struct CUstream_st *mine)
{
    uint64_t start = 0, end = 0;
    bool moved = false;
    while (s->first && !s->running && !s->first->stalls && !fake_stalled &&
           (s == mine || !is_for_thread(s->first)) && span_of(s, &start, &end)) {
        run_first(s, start, end);
        moved = true;
    }
    return moved;
}

static void advance_all(const struct CUstream_st *mine)
{
    for (struct CUstream_st *s = streams; s;)
        s = advance(s, mine) ? streams : s->next;
}

void fake_advance(void)
{
    if (fake_time()->on)
        advance_all(NULL);
}

/* To be woken takes longer than the call whose time is measured. So a call does not wake the thread
 * of its stream for a task that any thread may end: this one ends it, unless a query comes first.
 */
static void *look_main(void *arg)
{
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        advance_all(NULL);
        fake_sleep(fake_now() + LOOK_NS);
    }
    return arg;
}

static void start_looks(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, look_main, NULL) != 0 || pthread_detach(thread) != 0)
        abort();
}

void fake_wake(const struct fake_task *task)
{
    if (!fake_time()->on || is_for_thread(task))
        pthread_cond_signal(&task->stream->wake);
}

void fake_add_stream(struct CUstream_st *stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (fake_time()->on)
        pthread_once(&once, start_looks);
    stream->next = streams;
    streams = stream;
}

void fake_remove_stream(struct CUstream_st *stream)
{
    struct CUstream_st **link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
}

/* ---- a stream's thread ---- */

static void wait_until(pthread_cond_t *cond, uint64_t ns)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t until = (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec + ns;
    ts = (struct timespec){(time_t)(until / SECOND), (long)(until % SECOND)};
    pthread_cond_timedwait(cond, &fake_lock, &ts);
}

static void wait_for_futex(const struct CUstream_st *s)
{
    const struct timespec limit = {.tv_nsec = FUTEX_NS};
    const void *word = s->word;
    uint32_t value = s->value;
    pthread_mutex_unlock(&fake_lock);
    /* The memory may be unmapped by now: then the call fails. */
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
    pthread_mutex_lock(&fake_lock);
}

void fake_serve(struct CUstream_st *s)
{
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    for (;;) {
        advance_all(s);
        if (!s->first && s->closing)
            return;
        if (!s->first) {
            pthread_cond_wait(&s->wake, &fake_lock);
        } else if (s->word) {
            wait_for_futex(s);
        } else {
            wait_until(&fake_moved, AGAIN_NS);
        }
    }
}

/* ---- work for programs and other fake libraries ---- */

static unsigned nothing(struct fake_task *task)
{
    return CUDA_OK;
}

unsigned fake_work(struct CUstream_st *stream, uint64_t ns)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(__func__, FAKE_KERNEL, stream, nothing);
    if (task)
        task->takes = ns;
    pthread_mutex_unlock(&fake_lock);
    return task ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

static unsigned run_timed(struct fake_task *task)
{
    pthread_mutex_unlock(&fake_lock);
    task->timed.run(task->data);
    pthread_mutex_lock(&fake_lock);
    return CUDA_OK;
}

int fake_cuda_enqueue_timed(void *stream, const struct fake_cuda_timed *timed, void *ctx)
{
    if (!fake_time()->on)
        return 1;
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(__func__, FAKE_NCCL, stream, run_timed);
    if (task) {
        task->timed = *timed;
        task->data = ctx;
        task->bytes = timed->bytes;
        task->issued = timed->issued ? timed->issued : task->issued;
        fake_wake(task);
        fake_advance();
    }
    pthread_mutex_unlock(&fake_lock);
    return task ? 0 : -1;
}
