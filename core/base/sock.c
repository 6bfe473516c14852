/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: see sock.h. Finding this machine's addresses is in sock_interfaces.c.
 */
#include "core/base/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/cleanup.h"

/* Longer than the stall warning, so that a stopped peer with a full window is reported as a stall
 * first. */
#define USER_TIMEOUT_MS 150000
#define KEEP_IDLE_S     10
#define KEEP_INTERVAL_S 3
#define KEEP_PROBES     5

int sock_split(const char *text, char ret_host[SOCK_HOST_MAX], uint16_t *ret_port, struct err *err)
{
    const char *host = text, *colon;
    size_t len;
    if (text[0] == '[') {
        const char *close_bracket = strchr(text, ']');
        host = text + 1;
        len = close_bracket ? (size_t)(close_bracket - host) : 0;
        colon = close_bracket ? close_bracket + 1 : text;
    } else {
        colon = strrchr(text, ':');
        len = colon ? (size_t)(colon - text) : 0;
        if (colon && memchr(text, ':', len))
            len = 0; /* a bare IPv6 address, in which no port can be recognized */
    }
    if (len == 0 || len >= SOCK_HOST_MAX || *colon != ':')
        return err_set(err, EINVAL, "'%s': want host:port or [address]:port", text);
    char *end;
    errno = 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (errno || *end || colon[1] < '0' || colon[1] > '9' || port < 1 || port > UINT16_MAX)
        return err_set(err, EINVAL, "'%s': want a port from 1 to 65535", text);
    memcpy(ret_host, host, len);
    ret_host[len] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

static int bits_of(int family)
{
    return family == AF_INET ? 32 : 128;
}

int sock_parse_ip(const char *text, struct sock_addr *ret, struct err *err)
{
    char host[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    struct sock_addr a = {0};
    if (len < sizeof(host)) {
        memcpy(host, text, len);
        host[len] = '\0';
        if (inet_pton(AF_INET, host, a.ip) == 1)
            a.family = AF_INET;
        else if (inet_pton(AF_INET6, host, a.ip) == 1)
            a.family = AF_INET6;
    }
    if (!a.family)
        return err_set(err, EINVAL, "'%s' is not an IP address", text);
    a.prefix = (uint8_t)bits_of(a.family);
    if (slash) {
        char *end;
        unsigned long prefix = strtoul(slash + 1, &end, 10);
        if (*end || slash[1] < '0' || slash[1] > '9' || prefix > a.prefix)
            return err_set(err, EINVAL, "'%s': want a prefix from 0 to %d", text, a.prefix);
        a.prefix = (uint8_t)prefix;
    }
    *ret = a;
    return 0;
}

const char *sock_text(const struct sock_addr *a, char dst[SOCK_TEXT_MAX])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    inet_ntop(a->family, a->ip, ip, sizeof(ip));
    if (a->port == 0)
        snprintf(dst, SOCK_TEXT_MAX, "%s", ip);
    else
        snprintf(dst, SOCK_TEXT_MAX, a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, a->port);
    return dst;
}

bool sock_same_ip(const struct sock_addr *a, const struct sock_addr *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, (size_t)bits_of(a->family) / 8) == 0;
}

bool sock_is_loopback(const struct sock_addr *a)
{
    static const uint8_t v6[16] = {[15] = 1};
    return a->family == AF_INET ? a->ip[0] == 127 : memcmp(a->ip, v6, sizeof(v6)) == 0;
}

bool sock_in_network(const struct sock_addr *a, const struct sock_addr *b)
{
    if (a->family != b->family)
        return false;
    size_t bytes = a->prefix / 8, bits = a->prefix % 8;
    if (memcmp(a->ip, b->ip, bytes) != 0)
        return false;
    return bits == 0 || ((a->ip[bytes] ^ b->ip[bytes]) >> (8 - bits)) == 0;
}

union any_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t to_kernel(const struct sock_addr *a, union any_addr *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->any.sa_family = a->family;
    if (a->family == AF_INET) {
        ret->v4.sin_port = htons(a->port);
        memcpy(&ret->v4.sin_addr, a->ip, 4);
        return sizeof(ret->v4);
    }
    ret->v6.sin6_port = htons(a->port);
    memcpy(&ret->v6.sin6_addr, a->ip, 16);
    return sizeof(ret->v6);
}

static void set_int(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof(value));
}

void sock_tune(int fd)
{
    static const char cubic[] = "cubic", reno[] = "reno";
    char now[16] = "";
    socklen_t len = sizeof(now) - 1;
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &len) == 0 && strcmp(now, cubic) == 0)
        return;
    /* An ordinary user may choose only what tcp_allowed_congestion_control lists. */
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic, sizeof(cubic) - 1) < 0 &&
        strcmp(now, "bbr") == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

int sock_listen(struct sock_addr *a, int backlog)
{
    union any_addr k;
    socklen_t len = to_kernel(a, &k);
    auto_close int fd = socket(a->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (a->family == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    sock_tune(fd);
    if (bind(fd, &k.any, len) < 0 || listen(fd, backlog) < 0 || getsockname(fd, &k.any, &len) < 0)
        return -errno;
    a->port = ntohs(a->family == AF_INET ? k.v4.sin_port : k.v6.sin6_port);
    return take_fd(&fd);
}

int sock_connect(const struct sock_addr *a)
{
    union any_addr k;
    socklen_t len = to_kernel(a, &k);
    auto_close int fd = socket(a->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    sock_tune(fd);
    if (connect(fd, &k.any, len) < 0 && errno != EINPROGRESS && errno != EINTR)
        return -errno;
    return take_fd(&fd);
}

int sock_connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, 0);
    if (n <= 0)
        return n < 0 && errno != EINTR ? -errno : 1;
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        return -errno;
    return -error;
}
