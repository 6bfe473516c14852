/* SPDX-License-Identifier: Apache-2.0
 *
 * link: see link.h and link_private.h: creation and end of a link, and its carriers TCP and pipe.
 */
#include "core/transport/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include "core/base/log.h"
#include "core/transport/link_private.h"
#include "core/transport/shm.h"
#include "core/transport/verdict.h"

/* ---- TCP ---- */

static ssize_t tcp_write(struct link *link, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t put;
    do {
        put = sendmsg(link->watch.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (put < 0 && errno == EINTR);
    if (put < 0)
        return errno == EAGAIN ? 0 : -errno;
    return put;
}

static ssize_t tcp_read(struct link *link, void *dst, size_t n)
{
    ssize_t got;
    do {
        got = recv(link->watch.fd, dst, n, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? 0 : -errno;
    return got == 0 ? -ECONNRESET : got;
}

static const struct link_ops tcp_ops = {tcp_write, tcp_read, LINK_AHEAD, true};

/* ---- pipe in the shared segment ---- */

#define PIPE_AHEAD 128 /* saves the fence of a second read for small messages */

static enum shm_pipes pipe_of(const struct link *link)
{
    static const enum shm_pipes pipes[LINK_CLASSES] = {[LINK_CONTROL] = SHM_CONTROL,
                                                       [LINK_DATA] = SHM_DATA,
                                                       [LINK_SEND] = SHM_MESSAGES,
                                                       [LINK_RECV] = SHM_MESSAGES};
    return pipes[link->cls];
}

static ssize_t pipe_write(struct link *link, const struct iovec *iov, int n)
{
    struct mesh *mesh = link->net->mesh;
    int to = mesh->local_of[link->peer];
    size_t moved = shm_pipe_write(mesh->shm, pipe_of(link), to, iov, n, &link->pipe_read);
    if (moved)
        shm_ring(mesh->shm, to);
    return (ssize_t)moved;
}

static ssize_t pipe_read(struct link *link, void *dst, size_t n)
{
    struct mesh *mesh = link->net->mesh;
    int from = mesh->local_of[link->peer];
    size_t got = shm_pipe_read(mesh->shm, pipe_of(link), from, dst, n);
    if (got)
        shm_ring(mesh->shm, from);
    return (ssize_t)got;
}

static const struct link_ops pipe_ops = {pipe_write, pipe_read, PIPE_AHEAD, false};

/* ---- life ---- */

static void link_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct link *link = (struct link *)(void *)((char *)w - offsetof(struct link, watch));
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        link->hup = true;
    if (link->error || link->gone)
        return;
    if (link->cls == LINK_CONTROL) {
        link->readable = true;
        link_flush(link);
        link_pull(link);
        return;
    }
    if (events & EPOLLOUT && link->ops)
        link_flush_debt(link);
    /* Why has the connection ended: goodbye, news of a lost rank, or no message at all? A
     * message of the peer is left in place. */
    if (net->said_goodbye)
        link_drain(link);
    else if (link->hup && (!link->rx_open || link->rx_swallow))
        link_next_header(link);
}

void link_drain(struct link *link)
{
    if (link->cls == LINK_CONTROL || link->ops != &tcp_ops || link->gone)
        return;
    while (link_next_header(link) == 0)
        link->rx_swallow = true;
}

bool link_silent(struct link *link, uint64_t ms)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    int unsent = 0;
    if (link->ops != &tcp_ops || link->gone || link->error ||
        getsockopt(link->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return false;
    /* The kernel probes a stopped peer with a full window ever more rarely: that is not silence. */
    if (info.tcpi_unacked == 0 && (ioctl(link->watch.fd, SIOCOUTQNSD, &unsent) < 0 || unsent > 0))
        return false;
    return info.tcpi_last_ack_recv > ms && info.tcpi_last_data_recv > ms;
}

/* Makes the kernel probe an idle connection often enough for link_silent(). Disables the
 * kernel's own limit, which would end the connection to a stopped peer. */
static void keep_alive(int fd, uint64_t ms)
{
    const int s = (int)(ms / 1000), never = 0;
    const int idle = s / 2 > 0 ? s / 2 : 1, interval = s / 8 > 0 ? s / 8 : 1, probes = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof(never));
}

struct link *link_get(struct mesh_net *net, int peer, enum link_class cls)
{
    struct link **slot = &net->links[(size_t)peer * LINK_CLASSES + cls];
    if (*slot)
        return *slot;
    struct link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->net = net;
    link->peer = peer;
    link->cls = cls;
    link->watch = (struct net_watch){.fd = -1, .ready = link_ready};
    if (net->failed)
        link->error = -ECONNRESET;
    *slot = link;
    return link;
}

bool link_connects(const struct link *link)
{
    return link->cls == LINK_SEND || (link->cls != LINK_RECV && link->net->mesh->rank < link->peer);
}

bool link_expects(const struct link *link)
{
    return !link->ops && !link->error;
}

void link_established(struct link *link, int fd)
{
    link->watch.fd = fd;
    link->ops = &tcp_ops;
    if (link->net->silence_ms)
        keep_alive(fd, link->net->silence_ms);
    int rc = net_watch(link->net, &link->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    if (rc < 0) {
        link_broken(link, rc);
        return;
    }
    static const char *const names[LINK_CLASSES] = {"control", "data", "send", "receive"};
    log_debug("link to rank %d (%s) is up", link->peer, names[link->cls]);
    link_ready(link->net, &link->watch, EPOLLIN | EPOLLOUT);
}

void link_use_pipe(struct link *link)
{
    link->ops = &pipe_ops;
}

void link_broken(struct link *link, int rc)
{
    if (link->gone || link->error)
        return;
    link->gone = true;
    verdict_connection_lost(link->net, link->peer, rc);
    if (link->net->left[link->peer])
        link->error = -ECONNRESET;
}

void link_write_failed(struct link *link, int rc)
{
    if (link->gone || link->error)
        return;
    if (link->cls == LINK_CONTROL)
        link_pull(link);
    else if (!link->rx_open || link->rx_swallow)
        link_next_header(link);
    link_broken(link, rc);
}

int link_nonsense(struct link *link, const char *what)
{
    log_debug("rank %d: %s", link->peer, what);
    if (!link->error)
        link->error = -EPROTO;
    return link->error;
}

void link_say(struct link *link, uint64_t tag, const struct buf *body)
{
    uint8_t header[LINK_HEADER_SIZE];
    size_t len = body ? body->len : 0;
    if (!link->ops || link->error || link->gone || link->ops != &tcp_ops)
        return;
    link_put_header(header, link->net->mesh->generation, tag, len);
    if (link->cls == LINK_CONTROL) {
        size_t before = link->out.len;
        buf_put(&link->out, header, sizeof(header));
        if (len)
            buf_put(&link->out, body->data, len);
        if (link->out.failed) { /* a frame is queued completely or not at all */
            link->out.len = before;
            link->out.failed = false;
        }
        link_flush(link);
        return;
    }
    if (link->tx_open || link_flush_debt(link) != 0)
        return;
    struct iovec iov[] = {{header, sizeof(header)}, {len ? body->data : NULL, len}};
    ssize_t put = link->ops->write(link, iov, len ? 2 : 1);
    /* The rest of the message cannot be sent. The connection ends next, which the peer sees. */
    link->tx_open = put > 0 && (size_t)put < sizeof(header) + len;
}

void link_close(struct link *link)
{
    net_unwatch(link->net, &link->watch);
    if (!link->error)
        link->error = -ECONNRESET;
}

void link_destroy(struct link *link)
{
    if (!link)
        return;
    net_unwatch(link->net, &link->watch);
    buf_fini(&link->out);
    buf_fini(&link->in);
    free(link);
}
