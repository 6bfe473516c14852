/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: see pages.h. As in server.c, libmicrohttpd runs without threads: its epoll descriptor is
 * in our loop, its timeout is a loop timer. Its own timeout counts from the last byte received.
 * Ours counts from the start of the connection, so that a client which sends one byte now and then
 * is disconnected too.
 */
#include "core/member/pages.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/sock.h"

#define MEMORY_LIMIT 16384 /* bytes per connection, which hold the request's header */

/* One connection. Its node is in pages.open, oldest first. */
struct visit {
    struct MHD_Connection *conn;
    int fd;
    uint64_t until;
    struct list node;
};

struct pages {
    struct pages_config config;
    struct MHD_Daemon *daemon;
    struct loop_fd lfd;
    struct loop_timer mhd_timer, visit_timer;
    struct list open;
    bool closed; /* a connection was closed in this turn */
    int port;
};

static void turn(struct pages *p);

static void on_mhd(void *arg, uint32_t events)
{
    (void)events;
    turn(arg);
}

static void on_mhd_timer(void *arg)
{
    turn(arg);
}

static void on_visit_timer(void *arg)
{
    struct pages *p = arg;
    list_for_each(pos, tmp, &p->open)
    {
        struct visit *v = list_entry(pos, struct visit, node);
        if (deadline_passed(v->until))
            shutdown(v->fd, SHUT_RDWR);
    }
    turn(p);
}

/* Sets the timer to the deadline of the oldest connection, or to 100 ms if that was shut down and
 * is not closed yet. */
static void arm_visit_timer(struct pages *p)
{
    if (list_empty(&p->open)) {
        loop_timer_stop(p->config.loop, &p->visit_timer);
        return;
    }
    int ms = deadline_poll_ms(list_entry(p->open.next, struct visit, node)->until);
    loop_timer_start(p->config.loop, &p->visit_timer, (uint64_t)(ms > 0 ? ms : 100), on_visit_timer,
                     p);
}

static void turn(struct pages *p)
{
    MHD_UNSIGNED_LONG_LONG ms;
    /* At the connection limit, libmicrohttpd accepts again only in the MHD_run() after a connection
     * was closed. */
    do {
        p->closed = false;
        MHD_run(p->daemon);
    } while (p->closed);
    if (MHD_get_timeout(p->daemon, &ms) == MHD_YES)
        loop_timer_start(p->config.loop, &p->mhd_timer, ms, on_mhd_timer, p);
    else
        loop_timer_stop(p->config.loop, &p->mhd_timer);
    arm_visit_timer(p);
}

static void on_connection(void *arg, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct pages *p = arg;
    struct visit *v = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (v)
            list_remove(&v->node);
        free(v);
        *context = NULL;
        p->closed = true;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    v = calloc(1, sizeof(*v));
    if (!v || !info) {
        free(v);
        return;
    }
    *v = (struct visit){
        .conn = conn, .fd = info->connect_fd, .until = deadline_in_ms(1000 * PAGES_SECONDS)};
    list_append(&p->open, &v->node);
    *context = v;
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *conn, int status, const char *type,
                             const void *body, size_t len)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result rc = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result say(struct MHD_Connection *conn, int status, const char *text)
{
    return reply(conn, status, PAGES_TEXT, text, strlen(text));
}

static enum MHD_Result show(const struct pages *p, const struct page *page,
                            struct MHD_Connection *conn)
{
    struct buf body = {0};
    int status = page->fill(p->config.arg, &body);
    enum MHD_Result rc = body.failed ? say(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n")
                                     : reply(conn, status, page->type, body.data, body.len);
    buf_fini(&body);
    return rc;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    const struct pages *p = arg;
    (void)version, (void)data, (void)state;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return say(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
    if (*size) /* a request with a body: refused */
        return MHD_NO;
    for (size_t i = 0; i < p->config.n; i++) {
        if (strcmp(p->config.pages[i].path, path) == 0)
            return show(p, &p->config.pages[i], conn);
    }
    return say(conn, MHD_HTTP_NOT_FOUND, "no such page\n");
}

/* ---- life ----------------------------------------------------------------------------------- */

static int listen_at(int family, const struct sock_addr *at, int port, int *ret_port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.any.sa_family = (sa_family_t)family};
    socklen_t len = family == AF_INET ? sizeof(a.v4) : sizeof(a.v6);
    const int on = 1, off = 0;
    if (family == AF_INET) {
        a.v4.sin_port = htons((uint16_t)port);
        memcpy(&a.v4.sin_addr, at->ip, 4);
    } else {
        a.v6.sin6_port = htons((uint16_t)port);
        memcpy(&a.v6.sin6_addr, at->ip, 16);
    }
    auto_close int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, &a.any, len) < 0 || listen(fd, 64) < 0 || getsockname(fd, &a.any, &len) < 0)
        return -errno;
    *ret_port = ntohs(family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return take_fd(&fd);
}

static int listen_tcp(struct pages *p, struct err *err)
{
    struct sock_addr at = {0};
    const char *address = p->config.address;
    int fd;
    if (address && *address) {
        int rc = sock_parse_ip(address, &at, err);
        if (rc < 0)
            return rc;
        fd = listen_at(at.family, &at, p->config.port, &p->port);
    } else {
        fd = listen_at(AF_INET6, &at, p->config.port, &p->port);
        if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) /* the machine has no IPv6 */
            fd = listen_at(AF_INET, &at, p->config.port, &p->port);
    }
    return fd < 0 ? err_sys(err, -fd, "listen on %s port %d",
                            address && *address ? address : "all addresses", p->config.port)
                  : fd;
}

int pages_healthz(void *arg, struct buf *out)
{
    (void)arg;
    buf_put(out, "ok\n", 3);
    return 200;
}

int pages_open(struct pages **ret, const struct pages_config *config, struct err *err)
{
    struct pages *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ENOMEM, "no memory for pages");
    p->config = *config;
    list_init(&p->open);
    auto_close int fd = listen_tcp(p, err);
    int rc = fd < 0 ? fd : 0;
    if (rc < 0)
        goto error;
    p->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, p, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, p, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)PAGES_SECONDS, MHD_OPTION_CONNECTION_LIMIT, (unsigned)PAGES_CONNECTIONS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_LIMIT, MHD_OPTION_END);
    if (!p->daemon) {
        rc = err_set(err, EIO, "the HTTP server did not start");
        goto error;
    }
    take_fd(&fd); /* from here on libmicrohttpd owns and closes the socket */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    rc = loop_fd_start(config->loop, &p->lfd, info->epoll_fd, EPOLLIN, on_mhd, p);
    if (rc < 0) {
        err_sys(err, -rc, "the HTTP server's epoll descriptor");
        goto error;
    }
    turn(p);
    *ret = p;
    return 0;
error:
    pages_close(p);
    return rc;
}

int pages_parse(const char *text, char *address, size_t size, int *port, struct err *err)
{
    const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    struct sock_addr at;
    char *end;
    long number = strtol(digits, &end, 10);
    if (end == digits || *end || *digits < '0' || *digits > '9' || number > 65535)
        return err_set(err, EINVAL, "\"%s\": want [ADDRESS:]PORT", text);
    bool brackets = n > 1 && text[0] == '[' && text[n - 1] == ']';
    const char *from = brackets ? text + 1 : text;
    n -= brackets ? 2 : 0;
    if (n >= size || (brackets && n == 0))
        return err_set(err, EINVAL, "\"%s\": want [ADDRESS:]PORT", text);
    memcpy(address, from, n);
    address[n] = '\0';
    *port = (int)number;
    return n ? sock_parse_ip(address, &at, err) : 0;
}

int pages_port(const struct pages *p)
{
    return p->port;
}

void pages_close(struct pages *p)
{
    if (!p)
        return;
    loop_fd_stop(p->config.loop, &p->lfd);
    if (p->daemon)
        MHD_stop_daemon(p->daemon);
    loop_timer_stop(p->config.loop, &p->mhd_timer);
    loop_timer_stop(p->config.loop, &p->visit_timer);
    free(p);
}
