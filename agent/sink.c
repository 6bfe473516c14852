/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: see sink.h. A pipe or terminal that poll(2) reports writable takes at least a page without
 * blocking, so one write has at most 4096 bytes.
 */
#include "agent/sink.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "core/base/clock.h"

#define PIECE 4096
#define AHEAD (1u << 20) /* the thread gets no more bytes while it has so many queued */

static void flush(struct sink *s);

static void on_writable(void *arg, uint32_t events)
{
    (void)events;
    flush(arg);
}

static void on_written(void *arg, uint32_t events)
{
    struct sink *s = arg;
    uint64_t n;
    (void)events;
    if (read(writer_fd(s->writer), &n, sizeof(n)) == sizeof(n))
        flush(s);
}

/* For a regular file, which epoll refuses. If no thread can be started, writes are done directly.
 */
static void open_writer(struct sink *s)
{
    if (writer_open(&s->writer) < 0)
        return;
    if (writer_add(s->writer, s->fd, false) == 0 &&
        loop_fd_start(s->loop, &s->writer_lfd, writer_fd(s->writer), EPOLLIN, on_written, s) == 0)
        return;
    writer_close(s->writer);
    s->writer = NULL;
}

void sink_init(struct sink *s, struct loop *loop, int fd, void (*drained)(void *arg), void *arg)
{
    *s = (struct sink){.loop = loop, .fd = fd, .drained = drained, .arg = arg};
    if (loop_fd_start(loop, &s->lfd, fd, EPOLLOUT, on_writable, s) < 0)
        open_writer(s);
    else
        loop_fd_set(loop, &s->lfd, 0);
}

void sink_fini(struct sink *s)
{
    if (s->loop) {
        loop_fd_stop(s->loop, &s->writer_lfd);
        loop_fd_stop(s->loop, &s->lfd);
    }
    writer_close(s->writer);
    buf_fini(&s->queue);
    *s = (struct sink){.fd = -1};
}

static size_t queued(const struct sink *s)
{
    return s->queue.len - s->pos;
}

size_t sink_pending(const struct sink *s)
{
    return queued(s) + (s->writer ? writer_pending(s->writer, NULL) : 0);
}

uint64_t sink_moved(const struct sink *s)
{
    uint64_t moved = s->moved;
    if (s->writer)
        writer_pending(s->writer, &moved);
    return moved;
}

static bool writable(const struct sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1;
}

static void hand_over(struct sink *s)
{
    size_t n = queued(s), ahead = writer_pending(s->writer, NULL);
    int rc = 0, file;
    n = n < AHEAD ? n : AHEAD;
    if (ahead < AHEAD && n > 0)
        rc = writer_put(s->writer, 0, s->queue.data + s->pos, n);
    if (ahead < AHEAD && rc == 0)
        s->pos += n;
    s->failed = writer_failed(s->writer, &file);
    if (rc < 0 && ahead == 0) /* no later event would try again */
        s->failed = -rc;
}

static void write_out(struct sink *s)
{
    while (queued(s) > 0 && !s->failed && writable(s)) {
        size_t n = queued(s);
        ssize_t put = write(s->fd, s->queue.data + s->pos, n > PIECE ? PIECE : n);
        if (put < 0 && (errno == EINTR || errno == EAGAIN))
            break;
        s->moved = clock_ns();
        if (put < 0)
            s->failed = errno;
        else
            s->pos += (size_t)put;
    }
}

static void flush(struct sink *s)
{
    if (s->writer)
        hand_over(s);
    else
        write_out(s);
    if ((s->failed && !s->keep) || queued(s) == 0) {
        buf_reset(&s->queue);
        s->pos = 0;
    } else if (s->pos > s->queue.len / 2) {
        buf_consume(&s->queue, s->pos);
        s->pos = 0;
    }
    if (!s->writer)
        loop_fd_set(s->loop, &s->lfd, queued(s) && !s->failed ? EPOLLOUT : 0);
    if (s->was_full && (s->failed || !sink_full(s))) {
        s->was_full = false;
        if (s->drained)
            s->drained(s->arg);
    }
}

void sink_put(struct sink *s, const void *data, size_t n)
{
    if (s->failed || n == 0)
        return;
    if (queued(s) == 0)
        s->moved = clock_ns();
    buf_put(&s->queue, data, n);
    if (s->queue.failed) { /* no memory: write out what is queued to make room */
        s->queue.failed = false;
        flush(s);
        buf_put(&s->queue, data, n);
        s->failed = s->failed ? s->failed : s->queue.failed ? ENOMEM : 0;
    }
    s->was_full |= sink_full(s);
}

void sink_flush(struct sink *s)
{
    if (queued(s) > 0)
        flush(s);
}

void sink_write(struct sink *s, const void *data, size_t n)
{
    sink_put(s, data, n);
    sink_flush(s);
}

void sink_take(struct sink *s, struct buf *ret)
{
    buf_consume(&s->queue, s->pos);
    buf_put(ret, s->queue.data, s->queue.len);
    buf_reset(&s->queue);
    s->pos = 0;
}
