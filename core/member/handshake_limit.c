/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake_limit: see handshake_limit.h.
 */
#include "core/member/handshake_limit.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"

#define HANDSHAKE_MS 1000
#define FULL_MS      2   /* pause while too many are pending */
#define SHORT_MS     100 /* pause when descriptors are exhausted */

struct handshake {
    uint64_t until; /* clock time from which the handshake does not count as pending */
    struct list node;
};

static void remove_pending(struct handshake_limit *p, struct handshake *h)
{
    p->npending -= !list_empty(&h->node);
    list_remove(&h->node);
}

void handshake_limit_done(struct handshake_limit *p, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        p->loop ? MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT) : NULL;
    if (info && info->socket_context)
        remove_pending(p, info->socket_context);
}

void handshake_limit_notify(void *arg, struct MHD_Connection *conn, void **context,
                            enum MHD_ConnectionNotificationCode what)
{
    struct handshake_limit *p = arg;
    struct handshake *h = *context;
    (void)conn;
    if (what == MHD_CONNECTION_NOTIFY_STARTED && p->loop) {
        h = calloc(1, sizeof(*h));
        *context = h;
        if (!h)
            return;
        h->until = deadline_in_ms(HANDSHAKE_MS);
        list_append(&p->pending, &h->node);
        p->npending++;
    } else if (h) {
        remove_pending(p, h);
        free(h);
        *context = NULL;
    }
}

bool handshake_limit_reached(const struct handshake_limit *p)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    /* Of a listening socket, tcpi_unacked is the number of connections that wait. */
    bool waits = p->loop && getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
                 info.tcpi_unacked > 0;
    return p->loop && (waits || p->npending >= p->limit);
}

static bool has_room(struct handshake_limit *p)
{
    list_for_each(pos, tmp, &p->pending)
    {
        struct handshake *h = list_entry(pos, struct handshake, node);
        if (!deadline_passed(h->until))
            break;
        remove_pending(p, h);
    }
    return p->npending < p->limit;
}

static void on_timer(void *arg)
{
    struct handshake_limit *p = arg;
    loop_fd_set(p->loop, &p->lfd, EPOLLIN);
}

static void pause_for(struct handshake_limit *p, uint64_t ms)
{
    loop_fd_set(p->loop, &p->lfd, 0);
    loop_timer_start(p->loop, &p->timer, ms, on_timer, p);
}

static void on_listen(void *arg, uint32_t events)
{
    struct handshake_limit *p = arg;
    (void)events;
    while (has_room(p)) {
        struct sockaddr_storage sa;
        socklen_t len = sizeof(sa);
        int fd = accept4(p->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
            break;
        if (fd < 0) {
            pause_for(p, SHORT_MS);
            break;
        }
        /* Takes over fd, even on failure. */
        MHD_add_connection(p->daemon, fd, (struct sockaddr *)&sa, len);
    }
    if (!has_room(p))
        pause_for(p, FULL_MS);
    p->accepted(p->arg);
}

int handshake_limit_open(struct handshake_limit *p, struct loop *loop, int fd, int limit,
                         struct MHD_Daemon *daemon, void (*accepted)(void *arg), void *arg)
{
    *p = (struct handshake_limit){
        .loop = loop, .daemon = daemon, .fd = fd, .limit = limit, .accepted = accepted, .arg = arg};
    list_init(&p->pending);
    return loop_fd_start(loop, &p->lfd, fd, EPOLLIN, on_listen, p);
}

void handshake_limit_close(struct handshake_limit *p)
{
    if (!p->loop)
        return;
    loop_fd_stop(p->loop, &p->lfd);
    loop_timer_stop(p->loop, &p->timer);
    close(p->fd);
    p->fd = -1;
}
