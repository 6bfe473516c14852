/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: see timeline.h.
 */
#include "core/engine/timeline.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/engine/trace.h"

#define RING       2048 /* records */
#define WRITE_MS   50
#define PATH_BYTES 4096
#define CLOSE      "\n]\n"
#define CLOSE_LEN  (sizeof(CLOSE) - 1)

struct record {
    bool cycle; /* a cycle mark at op.end_ns; other fields are unused */
    struct timeline_op op;
    char algorithm[32];
    char name[HVD_MAX_NAME + 1];
    char set_text[128];
};

struct timeline {
    int fd;
    bool mark_cycles;
    struct record *ring;
    _Atomic uint64_t head; /* records written, by the driver */
    _Atomic uint64_t tail; /* records read, by the writer thread */
    _Atomic uint64_t dropped;
    pthread_t thread;
    pthread_mutex_t lock; /* protects stop only */
    pthread_cond_t wake;
    bool stop;
    /* owned by the writer thread */
    struct trace trace;
    struct buf out;
    off_t offset; /* file offset of the closing bracket, where the next event goes */
    uint64_t told_dropped;
    bool full; /* a write has failed and was reported */
};

/* Returns 1 when this rank writes no file. */
static int expand_path(const char *path, int rank, char *dst, size_t size, struct err *err)
{
    const char *mark = strstr(path, "%r");
    int n;
    if (mark)
        n = snprintf(dst, size, "%.*s%d%s", (int)(mark - path), path, rank, mark + 2);
    else if (rank != 0)
        return 1;
    else
        n = snprintf(dst, size, "%s", path);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ENAMETOOLONG, "timeline: the path is too long");
    return 0;
}

/* Writes all bytes at an offset. Returns 0, or the errno of the write that failed. */
static int write_at(const struct timeline *t, const void *bytes, size_t len, off_t offset)
{
    const uint8_t *data = bytes;
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(t->fd, data + done, len - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        done += (size_t)n;
    }
    return 0;
}

/* A write has failed. Truncates the file to the events written so far and restores the closing
 * bracket, whose first byte the write had overwritten; its space was in use before, so it fits.
 * Training continues without a trace. */
static void end_early(struct timeline *t, int error)
{
    int rc = ftruncate(t->fd, t->offset) < 0 ? errno : 0;
    if (rc == 0 && t->offset > 0)
        rc = write_at(t, CLOSE, CLOSE_LEN, t->offset);
    t->full = true;
    log_warn("the timeline ends here, after %lld bytes: %s. %s. Training goes on",
             (long long)t->offset, strerror(error),
             rc ? "To load the file, add the closing bracket that it lacks"
                : "What is in the file can be loaded");
}

/* Writes the collected events, then the bracket that makes the file an array. The next write begins
 * at the bracket. */
static void write_out(struct timeline *t)
{
    size_t events = t->out.len;
    if (t->full || t->out.failed || events == 0) {
        buf_reset(&t->out);
        return;
    }
    buf_put(&t->out, CLOSE, CLOSE_LEN);
    int error = t->out.failed ? 0 : write_at(t, t->out.data, t->out.len, t->offset);
    if (error)
        end_early(t, error);
    else if (!t->out.failed)
        t->offset += (off_t)events;
    buf_reset(&t->out);
}

static void drain(struct timeline *t)
{
    uint64_t tail = atomic_load_explicit(&t->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&t->head, memory_order_acquire);
    for (; tail < head; tail++) {
        struct record *r = &t->ring[tail % RING];
        r->op.algorithm = r->algorithm;
        r->op.name = r->name;
        r->op.set_text = r->set_text;
        if (r->cycle)
            trace_cycle(&t->trace, r->op.end_ns, &t->out);
        else
            trace_op(&t->trace, &r->op, &t->out);
        atomic_store_explicit(&t->tail, tail + 1, memory_order_release);
    }
    uint64_t dropped = atomic_load_explicit(&t->dropped, memory_order_relaxed);
    if (dropped > t->told_dropped) {
        trace_dropped(&t->trace, dropped - t->told_dropped, clock_ns(), &t->out);
        t->told_dropped = dropped;
    }
    write_out(t);
}

static void *writer_main(void *arg)
{
    struct timeline *t = arg;
    bool stop = false;
    while (!stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(WRITE_MS * CLOCK_MS);
        until.tv_sec += until.tv_nsec / (long)CLOCK_S;
        until.tv_nsec %= (long)CLOCK_S;
        pthread_mutex_lock(&t->lock);
        if (!t->stop)
            pthread_cond_timedwait(&t->wake, &t->lock, &until);
        stop = t->stop;
        pthread_mutex_unlock(&t->lock);
        drain(t);
    }
    return NULL;
}

static int start_thread(struct timeline *t)
{
    return -thread_start(&t->thread, writer_main, t);
}

static void timeline_free(struct timeline *t)
{
    if (t->fd >= 0)
        close(t->fd);
    trace_fini(&t->trace);
    buf_fini(&t->out);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t->ring);
    free(t);
}

static int open_file(struct timeline *t, const char *path, struct err *err)
{
    struct stat st;
    t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
    if (t->fd < 0)
        return err_sys(err, errno, "timeline: cannot write %s", path);
    if (fstat(t->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, EINVAL, "timeline: %s is no regular file", path);
    return 0;
}

int timeline_open(const char *path, int rank, bool mark_cycles, struct timeline **ret,
                  struct err *err)
{
    char full[PATH_BYTES];
    int rc = expand_path(path, rank, full, sizeof(full), err);
    if (rc == 1)
        *ret = NULL;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct timeline *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ENOMEM, "timeline: no memory");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->mark_cycles = mark_cycles;
    rc = open_file(t, full, err);
    if (rc < 0)
        goto error;
    t->ring = calloc(RING, sizeof(*t->ring));
    buf_put(&t->out, "[\n", 2);
    if (!t->ring || trace_init(&t->trace, rank, clock_ns(), clock_wall_us(), &t->out) < 0) {
        rc = err_set(err, ENOMEM, "timeline: no memory");
        goto error;
    }
    write_out(t);
    rc = start_thread(t);
    if (rc < 0) {
        err_sys(err, -rc, "timeline: no thread");
        goto error;
    }
    *ret = t;
    return 0;
error:
    timeline_free(t);
    return rc;
}

void timeline_close(struct timeline *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    timeline_free(t);
}

/* The next free record; NULL when the ring is full. */
static struct record *next_record(struct timeline *t)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&t->tail, memory_order_acquire) >= RING) {
        atomic_fetch_add_explicit(&t->dropped, 1, memory_order_relaxed);
        return NULL;
    }
    return &t->ring[head % RING];
}

static void record_done(struct timeline *t)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
    atomic_store_explicit(&t->head, head + 1, memory_order_release);
}

void timeline_add(struct timeline *t, const struct timeline_op *op)
{
    struct record *r = next_record(t);
    if (!r)
        return;
    r->cycle = false;
    r->op = *op;
    snprintf(r->algorithm, sizeof(r->algorithm), "%s", op->algorithm ? op->algorithm : "none");
    snprintf(r->name, sizeof(r->name), "%s", op->name);
    snprintf(r->set_text, sizeof(r->set_text), "%s", op->set_text ? op->set_text : "");
    record_done(t);
}

void timeline_cycle(struct timeline *t, uint64_t now)
{
    struct record *r = t->mark_cycles ? next_record(t) : NULL;
    if (!r)
        return;
    r->cycle = true;
    r->op.end_ns = now;
    record_done(t);
}

struct timeline *timeline_put(struct timeline_ref *ref, struct timeline *fresh)
{
    pthread_mutex_lock(&ref->lock);
    struct timeline *old = ref->timeline;
    ref->timeline = fresh;
    atomic_store_explicit(&ref->on, fresh != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&ref->lock);
    return old;
}

void timeline_add_at(struct timeline_ref *ref, const struct timeline_op *op)
{
    pthread_mutex_lock(&ref->lock);
    if (ref->timeline)
        timeline_add(ref->timeline, op);
    pthread_mutex_unlock(&ref->lock);
}

void timeline_cycle_at(struct timeline_ref *ref, uint64_t now)
{
    pthread_mutex_lock(&ref->lock);
    if (ref->timeline)
        timeline_cycle(ref->timeline, now);
    pthread_mutex_unlock(&ref->lock);
}

void timeline_after_fork(struct timeline_ref *ref)
{
    if (!ref->timeline)
        return;
    close(ref->timeline->fd);
    ref->timeline->fd = -1;
}
