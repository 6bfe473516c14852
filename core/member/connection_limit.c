/* SPDX-License-Identifier: Apache-2.0
 *
 * connection_limit: see connection_limit.h.
 */
#include "core/member/connection_limit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"

#define HANDSHAKE_MS 1000
#define PROVE_MS     10000
#define FULL_MS      2   /* pause while no handshake may start */
#define SHORT_MS     100 /* pause when descriptors are exhausted */
#define ACCEPTS      64  /* connections accepted in one turn */
#define ROUNDS       16  /* of all sources in one turn: connections may be closed already */
#define WAITING_MAX  4096
#define UNPROVEN_MAX 4096

/* A connection of the daemon: its socket context. */
struct connection {
    struct sockaddr_storage from;
    char source[INET6_ADDRSTRLEN];
    int fd;
    uint64_t slot_until; /* clock time from which the handshake does not count as pending */
    uint64_t prove_by;
    bool counted;                /* in unproven_by */
    struct list slot, stranger;  /* alone: not in a list */
    struct server_client client; /* pod "": no request was admitted yet */
};

/* A connection that was accepted, but that the daemon does not have yet. */
struct waiting {
    int fd;
    struct sockaddr_storage from;
    socklen_t len;
    struct list node;
};

struct source {
    char name[INET6_ADDRSTRLEN];
    struct list waiting;
    struct list node;
};

/* ---- the daemon's connections ---------------------------------------------------------------- */

/* Writes the address without the port. IPv4 addresses in IPv6 form become IPv4. */
static void name_source(const struct sockaddr *sa, char dst[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
    const void *ip = &v4->sin_addr;
    int family = AF_INET;
    if (sa->sa_family == AF_INET6) {
        bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        ip = mapped ? (const void *)&v6->sin6_addr.s6_addr[12] : (const void *)&v6->sin6_addr;
        family = mapped ? AF_INET : AF_INET6;
    }
    if (!inet_ntop(family, ip, dst, INET6_ADDRSTRLEN))
        dst[0] = '\0';
}

static void end_handshake(struct connection_limit *p, struct connection *c)
{
    if (list_empty(&c->slot))
        return;
    list_remove(&c->slot);
    shares_give(&p->handshakes, c->source, 1);
}

static void set_unproven(struct connection_limit *p);

static void on_unproven(void *arg)
{
    struct connection_limit *p = arg;
    list_for_each(pos, tmp, &p->strangers)
    {
        struct connection *c = list_entry(pos, struct connection, stranger);
        if (!deadline_passed(c->prove_by))
            break;
        list_remove(&c->stranger); /* its share is returned when the daemon has closed it */
        shutdown(c->fd, SHUT_RDWR);
    }
    set_unproven(p);
    p->accepted(p->arg);
}

static void set_unproven(struct connection_limit *p)
{
    if (list_empty(&p->strangers) || p->unproven.on)
        return;
    uint64_t at = list_first(&p->strangers, struct connection, stranger)->prove_by;
    loop_timer_start(p->loop, &p->unproven, (uint64_t)deadline_poll_ms(at), on_unproven, p);
}

/* Returns what the connection counts for: its client, or its source. */
static void leave(struct connection_limit *p, struct connection *c)
{
    if (c->client.pod[0]) {
        shares_give(&p->pods, c->client.pod, 1);
        shares_give(&p->namespaces, c->client.namespace_, 1);
    }
    if (c->counted)
        shares_give(&p->unproven_by, c->source, 1);
    c->counted = false;
    list_remove(&c->stranger);
}

static struct connection *connection_of(struct connection_limit *p, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        p->loop ? MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT) : NULL;
    return info ? info->socket_context : NULL;
}

void connection_limit_heard(struct connection_limit *p, struct MHD_Connection *conn)
{
    struct connection *c = connection_of(p, conn);
    if (!c)
        return;
    end_handshake(p, c);
}

int connection_limit_admitted(struct connection_limit *p, struct MHD_Connection *conn,
                              const struct server_client *client, struct err *err)
{
    struct connection *c = connection_of(p, conn);
    if (!c || strcmp(c->client.pod, client->pod) == 0)
        return 0;
    if (!shares_take(&p->pods, client->pod, 1))
        return err_set(err, EAGAIN, "pod %s has %d connections already", client->pod,
                       CONNECTION_LIMIT_POD);
    if (!shares_take(&p->namespaces, client->namespace_, 1)) {
        shares_give(&p->pods, client->pod, 1);
        return err_set(err, EAGAIN, "namespace %s has too many connections", client->namespace_);
    }
    leave(p, c);
    c->client = *client;
    return 0;
}

static void opened(struct connection_limit *p, struct MHD_Connection *conn, void **context)
{
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct connection *c = fd && from ? calloc(1, sizeof(*c)) : NULL;
    *context = c;
    if (!c)
        return;
    name_source(from->client_addr, c->source);
    c->fd = fd->connect_fd;
    c->slot_until = deadline_in_ms(HANDSHAKE_MS);
    c->prove_by = deadline_in_ms(PROVE_MS);
    list_init(&c->slot);
    if (shares_force(&p->handshakes, c->source, 1))
        list_append(&p->pending, &c->slot);
    c->counted = shares_force(&p->unproven_by, c->source, 1);
    list_append(&p->strangers, &c->stranger);
    set_unproven(p);
}

void connection_limit_notify(void *arg, struct MHD_Connection *conn, void **context,
                             enum MHD_ConnectionNotificationCode what)
{
    struct connection_limit *p = arg;
    struct connection *c = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED && p->loop) {
        opened(p, conn, context);
    } else if (c) {
        end_handshake(p, c);
        leave(p, c);
        free(c);
        *context = NULL;
    }
}

/* ---- waiting connections --------------------------------------------------------------------- */

static void drop_waiting(struct connection_limit *p, struct source *from, struct waiting *w)
{
    list_remove(&w->node);
    shares_give(&p->waiting, from->name, 1);
    free(w);
}

static void drop_source(struct source *s)
{
    list_remove(&s->node);
    free(s);
}

static struct source *source_of(struct connection_limit *p, const char *name)
{
    list_for_each(pos, tmp, &p->sources)
    {
        struct source *s = list_entry(pos, struct source, node);
        if (strcmp(s->name, name) == 0)
            return s;
    }
    struct source *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    memcpy(s->name, name, strlen(name) + 1);
    list_init(&s->waiting);
    list_append(&p->sources, &s->node);
    return s;
}

static int queue(struct connection_limit *p, int fd, const struct sockaddr_storage *sa,
                 socklen_t len)
{
    char name[INET6_ADDRSTRLEN];
    name_source((const struct sockaddr *)sa, name);
    if (!shares_take(&p->waiting, name, 1))
        return -EAGAIN;
    struct waiting *w = calloc(1, sizeof(*w));
    struct source *s = w ? source_of(p, name) : NULL;
    if (!s) {
        shares_give(&p->waiting, name, 1);
        free(w);
        return -ENOMEM;
    }
    *w = (struct waiting){.fd = fd, .from = *sa, .len = len};
    list_append(&s->waiting, &w->node);
    return 0;
}

/* Gives the daemon the source's first connection. It counts from connection_limit_notify(), which
 * the daemon calls at once or in its next run. */
static void hand_over(struct connection_limit *p, struct source *s)
{
    struct waiting *w = list_first(&s->waiting, struct waiting, node);
    /* Takes over fd, even on failure. */
    MHD_add_connection(p->daemon, w->fd, (struct sockaddr *)&w->from, w->len);
    drop_waiting(p, s, w);
    list_remove(&s->node);
    if (list_empty(&s->waiting))
        free(s);
    else
        list_append(&p->sources, &s->node);
}

static void expire_handshakes(struct connection_limit *p)
{
    list_for_each(pos, tmp, &p->pending)
    {
        struct connection *c = list_entry(pos, struct connection, slot);
        if (!deadline_passed(c->slot_until))
            break;
        end_handshake(p, c);
    }
}

static void on_pump(void *arg);

/* Gives the daemon one waiting connection of each source, while handshakes may start. Returns how
 * many it gave. */
static size_t one_round(struct connection_limit *p)
{
    size_t room =
        p->handshakes.total > p->handshakes.used ? p->handshakes.total - p->handshakes.used : 0;
    size_t n = 0;
    const struct list *last = p->sources.prev;
    bool done = list_empty(&p->sources);
    for (struct list *pos = p->sources.next, *next; !done && n < room; pos = next) {
        struct source *s = list_entry(pos, struct source, node);
        next = pos->next;
        done = pos == last;
        if (!shares_allow(&p->handshakes, s->name, 1) || !shares_allow(&p->unproven_by, s->name, 1))
            continue;
        hand_over(p, s);
        n++;
    }
    return n;
}

/* Starts handshakes. Sources take turns. */
static void pump(struct connection_limit *p)
{
    expire_handshakes(p);
    for (int i = 0; i < ROUNDS && one_round(p) > 0; i++)
        p->accepted(p->arg);
    if (!list_empty(&p->sources))
        loop_timer_start(p->loop, &p->pump, FULL_MS, on_pump, p);
}

static void on_pump(void *arg)
{
    pump(arg);
}

/* An address with many connections only waits for itself. */
bool connection_limit_behind(const struct connection_limit *p)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (!p->loop)
        return false;
    list_for_each(pos, tmp, &p->sources)
    {
        if (shares_of(&p->handshakes, list_entry(pos, struct source, node)->name) == 0)
            return true;
    }
    /* Of a listening socket, tcpi_unacked is the number of connections that wait. */
    return getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_unacked > 0;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void on_listen(void *arg, uint32_t events);

static void on_descriptors(void *arg)
{
    struct connection_limit *p = arg;
    loop_fd_set(p->loop, &p->lfd, EPOLLIN);
    pump(p);
}

static void on_listen(void *arg, uint32_t events)
{
    struct connection_limit *p = arg;
    (void)events;
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage sa = {0};
        socklen_t len = sizeof(sa);
        int fd = accept4(p->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
            break;
        if (fd < 0) {
            loop_fd_set(p->loop, &p->lfd, 0);
            loop_timer_start(p->loop, &p->pump, SHORT_MS, on_descriptors, p);
            return;
        }
        if (queue(p, fd, &sa, len) < 0)
            close(fd);
    }
    pump(p);
}

int connection_limit_open(struct connection_limit *p, struct loop *loop, int fd, int handshakes,
                          unsigned connections, struct MHD_Daemon *daemon,
                          void (*accepted)(void *arg), void *arg)
{
    *p = (struct connection_limit){
        .loop = loop,
        .daemon = daemon,
        .fd = fd,
        .waiting = {.total = WAITING_MAX, .divisor = 1, .floor = 8},
        .handshakes = {.total = (size_t)handshakes, .divisor = 2, .floor = 1},
        .unproven_by = {.total = UNPROVEN_MAX, .divisor = 2, .floor = 8},
        .pods = {.total = connections, .floor = CONNECTION_LIMIT_POD},
        .namespaces = {.total = connections, .divisor = 1, .floor = 2 * CONNECTION_LIMIT_POD},
        .accepted = accepted,
        .arg = arg};
    list_init(&p->sources);
    list_init(&p->pending);
    list_init(&p->strangers);
    return loop_fd_start(loop, &p->lfd, fd, EPOLLIN, on_listen, p);
}

void connection_limit_close(struct connection_limit *p)
{
    if (!p->loop)
        return;
    loop_fd_stop(p->loop, &p->lfd);
    loop_timer_stop(p->loop, &p->pump);
    loop_timer_stop(p->loop, &p->unproven);
    list_for_each(pos, tmp, &p->sources)
    {
        struct source *s = list_entry(pos, struct source, node);
        list_for_each(one, next, &s->waiting)
        {
            struct waiting *w = list_entry(one, struct waiting, node);
            close(w->fd);
            drop_waiting(p, s, w);
        }
        drop_source(s);
    }
    close(p->fd);
    p->fd = -1;
}

void connection_limit_fini(struct connection_limit *p)
{
    shares_fini(&p->waiting);
    shares_fini(&p->handshakes);
    shares_fini(&p->unproven_by);
    shares_fini(&p->pods);
    shares_fini(&p->namespaces);
}
