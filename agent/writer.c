/* SPDX-License-Identifier: Apache-2.0
 *
 * writer: see writer.h. The queue has records of {u32 file, u32 length, bytes}. The thread takes
 * the whole queue and writes it without holding the lock.
 */
#include "agent/writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/thread.h"

#define PIECE    (256u << 10) /* bytes of one write, after which progress is counted */
#define CLOSE_MS 200          /* wait for the thread, which ends at once if it is idle */

struct file {
    int fd;
    bool own;
    int failed;
    size_t pending;
};

struct writer {
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t more, end;
    struct buf queue;
    struct file *files;
    int nfiles;
    size_t pending; /* bytes of all files that wait */
    int failed;     /* the first file whose write failed, -1: none */
    uint64_t moved;
    bool stop, ended;
    int wake;
};

static void count(struct writer *w, int file, size_t n, int error)
{
    uint64_t one = 1;
    pthread_mutex_lock(&w->lock);
    w->files[file].pending -= n;
    w->pending -= n;
    w->moved = clock_ns();
    if (error && !w->files[file].failed) {
        w->files[file].failed = error;
        w->failed = w->failed < 0 ? file : w->failed;
    }
    pthread_mutex_unlock(&w->lock);
    if (write(w->wake, &one, sizeof(one)) < 0)
        return; /* the counter is full, so the eventfd is readable */
}

/* Blocks as long as the disk does. */
static void write_out(struct writer *w, int file, const uint8_t *data, size_t n)
{
    pthread_mutex_lock(&w->lock);
    int fd = w->files[file].fd, error = w->files[file].failed;
    pthread_mutex_unlock(&w->lock);
    while (n > 0 && !error) {
        ssize_t put = write(fd, data, n < PIECE ? n : PIECE);
        if (put < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, -1);
        } else if (put < 0 && errno != EINTR) {
            error = errno;
        } else if (put > 0) {
            data += put;
            n -= (size_t)put;
            count(w, file, (size_t)put, 0);
        }
    }
    if (error)
        count(w, file, n, error);
}

static void write_all(struct writer *w, const struct buf *batch)
{
    struct reader r = reader_over(batch->data, batch->len);
    while (r.pos < r.len) {
        int file = (int)reader_u32(&r);
        size_t n = reader_u32(&r);
        const uint8_t *data = reader_bytes(&r, n);
        if (r.failed)
            return;
        write_out(w, file, data, n);
    }
}

static void *run(void *arg)
{
    struct writer *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->queue.len == 0 && !w->stop)
            pthread_cond_wait(&w->more, &w->lock);
        if (w->queue.len == 0)
            break;
        struct buf batch = w->queue;
        w->queue = (struct buf){0};
        pthread_mutex_unlock(&w->lock);
        write_all(w, &batch);
        buf_fini(&batch);
        pthread_mutex_lock(&w->lock);
    }
    w->ended = true;
    pthread_cond_signal(&w->end);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void destroy(struct writer *w)
{
    for (int i = 0; i < w->nfiles; i++)
        if (w->files[i].own)
            close(w->files[i].fd);
    if (w->wake >= 0)
        close(w->wake);
    buf_fini(&w->queue);
    free(w->files);
    pthread_cond_destroy(&w->end);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int writer_open(struct writer **ret)
{
    struct writer *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->end, NULL);
    w->failed = -1;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = w->wake < 0 ? errno : thread_start(&w->thread, run, w);
    if (rc != 0) {
        destroy(w);
        return -rc;
    }
    *ret = w;
    return 0;
}

bool writer_close(struct writer *w)
{
    struct timespec until;
    if (!w)
        return true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += CLOSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    buf_reset(
        &w->queue); /* drops queued bytes; an owner that wants them on disk has waited before */
    pthread_cond_signal(&w->more);
    int rc = 0;
    while (!w->ended && rc == 0)
        rc = pthread_cond_timedwait(&w->end, &w->lock, &until);
    bool ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    if (!ended) {
        pthread_detach(w->thread);
        return false;
    }
    pthread_join(w->thread, NULL);
    destroy(w);
    return true;
}

int writer_add(struct writer *w, int fd, bool own)
{
    pthread_mutex_lock(&w->lock);
    struct file *grown = realloc(w->files, ((size_t)w->nfiles + 1) * sizeof(*grown));
    int file = grown ? w->nfiles++ : -ENOMEM;
    if (grown) {
        w->files = grown;
        w->files[file] = (struct file){.fd = fd, .own = own};
    }
    pthread_mutex_unlock(&w->lock);
    return file;
}

int writer_put(struct writer *w, int file, const void *data, size_t n)
{
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    size_t before = w->queue.len;
    if (n > 0 && !w->files[file].failed) {
        buf_put_u32(&w->queue, (uint32_t)file);
        buf_put_u32(&w->queue, (uint32_t)n);
        buf_put(&w->queue, data, n);
        if (w->queue.failed) {
            w->queue.failed = false;
            w->queue.len = before;
            rc = -ENOMEM;
        } else {
            w->moved = w->pending ? w->moved : clock_ns();
            w->pending += n;
            w->files[file].pending += n;
            pthread_cond_signal(&w->more);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int writer_failed(struct writer *w, int *ret_file)
{
    pthread_mutex_lock(&w->lock);
    *ret_file = w->failed;
    int error = w->failed < 0 ? 0 : w->files[w->failed].failed;
    pthread_mutex_unlock(&w->lock);
    return error;
}

int writer_first_pending(struct writer *w)
{
    int file = 0;
    pthread_mutex_lock(&w->lock);
    while (file < w->nfiles && w->files[file].pending == 0)
        file++;
    file = file < w->nfiles ? file : -1;
    pthread_mutex_unlock(&w->lock);
    return file;
}

size_t writer_pending(struct writer *w, uint64_t *ret_moved)
{
    pthread_mutex_lock(&w->lock);
    size_t n = w->pending;
    if (ret_moved)
        *ret_moved = w->moved;
    pthread_mutex_unlock(&w->lock);
    return n;
}

int writer_fd(const struct writer *w)
{
    return w->wake;
}
