/* SPDX-License-Identifier: Apache-2.0
 *
 * sock_interfaces: finds the addresses of this machine that others may reach (the second half of
 * sock.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/cleanup.h"
#include "core/base/sock.h"

#define MAX_FOUND 64

struct found {
    char name[IF_NAMESIZE];
    struct sock_addr addr;
    bool taken;
};

static int from_kernel(const struct sockaddr *sa, struct sock_addr *ret)
{
    *ret = (struct sock_addr){0};
    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return -EAFNOSUPPORT;
    ret->family = (uint8_t)sa->sa_family;
    if (sa->sa_family == AF_INET)
        memcpy(ret->ip, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    else
        memcpy(ret->ip, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    return 0;
}

static uint8_t mask_bits(const struct sockaddr *mask, int family)
{
    struct sock_addr m;
    unsigned bits = 0;
    /* getifaddrs() leaves the family of some masks 0. */
    struct sockaddr_storage copy = {0};
    if (!mask)
        return family == AF_INET ? 32 : 128;
    memcpy(&copy, mask,
           family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    copy.ss_family = (sa_family_t)family;
    if (from_kernel((const struct sockaddr *)&copy, &m) < 0)
        return 0;
    for (size_t i = 0; i < (family == AF_INET ? 4 : 16); i++)
        bits += (unsigned)__builtin_popcount(m.ip[i]);
    return (uint8_t)bits;
}

static bool is_link_local(const struct sock_addr *a)
{
    if (a->family == AF_INET)
        return a->ip[0] == 169 && a->ip[1] == 254;
    return a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

static int find_all(struct found *found, size_t *ret_n)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        return -errno;
    size_t n = 0;
    for (struct ifaddrs *i = list; i && n < MAX_FOUND; i = i->ifa_next) {
        struct found *f = &found[n];
        if (!(i->ifa_flags & IFF_UP) || from_kernel(i->ifa_addr, &f->addr) < 0)
            continue;
        f->addr.prefix = mask_bits(i->ifa_netmask, f->addr.family);
        snprintf(f->name, sizeof(f->name), "%s", i->ifa_name);
        f->taken = false;
        n++;
    }
    freeifaddrs(list);
    *ret_n = n;
    return 0;
}

size_t sock_own(struct sock_addr *ret, size_t max)
{
    struct found found[MAX_FOUND];
    size_t n = 0;
    if (find_all(found, &n) < 0)
        return 0;
    if (n > max)
        n = max;
    for (size_t i = 0; i < n; i++)
        ret[i] = found[i].addr;
    return n;
}

/* This machine's source address for packets to sa: a connected datagram socket knows it and sends
 * nothing. */
static int source_toward(const struct sockaddr *sa, socklen_t len, struct sock_addr *ret)
{
    struct sockaddr_storage own = {0};
    socklen_t own_len = sizeof(own);
    auto_close int fd = socket(sa->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, sa, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_len) < 0)
        return -errno;
    return from_kernel((const struct sockaddr *)&own, ret);
}

static int route_toward(const char *host, struct sock_addr *ret)
{
    if (host) {
        struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_ADDRCONFIG}, *list;
        if (getaddrinfo(host, "9", &hints, &list) != 0)
            return -EHOSTUNREACH;
        int rc = source_toward(list->ai_addr, list->ai_addrlen, ret);
        freeaddrinfo(list);
        return rc;
    }
    /* An address of the documentation network (RFC 5737), to find the default route. */
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, "198.51.100.1", &sin.sin_addr);
    return source_toward((const struct sockaddr *)&sin, sizeof(sin), ret);
}

/* Moves the addresses that fit, and were not taken before, to ret. */
static void take(struct found *found, size_t nfound,
                 bool (*fits)(const struct found *, const void *), const void *arg,
                 struct sock_addr *ret, size_t *n)
{
    for (size_t i = 0; i < nfound && *n < SOCK_MAX_ADDRS; i++) {
        if (found[i].taken || !fits(&found[i], arg))
            continue;
        found[i].taken = true;
        ret[(*n)++] = found[i].addr;
    }
}

static bool has_name(const struct found *f, const void *name)
{
    return strcmp(f->name, name) == 0 && !(f->addr.family == AF_INET6 && is_link_local(&f->addr));
}

static bool in_network(const struct found *f, const void *network)
{
    return sock_in_network(network, &f->addr);
}

static bool has_ip(const struct found *f, const void *ip)
{
    return sock_same_ip(ip, &f->addr) && !sock_is_loopback(&f->addr);
}

static bool ordinary(const struct found *f, const void *family)
{
    return f->addr.family == *(const int *)family && !is_link_local(&f->addr) &&
           !sock_is_loopback(&f->addr);
}

static bool loopback(const struct found *f, const void *family)
{
    return f->addr.family == *(const int *)family && sock_is_loopback(&f->addr);
}

static int take_spec(const char *spec, struct found *found, size_t nfound, struct sock_addr *ret,
                     size_t *n, struct err *err)
{
    char word[SOCK_TEXT_MAX];
    for (const char *p = spec; *p;) {
        size_t len = strcspn(p, ",");
        struct sock_addr network;
        if (len >= sizeof(word))
            return err_set(err, EINVAL, "HVD_IFACE=%s: a name is too long", spec);
        memcpy(word, p, len);
        word[len] = '\0';
        p += len + (p[len] == ',');
        if (len == 0)
            continue;
        if (sock_parse_ip(word, &network, NULL) == 0)
            take(found, nfound, in_network, &network, ret, n);
        else
            take(found, nfound, has_name, word, ret, n);
    }
    if (*n == 0)
        return err_set(err, ENODEV,
                       "HVD_IFACE=%s: no interface that is up has such a name or network", spec);
    return 0;
}

int sock_candidates(const char *spec, const char *toward, struct sock_addr *ret, size_t *ret_n,
                    struct err *err)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct found found[MAX_FOUND];
    struct sock_addr list[SOCK_MAX_ADDRS], best = {0};
    size_t nfound = 0, n = 0;
    int rc = find_all(found, &nfound);
    if (rc < 0)
        return err_sys(err, -rc, "cannot list the network interfaces");
    if (spec) {
        rc = take_spec(spec, found, nfound, list, &n, err);
        if (rc < 0)
            return rc;
    } else {
        if (toward && route_toward(toward, &best) == 0)
            take(found, nfound, has_ip, &best, list, &n);
        if (route_toward(NULL, &best) == 0)
            take(found, nfound, has_ip, &best, list, &n);
        for (size_t i = 0; i < 2; i++)
            take(found, nfound, ordinary, &families[i], list, &n);
        for (size_t i = 0; i < 2 && n == 0; i++)
            take(found, nfound, loopback, &families[i], list, &n);
    }
    if (n == 0)
        return err_set(err, ENODEV, "no network interface is up, not even loopback");
    memcpy(ret, list, n * sizeof(list[0]));
    *ret_n = n;
    return 0;
}
