/* SPDX-License-Identifier: Apache-2.0
 *
 * server: see server.h. libmicrohttpd runs without threads: its epoll descriptor is in our loop,
 * its timeout is a loop timer. A parked request is a suspended connection.
 */
#include "core/member/server.h"

#include <errno.h>
#include <microhttpd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/json/json.h"
#include "core/member/certificate.h"
#include "core/member/connection_limit.h"
#include "core/member/listen.h"
#include "core/member/server_bodies.h"

/* ChaCha20 first: a connection keeps two keys, and those of AES-GCM need 1 KB more for tables. */
#define PRIORITIES                                                                                 \
    "SECURE128:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305:+AES-256-GCM:+AES-128-GCM:"   \
    "%SERVER_PRECEDENCE"

struct server {
    struct server_config config;
    struct MHD_Daemon *daemon;
    struct loop_fd lfd;
    /* Used when this file accepts connections instead of libmicrohttpd. */
    struct connection_limit limit;
    struct server_bodies bodies;
    struct loop_timer mhd_timer;  /* libmicrohttpd's timeout */
    struct loop_timer park_timer; /* ends the wait of the first parked request */
    struct list parked;           /* sorted by until */
    /* With TLS. The one before may be in use by handshakes that began before it was replaced. */
    struct certificate certificate, before;
    char *unix_path; /* removed at the end; NULL for TCP */
    int port;
    bool closing;
    uint64_t refused, parks;
    char *token;
};

/* One request, from its first header to the last byte of its response. */
struct call {
    struct server *server;
    struct MHD_Connection *conn;
    struct server_body body;
    bool parked;
    bool closed;            /* closed by the peer while it was parked */
    uint64_t until;         /* clock: end of the long poll; 0: the request was not handled yet */
    uint64_t group, number; /* number: count of parked requests when this one was parked */
    int who;
    struct loop_fd lfd; /* while it is parked: watches for the peer's end */
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
    loop_fd_stop(call->server->config.loop, &call->lfd);
    MHD_resume_connection(call->conn);
}

static void arm_park_timer(struct server *s);

static void on_park_timer(void *arg)
{
    struct server *s = arg;
    list_for_each(pos, tmp, &s->parked)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (!deadline_passed(call->until))
            break;
        unpark(call);
    }
    turn(s);
    arm_park_timer(s);
}

static void arm_park_timer(struct server *s)
{
    if (list_empty(&s->parked)) {
        loop_timer_stop(s->config.loop, &s->park_timer);
        return;
    }
    uint64_t first = list_first(&s->parked, struct call, node)->until;
    loop_timer_start(s->config.loop, &s->park_timer, (uint64_t)deadline_poll_ms(first),
                     on_park_timer, s);
}

static void turn(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;
    certificate_set_current(&s->certificate);
    MHD_run(s->daemon);
    certificate_set_current(NULL);
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

/* The text after "Bearer ", "" if there is none. */
static const char *bearer(struct MHD_Connection *conn)
{
    const char *value =
        MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *scheme = "Bearer ";
    return value && strncmp(value, scheme, strlen(scheme)) == 0 ? value + strlen(scheme) : "";
}

/* Compares in constant time if the length is right. */
static int check_token(const struct server *s, const char *token, struct err *err)
{
    size_t n = strlen(s->token);
    return strlen(token) == n && sodium_memcmp(token, s->token, n) == 0
               ? 0
               : err_set(err, EACCES, "wrong or missing token");
}

static int admit(struct server *s, struct call *call, const char *url, const char *method,
                 struct err *err)
{
    const char *agent = MHD_lookup_connection_value(call->conn, MHD_GET_ARGUMENT_KIND, "agent");
    const struct server_request request = {
        .method = method, .path = url, .agent = agent ? agent : "", .body = ""};
    struct server_client client = {0};
    if (!s->config.admit) {
        server_body_begin(&s->bodies, &call->body, NULL, -1);
        return check_token(s, bearer(call->conn), err);
    }
    int rc = s->config.admit(s->config.arg, &request, bearer(call->conn), &client, err);
    rc = rc < 0 ? rc : connection_limit_admitted(&s->limit, call->conn, &client, err);
    if (rc < 0)
        return rc;
    server_body_begin(
        &s->bodies, &call->body, &client,
        MHD_get_connection_info(call->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    return 0;
}

/* Answers a request that is not allowed with the reason. */
static enum MHD_Result refuse(struct server *s, struct call *call, int rc, const struct err *err)
{
    s->refused += rc != -EAGAIN;
    return answer_error(call->conn,
                        rc == -EACCES   ? MHD_HTTP_UNAUTHORIZED
                        : rc == -EPERM  ? MHD_HTTP_FORBIDDEN
                        : rc == -ENOENT ? MHD_HTTP_NOT_FOUND
                                        : MHD_HTTP_SERVICE_UNAVAILABLE,
                        err_text(err));
}

/* A decimal argument; 0 when absent or malformed. */
static uint64_t argument(struct MHD_Connection *conn, const char *name)
{
    const char *value = MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

static uint64_t shorter(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void on_closed(void *arg, uint32_t events)
{
    struct call *call = arg;
    struct server *s = call->server;
    const char *agent = MHD_lookup_connection_value(call->conn, MHD_GET_ARGUMENT_KIND, "agent");
    (void)events;
    call->closed = true;
    if (agent)
        s->config.closed(s->config.arg, call->group, agent);
    unpark(call);
    turn(s);
    arm_park_timer(s);
}

static void park(struct server *s, struct call *call, uint64_t group, int who)
{
    const union MHD_ConnectionInfo *info =
        s->config.closed ? MHD_get_connection_info(call->conn, MHD_CONNECTION_INFO_CONNECTION_FD)
                         : NULL;
    call->parked = true;
    call->group = group;
    call->who = who;
    call->number = ++s->parks;
    struct list *after = s->parked.prev;
    while (after != &s->parked && list_entry(after, struct call, node)->until > call->until)
        after = after->prev;
    list_append(after->next, &call->node); /* insert before the next one */
    if (info)
        loop_fd_start(s->config.loop, &call->lfd, info->connect_fd, EPOLLRDHUP, on_closed, call);
    MHD_suspend_connection(call->conn);
    arm_park_timer(s);
}

static enum MHD_Result dispatch(struct server *s, struct call *call, const char *url,
                                const char *method)
{
    struct MHD_Connection *conn = call->conn;
    const char *agent = MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, "agent");
    uint64_t wait_ms = argument(conn, "wait_ms"), wait = 1000 * argument(conn, "wait");
    struct buf *body = &call->body.data;
    server_body_end(&s->bodies, &call->body);
    if (call->body.too_many)
        return answer_error(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "too many bodies at a time");
    if (call->body.too_long)
        return answer_error(conn, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    if (body->len > 0) {
        buf_put_u8(body, 0);
        body->len -= !body->failed;
    }
    if (body->failed)
        return answer_error(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    if (!call->until)
        call->until = deadline_in_ms(shorter(wait_ms ? wait_ms : wait, 1000 * SERVER_WAIT_MAX));
    struct server_request request = {
        .method = method,
        .path = url,
        .agent = agent ? agent : "",
        .after = argument(conn, "after"),
        .body = body->len > 0 ? (const char *)body->data : "",
        .len = body->len,
        .last = deadline_passed(call->until) || s->closing,
    };
    struct server_reply reply = {0};
    if (call->closed)
        return MHD_NO;
    if (s->closing)
        return answer_error(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "the coordinator ends");
    if (s->config.handle(s->config.arg, &request, &reply) == 0)
        return answer(conn, reply.status, reply.body);
    park(s, call, reply.group, reply.who);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct server *s = arg;
    struct call *call = *state;
    struct err err = {0};
    (void)version;
    if (!call) {
        call = calloc(1, sizeof(*call));
        if (!call)
            return MHD_NO;
        call->server = s;
        call->conn = conn;
        list_init(&call->node);
        list_init(&call->body.node);
        *state = call;
        connection_limit_heard(&s->limit, conn);
        int rc = admit(s, call, url, method, &err);
        return rc == 0 ? MHD_YES : refuse(s, call, rc, &err);
    }
    if (*size) { /* also of a refused body: a client reads the response only after its body */
        server_body_take(&s->bodies, &call->body, data, *size);
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
    loop_fd_stop(call->server->config.loop, &call->lfd);
    server_body_fini(&call->server->bodies, &call->body);
    free(call);
    *state = NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_accepted(void *arg)
{
    turn(arg);
}

static struct MHD_Daemon *start_daemon(struct server *s, int fd)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (s->port ? MHD_USE_TLS : 0) |
                     (s->config.handshakes ? MHD_USE_NO_LISTEN_SOCKET : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(intptr_t)certificate_choose},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem limits[5] = {{MHD_OPTION_END, 0, NULL}};
    int n = 0;
    if (s->config.memory)
        limits[n++] =
            (struct MHD_OptionItem){MHD_OPTION_CONNECTION_MEMORY_LIMIT, s->config.memory, NULL};
    if (s->config.connections)
        limits[n++] =
            (struct MHD_OptionItem){MHD_OPTION_CONNECTION_LIMIT, s->config.connections, NULL};
    if (s->config.handshakes)
        limits[n++] = (struct MHD_OptionItem){MHD_OPTION_NOTIFY_CONNECTION,
                                              (intptr_t)connection_limit_notify, &s->limit};
    else
        limits[n++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, fd, NULL};
    limits[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_NOTIFY_COMPLETED,
                            on_completed, s, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_ARRAY,
                            s->port ? tls : none, MHD_OPTION_ARRAY, limits, MHD_OPTION_END);
}

int server_open(struct server **ret, const struct server_config *config, struct err *err)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for a server");
    s->config = *config;
    list_init(&s->parked);
    server_bodies_init(&s->bodies, config->loop,
                       config->body_max ? config->body_max : SERVER_BODY_MAX, config->bodies_max);
    s->token = strdup(config->token ? config->token : "");
    auto_close int fd = config->unix_path
                            ? listen_unix(config->unix_path, err)
                            : listen_tcp(config->address, config->port, &s->port, err);
    if (fd >= 0 && config->unix_path)
        s->unix_path = strdup(config->unix_path);
    int rc = fd < 0 ? fd : 0;
    if (rc == 0 && (!s->token || (config->unix_path && !s->unix_path)))
        rc = err_set(err, ENOMEM, "no memory for a server");
    if (rc == 0 && s->port)
        rc = certificate_read(&s->certificate, config->cert_pem, config->key_pem, err);
    if (rc < 0)
        goto error;
    s->daemon = start_daemon(s, fd);
    if (!s->daemon) {
        rc = err_set(err, EIO, "the HTTP server did not start");
        goto error;
    }
    int listening = take_fd(&fd); /* without a handshake limit libmicrohttpd closes it */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    rc = loop_fd_start(config->loop, &s->lfd, info->epoll_fd, EPOLLIN, on_mhd, s);
    if (rc < 0 && config->handshakes)
        close(listening);
    if (rc == 0 && config->handshakes)
        rc = connection_limit_open(&s->limit, config->loop, listening, config->handshakes,
                                   config->connections, s->daemon, on_accepted, s);
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

int server_use_certificate(struct server *s, const char *cert_pem, const char *key_pem,
                           struct err *err)
{
    struct certificate next;
    int rc = certificate_read(&next, cert_pem, key_pem, err);
    if (rc < 0)
        return rc;
    certificate_fini(&s->before);
    s->before = s->certificate;
    s->certificate = next;
    return 0;
}

int server_port(const struct server *s)
{
    return s->port;
}

uint64_t server_refused(const struct server *s)
{
    return s->refused;
}

uint64_t server_refused_bodies(const struct server *s)
{
    return s->bodies.too_long + s->bodies.late;
}

bool server_is_behind(const struct server *s)
{
    return connection_limit_behind(&s->limit);
}

uint64_t server_parks(const struct server *s)
{
    return s->parks;
}

bool server_wake_some(struct server *s, uint64_t group, int who, uint64_t before, int max)
{
    bool more = false;
    list_for_each(pos, tmp, &s->parked)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (call->group != group || call->number > before || (who && call->who != who))
            continue;
        if (max-- == 0) {
            more = true;
            break;
        }
        unpark(call);
    }
    turn(s);
    arm_park_timer(s);
    return more;
}

void server_wake(struct server *s)
{
    list_for_each(pos, tmp, &s->parked) unpark(list_entry(pos, struct call, node));
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
        connection_limit_close(&s->limit);
        loop_fd_stop(s->config.loop, &s->lfd);
        loop_timer_stop(s->config.loop, &s->mhd_timer);
        loop_timer_stop(s->config.loop, &s->park_timer);
        MHD_stop_daemon(s->daemon);
        connection_limit_fini(&s->limit);
    }
    server_bodies_fini(&s->bodies);
    certificate_fini(&s->certificate);
    certificate_fini(&s->before);
    if (s->unix_path)
        unlink(s->unix_path);
    free(s->unix_path);
    if (s->token)
        sodium_memzero(s->token, strlen(s->token));
    free(s->token);
    free(s);
}
