/* SPDX-License-Identifier: Apache-2.0
 *
 * web: see web.h.
 */
#include "operator/metrics/web.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/cleanup.h"

#define CONNECTIONS_MAX 64u
#define FROM_ONE_MAX    32u /* per client address, so that browsers leave room for probes */
#define IDLE_S          30u
#define MEMORY          8192u  /* bytes per connection: headers with a browser's cookies fit */
#define BLOCK           16384u /* bytes of a body sent at a time */

struct web {
    struct web_config config;
    struct MHD_Daemon *daemon;
    struct loop_fd lfd;
    struct loop_timer timer;
    int port;
};

static void turn(struct web *w);

static void on_ready(void *arg, uint32_t events)
{
    (void)events;
    turn(arg);
}

static void on_timer(void *arg)
{
    turn(arg);
}

static void turn(struct web *w)
{
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(w->daemon);
    if (MHD_get_timeout(w->daemon, &ms) == MHD_YES)
        loop_timer_start(w->config.loop, &w->timer, ms, on_timer, w);
    else
        loop_timer_stop(w->config.loop, &w->timer);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Security headers: load nothing from other origins, store nothing, no frames. */
static const char *const careful[][2] = {
    {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
     "require-trusted-types-for 'script'; trusted-types 'none'"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
};

static enum MHD_Result answer(struct MHD_Connection *conn, int status, const char *type,
                              const void *body, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result rc = MHD_queue_response(conn, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result answer_text(struct MHD_Connection *conn, int status, const char *text)
{
    return answer(conn, status, "text/plain", text, strlen(text));
}

static bool is_local(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *sa = info ? info->client_addr : NULL;
    struct in6_addr six;
    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return false;
    if (sa->sa_family == AF_INET)
        return ((const struct sockaddr_in *)sa)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    six = ((const struct sockaddr_in6 *)sa)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&six) ||
           (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr32[3] == htonl(INADDR_LOOPBACK));
}

static const char *header(struct MHD_Connection *conn, const char *name)
{
    const char *value = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
    return value ? value : "";
}

static ssize_t read_body(void *arg, uint64_t at, char *dst, size_t size)
{
    const struct web_body *body = arg;
    size_t left = at < body->len ? body->len - (size_t)at : 0;
    size_t n = left < size ? left : size;
    memcpy(dst, (const char *)body->data + (left ? at : 0), n);
    return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void drop_body(void *arg)
{
    web_body_unref(arg);
}

/* 304 if the client has this version already. */
static enum MHD_Result answer_body(struct MHD_Connection *conn, const struct web_request *request,
                                   struct web_answer *a)
{
    bool known = a->status == MHD_HTTP_OK && strcmp(request->etag, a->body->etag) == 0;
    unsigned status = known ? MHD_HTTP_NOT_MODIFIED : (unsigned)a->status;
    struct MHD_Response *response =
        known
            ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
            : MHD_create_response_from_callback(a->body->len, BLOCK, read_body, a->body, drop_body);
    if (known || !response)
        web_body_unref(a->body);
    if (!response)
        return MHD_NO;
    for (size_t i = 0; i < sizeof(careful) / sizeof(careful[0]); i++)
        MHD_add_response_header(response, careful[i][0], careful[i][1]);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    if (a->status == MHD_HTTP_OK)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, a->body->etag);
    if (a->busy)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    enum MHD_Result rc = MHD_queue_response(conn, status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result answer_other(struct web *w, struct MHD_Connection *conn, const char *url)
{
    const struct web_request request = {.path = url,
                                        .host = header(conn, MHD_HTTP_HEADER_HOST),
                                        .etag = header(conn, MHD_HTTP_HEADER_IF_NONE_MATCH),
                                        .local = is_local(conn)};
    struct web_answer a = {0};
    if (!w->config.other)
        return answer_text(conn, MHD_HTTP_NOT_FOUND, "no such page\n");
    w->config.other(w->config.arg, &request, &a);
    return a.body ? answer_body(conn, &request, &a)
                  : answer_text(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct web *w = arg;
    (void)version, (void)data;
    if (!*state) { /* first call, with the headers only; libmicrohttpd calls again */
        *state = w;
        return MHD_YES;
    }
    if (*size) {
        *size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_text(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
    for (int i = 0; i < w->config.n; i++) {
        const struct web_page *page = &w->config.pages[i];
        struct buf body = {0};
        if (strcmp(page->path, url) != 0)
            continue;
        int status = page->write(w->config.arg, &body);
        enum MHD_Result rc = body.failed
                                 ? answer_text(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n")
                                 : answer(conn, status, page->type, body.data, body.len);
        buf_fini(&body);
        return rc;
    }
    return answer_other(w, conn, url);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Parses "address:port". No address: IPv6's any address, which also accepts IPv4. */
static int read_address(const char *text, struct sockaddr_storage *sa, socklen_t *len,
                        struct err *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)sa;
    char host[64];
    const char *colon = strrchr(text, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || colon[1] < '0' || colon[1] > '9' || *end || port > 65535 || n >= sizeof(host))
        return err_set(err, EINVAL, "%.100s: want ADDRESS:PORT", text);
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(brackets ? n - 2 : n), text + brackets);
    *sa = (struct sockaddr_storage){0};
    if (!brackets && inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *len = sizeof(*v4);
        return 0;
    }
    if (n > 0 && (!brackets || inet_pton(AF_INET6, host, &v6->sin6_addr) != 1))
        return err_set(err, EINVAL, "%.100s: want the address as a number, IPv6 in brackets", text);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *len = sizeof(*v6);
    return 0;
}

/* any: falls back to IPv4's any address on a machine without IPv6. */
static int open_socket(struct sockaddr_storage *sa, socklen_t *len, bool any)
{
    int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 || !any)
        return fd;
    in_port_t port = ((struct sockaddr_in6 *)sa)->sin6_port;
    struct sockaddr_in *v4 = (struct sockaddr_in *)sa;
    *sa = (struct sockaddr_storage){0};
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    *len = sizeof(*v4);
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int listen_at(struct web *w, struct err *err)
{
    struct sockaddr_storage sa;
    socklen_t len;
    const char *address = w->config.address;
    bool any = address[0] == ':';
    int one = 1, zero = 0, rc = read_address(address, &sa, &len, err);
    if (rc < 0)
        return rc;
    auto_close int fd = open_socket(&sa, &len, any);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (any && sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 64) < 0)
        return err_sys(err, errno, "listen on %s", address);
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return err_sys(err, errno, "%s", address);
    /* sin_port and sin6_port are at the same offset. */
    w->port = ntohs(((struct sockaddr_in *)&sa)->sin_port);
    return take_fd(&fd);
}

int web_open(struct web **ret, const struct web_config *config, struct err *err)
{
    struct web *w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(err, ENOMEM, "no memory for an HTTP server");
    w->config = *config;
    auto_close int fd = listen_at(w, err);
    int rc = fd < 0 ? fd : 0;
    if (rc < 0)
        goto error;
    w->daemon =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, w, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_LIMIT,
                         CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT, FROM_ONE_MAX,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_END);
    if (!w->daemon) {
        rc = err_set(err, EIO, "the HTTP server did not start");
        goto error;
    }
    take_fd(&fd); /* libmicrohttpd closes it */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    rc = loop_fd_start(config->loop, &w->lfd, info->epoll_fd, EPOLLIN, on_ready, w);
    if (rc < 0) {
        err_sys(err, -rc, "the HTTP server's epoll descriptor");
        goto error;
    }
    turn(w);
    *ret = w;
    return 0;
error:
    web_close(w);
    return rc;
}

int web_port(const struct web *w)
{
    return w->port;
}

void web_close(struct web *w)
{
    if (!w)
        return;
    loop_fd_stop(w->config.loop, &w->lfd);
    loop_timer_stop(w->config.loop, &w->timer);
    if (w->daemon)
        MHD_stop_daemon(w->daemon);
    free(w);
}
