/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: see sink.h. A pipe or terminal that poll(2) calls writable takes at least a page without
 * blocking, so that is what one write gives it.
 */
#include "agent/sink.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define PIECE 4096

static void flush(struct sink *s);

static void on_writable(void *arg, uint32_t events)
{
    (void)events;
    flush(arg);
}

void sink_init(struct sink *s, struct loop *loop, int fd, void (*drained)(void *arg), void *arg)
{
    *s = (struct sink){.loop = loop, .fd = fd, .drained = drained, .arg = arg};
    if (loop_fd_start(loop, &s->lfd, fd, EPOLLOUT, on_writable, s) < 0)
        s->direct = true;
    else
        loop_fd_set(loop, &s->lfd, 0);
}

void sink_fini(struct sink *s)
{
    if (s->loop)
        loop_fd_stop(s->loop, &s->lfd);
    buf_fini(&s->queue);
    *s = (struct sink){.fd = -1};
}

static bool writable(const struct sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return s->direct || poll(&p, 1, 0) == 1;
}

static void flush(struct sink *s)
{
    while (sink_pending(s) > 0 && !s->failed && writable(s)) {
        size_t n = sink_pending(s);
        ssize_t put = write(s->fd, s->queue.data + s->pos, n > PIECE && !s->direct ? PIECE : n);
        if (put < 0 && (errno == EINTR || errno == EAGAIN))
            break;
        if (put < 0)
            s->failed = errno;
        else
            s->pos += (size_t)put;
    }
    if ((s->failed && !s->keep) || sink_pending(s) == 0) {
        buf_reset(&s->queue);
        s->pos = 0;
    } else if (s->pos > s->queue.len / 2) {
        buf_consume(&s->queue, s->pos);
        s->pos = 0;
    }
    loop_fd_set(s->loop, &s->lfd, sink_pending(s) && !s->failed ? EPOLLOUT : 0);
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
    buf_put(&s->queue, data, n);
    if (s->queue.failed) { /* no memory: room is made by writing what is there already */
        s->queue.failed = false;
        flush(s);
        buf_put(&s->queue, data, n);
        s->failed = s->failed ? s->failed : s->queue.failed ? ENOMEM : 0;
    }
    s->was_full |= sink_full(s);
}

void sink_flush(struct sink *s)
{
    if (sink_pending(s) > 0)
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
