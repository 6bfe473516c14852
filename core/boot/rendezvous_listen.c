/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous_listen: the socket that rank 0 listens on; called only by rendezvous_root.c.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/boot/rendezvous.h"

/* How long to retry while the port is in use: a connecting peer may hold it as its own local port
 * for a moment. */
#define BIND_MS 2000

static int listen_at(int family, const struct sockaddr *address, socklen_t len)
{
    auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, address, len) < 0 || listen(fd, 1024) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Listens on every address: the rendezvous may name an address that this host does not have, such
 * as that of a service in front of it. */
static int listen_everywhere(const struct rendezvous *rv)
{
    uint16_t port = htons((uint16_t)strtol(rv->port, NULL, 10));
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = port};
    int fd = listen_at(AF_INET6, (struct sockaddr *)&in6, sizeof(in6));
    if (fd >= 0 || fd == -EADDRINUSE)
        return fd;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = port};
    return listen_at(AF_INET, (struct sockaddr *)&in, sizeof(in));
}

static int listen_once(const struct rendezvous *rv, struct err *err)
{
    struct addrinfo *list = NULL;
    int fd = rendezvous_resolve(rv, &list, err);
    if (fd != 0)
        return fd < 0 ? fd : -EHOSTUNREACH;
    fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && (fd == -EADDRNOTAVAIL || fd == -EAFNOSUPPORT);
         a = a->ai_next)
        fd = listen_at(a->ai_family, a->ai_addr, a->ai_addrlen);
    freeaddrinfo(list);
    if (fd == -EADDRNOTAVAIL && rv->anywhere)
        fd = listen_everywhere(rv);
    if (fd < 0)
        err_sys(err, -fd, "rank 0 cannot listen at %s:%s%s", rv->host, rv->port,
                fd == -EADDRINUSE ? " (another job, or a second rank 0?)" : "");
    return fd;
}

int rendezvous_listen(const struct rendezvous *rv, uint64_t deadline, int *ret_fd, struct err *err)
{
    uint64_t patience = deadline_in_ms(BIND_MS);
    for (;;) {
        int fd = listen_once(rv, err);
        if (fd >= 0) {
            *ret_fd = fd;
            return 0;
        }
        if (fd != -EADDRINUSE || deadline_passed(patience) || deadline_passed(deadline))
            return fd;
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000L}, NULL);
    }
}
