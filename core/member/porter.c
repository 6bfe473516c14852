/* SPDX-License-Identifier: Apache-2.0
 *
 * porter: see porter.h.
 */
#include "core/member/porter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"

#define GUEST_MS 1000
#define FULL_MS  2   /* too many guests: a pause */
#define SHORT_MS 100 /* no descriptors: a longer one */

struct guest {
    uint64_t until; /* then it does not count any more */
    struct list node;
};

static void leave(struct porter *p, struct guest *g)
{
    p->nguests -= !list_empty(&g->node);
    list_remove(&g->node);
}

void porter_welcome(struct porter *p, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        p->loop ? MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT) : NULL;
    if (info && info->socket_context)
        leave(p, info->socket_context);
}

void porter_notify(void *arg, struct MHD_Connection *conn, void **context,
                   enum MHD_ConnectionNotificationCode what)
{
    struct porter *p = arg;
    struct guest *g = *context;
    (void)conn;
    if (what == MHD_CONNECTION_NOTIFY_STARTED && p->loop) {
        g = calloc(1, sizeof(*g));
        *context = g;
        if (!g)
            return;
        g->until = deadline_in_ms(GUEST_MS);
        list_append(&p->guests, &g->node);
        p->nguests++;
    } else if (g) {
        leave(p, g);
        free(g);
        *context = NULL;
    }
}

static bool has_room(struct porter *p)
{
    list_for_each(pos, tmp, &p->guests)
    {
        struct guest *g = list_entry(pos, struct guest, node);
        if (!deadline_passed(g->until))
            break;
        leave(p, g);
    }
    return p->nguests < p->most;
}

static void on_timer(void *arg)
{
    struct porter *p = arg;
    loop_fd_set(p->loop, &p->lfd, EPOLLIN);
}

static void pause_for(struct porter *p, uint64_t ms)
{
    loop_fd_set(p->loop, &p->lfd, 0);
    loop_timer_start(p->loop, &p->timer, ms, on_timer, p);
}

static void on_listen(void *arg, uint32_t events)
{
    struct porter *p = arg;
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
        /* It takes fd in any case. */
        MHD_add_connection(p->daemon, fd, (struct sockaddr *)&sa, len);
    }
    if (!has_room(p))
        pause_for(p, FULL_MS);
    p->came(p->arg);
}

int porter_open(struct porter *p, struct loop *loop, int fd, int most, struct MHD_Daemon *daemon,
                void (*came)(void *arg), void *arg)
{
    *p = (struct porter){
        .loop = loop, .daemon = daemon, .fd = fd, .most = most, .came = came, .arg = arg};
    list_init(&p->guests);
    return loop_fd_start(loop, &p->lfd, fd, EPOLLIN, on_listen, p);
}

void porter_close(struct porter *p)
{
    if (!p->loop)
        return;
    loop_fd_stop(p->loop, &p->lfd);
    loop_timer_stop(p->loop, &p->timer);
    close(p->fd);
    p->fd = -1;
}
