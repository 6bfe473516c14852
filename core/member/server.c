/* SPDX-License-Identifier: Apache-2.0
 *
 * server: see server.h. libmicrohttpd runs without threads: its epoll descriptor is one of our
 * loop's, its time-out a timer. A parked request is a suspended connection.
 */
#include "core/member/server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/json/json.h"

struct server {
    struct server_config config;
    struct MHD_Daemon *daemon;
    struct loop_fd lfd;
    struct loop_timer mhd_timer;  /* libmicrohttpd's own */
    struct loop_timer park_timer; /* the first parked request's end */
    struct list parked;
    struct sockaddr_un un; /* sun_path "" when TCP */
    int port;
    bool closing;
    uint64_t refused;
    char *token;
};

/* One request, from its first header to its last byte out. */
struct call {
    struct server *server;
    struct MHD_Connection *conn;
    struct buf body;
    bool too_long;
    bool parked;
    uint64_t until; /* 0: this request was not parked yet */
    struct list node;
};

static void turn(struct server *s);

static void on_mhd(void *arg, uint32_t events)
{
    (void)events;
    turn(arg);
}

static void on_mhd_timer(void *arg)
{
    turn(arg);
}

static void unpark(struct call *call)
{
    call->parked = false;
    list_remove(&call->node);
    MHD_resume_connection(call->conn);
}

static void arm_park_timer(struct server *s);

static void on_park_timer(void *arg)
{
    struct server *s = arg;
    list_for_each(pos, tmp, &s->parked)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (deadline_passed(call->until))
            unpark(call);
    }
    turn(s);
    arm_park_timer(s);
}

static void arm_park_timer(struct server *s)
{
    uint64_t first = UINT64_MAX;
    list_for_each(pos, tmp, &s->parked)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (call->until < first)
            first = call->until;
    }
    if (first == UINT64_MAX)
        loop_timer_stop(s->config.loop, &s->park_timer);
    else
        loop_timer_start(s->config.loop, &s->park_timer, (uint64_t)deadline_poll_ms(first),
                         on_park_timer, s);
}

static void turn(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(s->daemon);
    if (MHD_get_timeout(s->daemon, &ms) == MHD_YES)
        loop_timer_start(s->config.loop, &s->mhd_timer, ms, on_mhd_timer, s);
    else
        loop_timer_stop(s->config.loop, &s->mhd_timer);
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *conn, int status, char *body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body ? strlen(body) : 0, body ? body : "",
                                        body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response) {
        free(body);
        return MHD_NO;
    }
    if (body)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    enum MHD_Result rc = MHD_queue_response(conn, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result answer_error(struct MHD_Connection *conn, int status, const char *text)
{
    return answer(conn, status, json_error_body(text));
}

/* In constant time for what an honest client sends. */
static bool has_token(const struct server *s, struct MHD_Connection *conn)
{
    const char *value =
        MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *scheme = "Bearer ";
    if (!value || strncmp(value, scheme, strlen(scheme)) != 0)
        return false;
    value += strlen(scheme);
    size_t n = strlen(s->token);
    return strlen(value) == n && sodium_memcmp(value, s->token, n) == 0;
}

/* A decimal argument; absent or odd: 0. */
static uint64_t argument(struct MHD_Connection *conn, const char *name)
{
    const char *value = MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

static uint64_t shorter(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static enum MHD_Result dispatch(struct server *s, struct call *call, const char *url,
                                const char *method)
{
    struct MHD_Connection *conn = call->conn;
    const char *agent = MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, "agent");
    uint64_t wait_ms = argument(conn, "wait_ms"), wait = 1000 * argument(conn, "wait");
    buf_put_u8(&call->body, 0);
    if (call->too_long)
        return answer_error(conn, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    if (call->body.failed)
        return answer_error(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    call->body.len--;
    if (!call->until)
        call->until = deadline_in_ms(shorter(wait_ms ? wait_ms : wait, 1000 * SERVER_WAIT_MAX));
    struct server_request request = {
        .method = method,
        .path = url,
        .agent = agent ? agent : "",
        .after = argument(conn, "after"),
        .body = (const char *)call->body.data,
        .len = call->body.len,
        .last = deadline_passed(call->until) || s->closing,
    };
    struct server_reply reply = {0};
    if (s->closing)
        return answer_error(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "the coordinator ends");
    if (s->config.handle(s->config.arg, &request, &reply) == 0)
        return answer(conn, reply.status, reply.body);
    call->parked = true;
    list_append(&s->parked, &call->node);
    MHD_suspend_connection(conn);
    arm_park_timer(s);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct server *s = arg;
    struct call *call = *state;
    (void)version;
    if (!call) {
        call = calloc(1, sizeof(*call));
        if (!call)
            return MHD_NO;
        call->server = s;
        call->conn = conn;
        list_init(&call->node);
        *state = call;
        if (has_token(s, conn))
            return MHD_YES;
        s->refused++;
        return answer_error(conn, MHD_HTTP_UNAUTHORIZED, "wrong or missing token");
    }
    if (*size) {
        if (call->body.len + *size > SERVER_BODY_MAX)
            call->too_long = true;
        else
            buf_put(&call->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return dispatch(s, call, url, method);
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct call *call = *state;
    (void)arg, (void)conn, (void)why;
    if (!call)
        return;
    list_remove(&call->node);
    buf_fini(&call->body);
    free(call);
    *state = NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int listen_unix(struct server *s, struct err *err)
{
    const char *path = s->config.unix_path;
    if (strlen(path) >= sizeof(s->un.sun_path))
        return err_set(err, ENAMETOOLONG, "%s: too long for a Unix socket", path);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "Unix socket");
    s->un.sun_family = AF_UNIX;
    memcpy(s->un.sun_path, path, strlen(path) + 1);
    mode_t mask = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&s->un, sizeof(s->un));
    int bind_errno = errno;
    umask(mask);
    if (rc < 0) {
        s->un.sun_path[0] = '\0';
        return err_sys(err, bind_errno, "%s", path);
    }
    if (listen(fd, 64) < 0)
        return err_sys(err, errno, "%s", path);
    return take_fd(&fd);
}

static int listen_tcp(struct server *s, struct err *err)
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&sa;
    const char *address = s->config.address;
    socklen_t len;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)s->config.port);
        len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)s->config.port);
        len = sizeof(*v6);
    } else {
        return err_set(err, EINVAL, "%s: not an address", address);
    }
    auto_close int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    /* The port of an hvdrun that was killed, whose connections are not quite gone. */
    int one = 1;
    if (s->config.port)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 1024) < 0)
        return err_sys(err, errno, "listen on %s port %d", address, s->config.port);
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return err_sys(err, errno, "%s", address);
    s->port = ntohs(sa.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    return take_fd(&fd);
}

static struct MHD_Daemon *start_daemon(struct server *s, int fd)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (s->port ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)s->config.cert_pem},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)s->config.key_pem},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, "SECURE128:-VERS-ALL:+VERS-TLS1.3"},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
                            MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                            MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_ARRAY,
                            s->port ? tls : none, MHD_OPTION_END);
}

int server_open(struct server **ret, const struct server_config *config, struct err *err)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for a server");
    s->config = *config;
    list_init(&s->parked);
    s->token = strdup(config->token);
    auto_close int fd = config->unix_path ? listen_unix(s, err) : listen_tcp(s, err);
    int rc = fd < 0 ? fd : 0;
    if (rc == 0 && !s->token)
        rc = err_set(err, ENOMEM, "no memory for a server");
    if (rc < 0)
        goto error;
    s->daemon = start_daemon(s, fd);
    if (!s->daemon) {
        rc = err_set(err, EIO, "the HTTP server did not start");
        goto error;
    }
    take_fd(&fd); /* libmicrohttpd closes it */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    rc = loop_fd_start(config->loop, &s->lfd, info->epoll_fd, EPOLLIN, on_mhd, s);
    if (rc < 0) {
        err_sys(err, -rc, "the HTTP server's epoll descriptor");
        goto error;
    }
    s->config.cert_pem = s->config.key_pem = NULL;
    turn(s);
    *ret = s;
    return 0;
error:
    server_close(s);
    return rc;
}

int server_port(const struct server *s)
{
    return s->port;
}

uint64_t server_refused(const struct server *s)
{
    return s->refused;
}

void server_wake(struct server *s)
{
    list_for_each(pos, tmp, &s->parked)
    {
        unpark(list_entry(pos, struct call, node));
    }
    turn(s);
    arm_park_timer(s);
}

void server_close(struct server *s)
{
    if (!s)
        return;
    if (s->daemon) {
        s->closing = true;
        server_wake(s);
        turn(s);
        loop_fd_stop(s->config.loop, &s->lfd);
        loop_timer_stop(s->config.loop, &s->mhd_timer);
        loop_timer_stop(s->config.loop, &s->park_timer);
        MHD_stop_daemon(s->daemon);
    }
    if (s->un.sun_path[0])
        unlink(s->un.sun_path);
    if (s->token)
        sodium_memzero(s->token, strlen(s->token));
    free(s->token);
    free(s);
}
