/* SPDX-License-Identifier: Apache-2.0
 *
 * serve: the server side of a worker, and the protocol. See workers.h.
 *
 * A connection begins with the token (16 bytes), which the server sends back; if the token is
 * wrong, the server closes the connection. Then exchanges follow: the client sends a u32 length and
 * that many bytes; the server answers with its CLOCK_REALTIME in nanoseconds as u64. Numbers are
 * little endian. Each connection has a thread, at most SERVE_MAX; each read and write has a time
 * limit.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/workers/workers.h"

#define SERVE_MAX 64
#define IO_MS     5000
#define CHUNK     65536
#define LEN_MAX   (16u << 20)
#define POLL_MS   100
#define STOP_MS   (IO_MS + 1000)

struct workers_serve {
    int fd, port;
    uint8_t token[WORKERS_TOKEN];
    pthread_t thread;
    atomic_bool stop;
    atomic_int running; /* how many connection threads run */
};

struct visitor {
    struct workers_serve *serve;
    int fd;
};

static uint64_t io_deadline(void)
{
    return deadline_in_ms(IO_MS);
}

static int read_away(int fd, uint32_t len, uint8_t *chunk)
{
    while (len > 0) {
        uint32_t n = len < CHUNK ? len : CHUNK;
        int rc = fd_read_full(fd, chunk, n, io_deadline());
        if (rc < 0)
            return rc;
        len -= n;
    }
    return 0;
}

static void answer_all(struct workers_serve *s, int fd, uint8_t *chunk)
{
    uint8_t token[WORKERS_TOKEN];
    uint32_t len;
    if (fd_read_full(fd, token, sizeof(token), io_deadline()) < 0 ||
        memcmp(token, s->token, sizeof(token)) != 0 ||
        fd_write_full(fd, token, sizeof(token), io_deadline()) < 0)
        return;
    while (!atomic_load(&s->stop) && fd_read_full(fd, &len, sizeof(len), io_deadline()) == 0 &&
           len <= LEN_MAX && read_away(fd, len, chunk) == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t ns = (uint64_t)now.tv_sec * CLOCK_S + (uint64_t)now.tv_nsec;
        if (fd_write_full(fd, &ns, sizeof(ns), io_deadline()) < 0)
            return;
    }
}

static void *visit(void *arg)
{
    struct visitor *v = arg;
    auto_free uint8_t *chunk = malloc(CHUNK);
    if (chunk)
        answer_all(v->serve, v->fd, chunk);
    close(v->fd);
    atomic_fetch_sub(&v->serve->running, 1);
    free(v);
    return NULL;
}

static void welcome(struct workers_serve *s, int fd)
{
    pthread_t thread;
    int one = 1;
    struct visitor *v = atomic_load(&s->running) < SERVE_MAX ? malloc(sizeof(*v)) : NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (v) {
        *v = (struct visitor){s, fd};
        atomic_fetch_add(&s->running, 1);
        if (pthread_create(&thread, NULL, visit, v) == 0) {
            pthread_detach(thread);
            return;
        }
        atomic_fetch_sub(&s->running, 1);
        free(v);
    }
    close(fd);
}

static void *accept_all(void *arg)
{
    struct workers_serve *s = arg;
    while (!atomic_load(&s->stop)) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        int fd = poll(&p, 1, POLL_MS) > 0 ? accept4(s->fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0)
            welcome(s, fd);
    }
    return NULL;
}

/* Listens on IPv6 and IPv4 if the machine has both. */
static int listen_all(int *ret_port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    socklen_t len = sizeof(six);
    int off = 0;
    auto_close int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0 ||
        bind(fd, (struct sockaddr *)&six, sizeof(six)) < 0) {
        if (fd >= 0)
            close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&four, sizeof(four)) < 0)
            return -errno;
    }
    if (listen(fd, SERVE_MAX) < 0 || getsockname(fd, (struct sockaddr *)&six, &len) < 0)
        return -errno;
    *ret_port =
        ntohs(six.sin6_port); /* sockaddr_in and sockaddr_in6 have the port at the same offset */
    return take_fd(&fd);
}

int workers_serve_start(struct workers_serve **ret, const uint8_t token[WORKERS_TOKEN],
                        struct err *err)
{
    struct workers_serve *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory to listen");
    memcpy(s->token, token, WORKERS_TOKEN);
    s->fd = listen_all(&s->port);
    int rc = s->fd < 0 ? s->fd : -pthread_create(&s->thread, NULL, accept_all, s);
    if (rc < 0) {
        if (s->fd >= 0)
            close(s->fd);
        free(s);
        return err_sys(err, -rc, "listening for the other workers");
    }
    *ret = s;
    return 0;
}

int workers_serve_port(const struct workers_serve *s)
{
    return s->port;
}

void workers_serve_stop(struct workers_serve *s)
{
    if (!s)
        return;
    uint64_t deadline = deadline_in_ms(STOP_MS);
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    close(s->fd);
    while (atomic_load(&s->running) > 0 && !deadline_passed(deadline))
        usleep(1000);
    if (atomic_load(&s->running) == 0)
        free(s);
}

/* ---- the client side ---- */

static int make_address(const char *ip, int port, struct sockaddr_storage *ret, socklen_t *len)
{
    struct sockaddr_in *four = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, ip, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        *len = sizeof(*four);
        return 0;
    }
    if (inet_pton(AF_INET6, ip, &six->sin6_addr) != 1)
        return -EINVAL;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    *len = sizeof(*six);
    return 0;
}

int workers_dial(const char *ip, int port, const uint8_t token[WORKERS_TOKEN], int timeout_ms)
{
    struct sockaddr_storage at;
    socklen_t len;
    uint64_t deadline = deadline_in_ms((uint64_t)timeout_ms);
    uint8_t back[WORKERS_TOKEN];
    int error = 0, one = 1, rc = make_address(ip, port, &at, &len);
    if (rc < 0)
        return rc;
    auto_close int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&at, len) < 0 && errno != EINPROGRESS)
        return -errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, timeout_ms) <= 0)
        return -ETIMEDOUT;
    len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
        return error ? -error : -errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    rc = fd_write_full(fd, token, WORKERS_TOKEN, deadline);
    if (rc == 0)
        rc = fd_read_full(fd, back, sizeof(back), deadline);
    if (rc == 0 && memcmp(back, token, sizeof(back)) != 0)
        rc = -EPROTO;
    return rc < 0 ? rc : take_fd(&fd);
}

int workers_exchange(int fd, const void *bytes, uint32_t len, int64_t *ret_clock_ns)
{
    int64_t clock = 0;
    int rc = fd_write_full(fd, &len, sizeof(len), io_deadline());
    if (rc == 0 && len)
        rc = fd_write_full(fd, bytes, len, io_deadline());
    if (rc == 0)
        rc = fd_read_full(fd, &clock, sizeof(clock), io_deadline());
    if (rc == 0 && ret_clock_ns)
        *ret_clock_ns = clock;
    return rc;
}
