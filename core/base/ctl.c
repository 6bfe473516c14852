/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl: see ctl.h.
 *
 * Reads ask the socket for exactly one header, then for exactly its body, and never for a byte of
 * the next frame: between two frames the socket can be handed to another struct ctl. Descriptors
 * are sent with the first byte of the header.
 */
#include "core/base/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

struct ctl_fds *ctl_fds_create(const int *fds, size_t n)
{
    struct ctl_fds *shared = malloc(sizeof(*shared) + n * sizeof(int));
    for (size_t i = 0; !shared && i < n; i++)
        close(fds[i]);
    if (shared) {
        *shared = (struct ctl_fds){.refs = 1, .n = n};
        memcpy(shared->fd, fds, n * sizeof(int));
    }
    return shared;
}

void ctl_fds_drop(struct ctl_fds *shared)
{
    if (!shared || --shared->refs > 0)
        return;
    for (size_t i = 0; i < shared->n && !shared->lent; i++)
        close(shared->fd[i]);
    free(shared);
}

/* Forgets the first n sets of descriptors and the first done bytes, which have been sent. */
static void forget_sent(struct ctl *c, size_t n, size_t done)
{
    for (size_t i = 0; i < n; i++)
        ctl_fds_drop(c->attached[i].fds);
    c->nattached -= n;
    for (size_t i = 0; i < c->nattached; i++) {
        c->attached[i] = c->attached[i + n];
        c->attached[i].at -= done;
    }
    if (done)
        buf_consume(&c->out, done);
}

void ctl_fini(struct ctl *c)
{
    close_fds(c);
    forget_sent(c, c->nattached, 0);
    free(c->attached);
    c->attached = NULL;
    c->max_attached = 0;
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

/* Gives one error code, -ECONNRESET, for a socket whose other end is closed. */
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

static int attach(struct ctl *c, size_t at, struct ctl_fds *shared)
{
    if (c->nattached == c->max_attached) {
        size_t max = c->max_attached ? 2 * c->max_attached : 4;
        struct ctl_attachment *grown = realloc(c->attached, max * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        c->attached = grown;
        c->max_attached = max;
    }
    shared->refs++;
    c->attached[c->nattached++] = (struct ctl_attachment){at, shared};
    return 0;
}

int ctl_send_shared(struct ctl *c, enum ctl_type type, const struct buf *body,
                    struct ctl_fds *shared)
{
    size_t nfds = shared ? shared->n : 0, before = c->out.len;
    if (body && body->failed)
        return -ENOMEM;
    if ((body && body->len > CTL_BODY_MAX) || nfds > FD_MAX_PASSED)
        return -EMSGSIZE;
    int rc = put_frame(&c->out, type, body, nfds);
    if (rc == 0 && nfds > 0)
        rc = attach(c, before, shared);
    if (rc < 0) {
        c->out.len = before;
        return rc;
    }
    rc = ctl_flush(c);
    return rc < 0 ? rc : 0;
}

/* The frame queued last stays in the queue: replaces the caller's descriptors by copies. If a copy
 * fails, removes the frame from the queue; none of its bytes has been sent. */
static int copy_fds(struct ctl *c, struct ctl_fds *shared)
{
    for (size_t i = 0; i < shared->n; i++) {
        int copy = fcntl(shared->fd[i], F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            int rc = -errno;
            shared->n = i;
            shared->lent = false;
            c->out.len = c->attached[--c->nattached].at;
            ctl_fds_drop(shared);
            return rc;
        }
        shared->fd[i] = copy;
    }
    shared->lent = false;
    return 0;
}

int ctl_send(struct ctl *c, enum ctl_type type, const struct buf *body, const int *fds, size_t nfds)
{
    if (nfds == 0)
        return ctl_send_shared(c, type, body, NULL);
    if (nfds > FD_MAX_PASSED)
        return -EMSGSIZE;
    struct ctl_fds *shared = malloc(sizeof(*shared) + nfds * sizeof(int));
    if (!shared)
        return -ENOMEM;
    *shared = (struct ctl_fds){.refs = 1, .lent = true, .n = nfds};
    memcpy(shared->fd, fds, nfds * sizeof(int));
    int rc = ctl_send_shared(c, type, body, shared);
    if (rc == 0 && shared->refs > 1)
        rc = copy_fds(c, shared);
    else if (rc < 0 && shared->refs > 1) /* the connection is unusable: drops the queue */
        forget_sent(c, c->nattached, c->out.len);
    ctl_fds_drop(shared);
    return rc;
}

/* The kernel passes no descriptors at present: too many are in flight. This changes when the
 * receiver, or other processes of this user, receive some. Returns CTL_RETRY, or rc if the kernel
 * has refused for CTL_REFUSED_S. */
static int refused(struct ctl *c, int rc)
{
    uint64_t now = clock_ns();
    if (!c->refused_since)
        c->refused_since = now;
    return now - c->refused_since < CTL_REFUSED_S * CLOCK_S ? CTL_RETRY : rc;
}

void ctl_refused_text(int rc, char *text, size_t size)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (rc == -ETOOMANYREFS)
        snprintf(text, size,
                 "more descriptors of this user are in flight between processes than the limit of "
                 "%llu (ulimit -n), for %d s: raise the limit",
                 (unsigned long long)limit.rlim_cur, CTL_REFUSED_S);
    else
        snprintf(text, size, "%s", strerror(-rc));
}

/* One send, which ends before the next frame that has descriptors. */
static ssize_t send_some(const struct ctl *c, size_t done, size_t next)
{
    bool attached = next < c->nattached && c->attached[next].at == done;
    const struct ctl_fds *fds = attached ? c->attached[next].fds : NULL;
    next += attached;
    size_t end = next < c->nattached ? c->attached[next].at : c->out.len;
    return fd_send(c->fd, c->out.data + done, end - done, fds ? fds->fd : NULL, fds ? fds->n : 0);
}

int ctl_flush(struct ctl *c)
{
    size_t done = 0, next = 0;
    int rc = 0;
    while (done < c->out.len && rc == 0) {
        ssize_t put = send_some(c, done, next);
        if (put > 0) {
            if (next < c->nattached && c->attached[next].at == done) {
                next++;
                c->refused_since = 0;
            }
            done += (size_t)put;
        } else if (put == -EAGAIN) {
            rc = 1;
        } else if (put == -ETOOMANYREFS || put == -ENOBUFS || put == -ENOMEM) {
            rc = refused(c, (int)put);
        } else {
            rc = put == 0 ? -ECONNRESET : send_error((int)put);
        }
    }
    forget_sent(c, next, done);
    return rc;
}

/* Reads until c->in has want bytes. 0: it has them; 1: the socket has no more now; -errno. */
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
    /* The bytes stay valid until the next call. */
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
        uint64_t later = deadline_in_ms(CTL_RETRY_MS);
        bool soon = flush == CTL_RETRY && later < deadline;
        if (poll(&p, 1, deadline_poll_ms(soon ? later : deadline)) < 0 && errno != EINTR)
            return -errno;
    }
}
