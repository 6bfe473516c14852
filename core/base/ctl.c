/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl: see ctl.h.
 *
 * A frame is read with exact sizes, first its header, then its body, so that not a byte of the next
 * one is taken: the socket can be handed to another struct ctl between two frames. Descriptors ride
 * on the first byte of the header.
 */
#include "core/base/ctl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"

#define HEADER_SIZE 8
#define READ_STEP   65536

void ctl_init(struct ctl *c, int fd)
{
    *c = (struct ctl){.fd = fd};
    fd_set_nonblock(fd);
}

static void close_fds(struct ctl *c)
{
    for (size_t i = 0; i < c->nfds; i++)
        close(c->fds[i]);
    c->nfds = 0;
}

void ctl_fini(struct ctl *c)
{
    close_fds(c);
    buf_fini(&c->in);
    buf_fini(&c->out);
    c->fd = -1;
}

static uint32_t load_le(const uint8_t *p, size_t n)
{
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint32_t)p[i] << (8 * i);
    return v;
}

/* What the kernel says about a socket whose other end is gone. */
static int send_error(int rc)
{
    return rc == -EPIPE ? -ECONNRESET : rc;
}

static int put_frame(struct buf *out, enum ctl_type type, const struct buf *body, size_t nfds)
{
    size_t before = out->len;
    size_t len = body ? body->len : 0;
    buf_put_u32(out, (uint32_t)len);
    buf_put_u16(out, (uint16_t)type);
    buf_put_u16(out, (uint16_t)nfds);
    if (len)
        buf_put(out, body->data, len);
    if (!out->failed)
        return 0;
    out->len = before;
    out->failed = false;
    return -ENOMEM;
}

static int wait_writable(int fd, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, deadline_poll_ms(deadline)) < 0 && errno != EINTR)
        return -errno;
    return deadline_passed(deadline) ? -ETIMEDOUT : 0;
}

/* The first bytes of the frame go with the descriptors, the rest is ordinary. What was queued
 * before must be gone then. */
static int send_with_fds(struct ctl *c, enum ctl_type type, const struct buf *body, const int *fds,
                         size_t nfds)
{
    uint64_t deadline = deadline_in_ms(1000);
    int rc;
    while ((rc = ctl_flush(c)) == 1) {
        rc = wait_writable(c->fd, deadline);
        if (rc < 0)
            return rc;
    }
    if (rc == 0)
        rc = put_frame(&c->out, type, body, nfds);
    if (rc < 0)
        return rc;
    for (;;) {
        ssize_t put = fd_send(c->fd, c->out.data, c->out.len, fds, nfds);
        if (put > 0) {
            buf_consume(&c->out, (size_t)put);
            return 0;
        }
        rc = put == -EAGAIN ? wait_writable(c->fd, deadline) : (int)put;
        if (rc < 0) {
            buf_reset(&c->out);
            return send_error(rc);
        }
    }
}

int ctl_send(struct ctl *c, enum ctl_type type, const struct buf *body, const int *fds, size_t nfds)
{
    if ((body && (body->failed || body->len > CTL_BODY_MAX)) || nfds > FD_MAX_PASSED)
        return body && body->failed ? -ENOMEM : -EMSGSIZE;
    int rc = nfds ? send_with_fds(c, type, body, fds, nfds) : put_frame(&c->out, type, body, 0);
    if (rc < 0)
        return rc;
    rc = ctl_flush(c);
    return rc < 0 ? rc : 0;
}

int ctl_flush(struct ctl *c)
{
    size_t done = 0;
    int rc = 0;
    while (done < c->out.len) {
        ssize_t put =
            send(c->fd, c->out.data + done, c->out.len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) {
            done += (size_t)put;
            continue;
        }
        if (put < 0 && errno == EINTR)
            continue;
        rc = put < 0 && errno == EAGAIN ? 1 : put < 0 ? send_error(-errno) : -ECONNRESET;
        break;
    }
    if (done)
        buf_consume(&c->out, done);
    return rc;
}

/* Reads until c->in has want bytes: 0, 1 or -errno. */
static int fill(struct ctl *c, size_t want)
{
    while (c->in.len < want) {
        size_t n = want - c->in.len;
        if (n > READ_STEP)
            n = READ_STEP;
        uint8_t *dst = buf_reserve(&c->in, n);
        if (!dst)
            return -ENOMEM;
        size_t nfds = FD_MAX_PASSED - c->nfds;
        ssize_t got = fd_recv(c->fd, dst, n, c->fds + c->nfds, &nfds);
        if (got == -EAGAIN)
            return 1;
        if (got <= 0)
            return got == 0 ? -ECONNRESET : (int)got;
        c->nfds += nfds;
        c->in.len += (size_t)got;
    }
    return 0;
}

static int next_frame(struct ctl *c, struct ctl_frame *ret)
{
    int rc = fill(c, HEADER_SIZE);
    if (rc != 0)
        return rc;
    size_t len = load_le(c->in.data, 4);
    size_t nfds = load_le(c->in.data + 6, 2);
    if (len > CTL_BODY_MAX || nfds > FD_MAX_PASSED)
        return -EPROTO;
    rc = fill(c, HEADER_SIZE + len);
    if (rc != 0)
        return rc;
    if (nfds != c->nfds)
        return -EPROTO;
    *ret = (struct ctl_frame){
        .type = (uint16_t)load_le(c->in.data + 4, 2),
        .body = c->in.data + HEADER_SIZE,
        .len = len,
        .nfds = nfds,
    };
    memcpy(ret->fds, c->fds, nfds * sizeof(int));
    c->nfds = 0;
    /* The bytes stay where they are until the next call. */
    c->in.len = 0;
    return 0;
}

int ctl_recv(struct ctl *c, struct ctl_frame *ret)
{
    int rc = next_frame(c, ret);
    if (rc < 0)
        close_fds(c);
    return rc;
}

int ctl_wait(struct ctl *c, struct ctl_frame *ret, uint64_t deadline)
{
    for (;;) {
        int flush = ctl_flush(c);
        int rc = ctl_recv(c, ret);
        if (rc != 1)
            return rc;
        if (flush < 0)
            return flush;
        if (deadline_passed(deadline))
            return -ETIMEDOUT;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (flush == 1)
            p.events |= POLLOUT;
        if (poll(&p, 1, deadline_poll_ms(deadline)) < 0 && errno != EINTR)
            return -errno;
    }
}
