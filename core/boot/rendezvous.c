/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: see rendezvous.h. This file has addresses; rank 0 is in rendezvous_root.c, the other
 * ranks are in rendezvous_peer.c.
 */
#include "core/boot/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int port_parse(const char *text)
{
    char *end;
    errno = 0;
    long port = strtol(text, &end, 10);
    return errno || end == text || *end || port < 1 || port > 65535 ? -EINVAL : (int)port;
}

int rendezvous_parse(const char *text, const char *source, struct rendezvous *rv, struct err *err)
{
    const char *host = text, *colon = strrchr(text, ':');
    size_t host_len = colon ? (size_t)(colon - text) : 0;
    bool bad = !colon || port_parse(colon + 1) < 0;
    if (!bad && host[0] == '[' && host_len > 2 && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    } else if (!bad) {
        bad = memchr(host, ':', host_len) || memchr(host, '[', host_len);
    }
    if (bad || host_len == 0 || host_len >= sizeof(rv->host))
        return err_set(err, EINVAL, "%s=%s: want host:port, such as 10.0.0.1:29400", source, text);
    memcpy(rv->host, host, host_len);
    rv->host[host_len] = '\0';
    int port = port_parse(colon + 1);
    snprintf(rv->port, sizeof(rv->port), "%d", port);
    return 0;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

int rendezvous_resolve(const struct rendezvous *rv, struct addrinfo **ret, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(rv->host, rv->port, &hints, &list);
    if (rc == EAI_MEMORY)
        return err_set(err, ENOMEM, "cannot resolve %s: %s", rv->host, gai_strerror(rc));
    if (rc != 0) {
        err_set(err, EHOSTUNREACH, "cannot resolve %s: %s", rv->host, gai_strerror(rc));
        return 1;
    }
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        if (rv->anywhere || is_loopback(a->ai_addr))
            continue;
        freeaddrinfo(list);
        return err_set(err, EPERM,
                       "the rendezvous %s:%s is not on loopback and there is no key: set "
                       "HVD_KEY_FILE on all ranks, or HVD_INSECURE=1 to do without",
                       rv->host, rv->port);
    }
    *ret = list;
    return 0;
}

int rendezvous_exchange(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                        struct rendezvous_result *result, struct err *err)
{
    int (*exchange)(const struct rendezvous *, const struct buf *, uint64_t,
                    struct rendezvous_result *, struct err *) =
        rv->rank == 0 ? rendezvous_root : rendezvous_peer;
    return exchange(rv, card, deadline, result, err);
}
