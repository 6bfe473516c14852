/* SPDX-License-Identifier: Apache-2.0
 *
 * network: the interfaces of this network namespace by getifaddrs(3) and ioctl(2), and whether
 * their error counters grow during the probe.
 *
 * Runs in a child of its own and only reads. Answer "network": if.<i>.{name flags type mtu speed
 * duplex driver errors errors_grown packets}, those with an address first; addr.<i>.{if ip family
 * scope}; sample_ms. speed in Mb/s; unknown values are left out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/probe.h"

#define INTERFACES 256
#define ADDRESSES  1024
#define SAMPLE_MS  200

/* ---- one interface by ioctl ---- */

static int ask(int sock, unsigned long what, const char *name, void *data, struct ifreq *req)
{
    memset(req, 0, sizeof(*req));
    snprintf(req->ifr_name, sizeof(req->ifr_name), "%.15s", name);
    if (data)
        req->ifr_data = data;
    return ioctl(sock, what, req);
}

static void put_link(struct buf *out, int i, int sock, const char *name)
{
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    struct ifreq req;
    if (ask(sock, SIOCGIFHWADDR, name, NULL, &req) == 0)
        answer_put_at(out, "if", i, "type", "%d", req.ifr_hwaddr.sa_family);
    if (ask(sock, SIOCGIFMTU, name, NULL, &req) == 0)
        answer_put_at(out, "if", i, "mtu", "%d", req.ifr_mtu);
    if (ask(sock, SIOCETHTOOL, name, &driver, &req) == 0)
        answer_put_at(out, "if", i, "driver", "%.31s", driver.driver);
    if (ask(sock, SIOCETHTOOL, name, &link, &req) < 0)
        return;
    uint32_t speed = (uint32_t)link.speed_hi << 16 | link.speed;
    if (speed && speed != (uint32_t)SPEED_UNKNOWN && speed != UINT16_MAX)
        answer_put_at(out, "if", i, "speed", "%u", speed);
    if (link.duplex == DUPLEX_HALF || link.duplex == DUPLEX_FULL)
        answer_put_at(out, "if", i, "duplex", "%s", link.duplex == DUPLEX_HALF ? "half" : "full");
}

/* ---- counters ---- */

struct counters {
    long long packets, errors;
};

/* Parses an interface's line in /proc/net/dev: bytes packets errors drops fifo frame compressed
 * multicast of received packets, then the same of sent ones. */
static bool counters_of(const char *text, const char *name, struct counters *ret)
{
    size_t len = strlen(name);
    for (const char *line = text; *line;) {
        const char *at = line + strspn(line, " ");
        long long in[3], sent[3];
        if (strncmp(at, name, len) == 0 && at[len] == ':' &&
            sscanf(at + len + 1, "%lld %lld %lld %*d %*d %*d %*d %*d %lld %lld %lld", &in[0],
                   &in[1], &in[2], &sent[0], &sent[1], &sent[2]) == 6) {
            *ret = (struct counters){in[1] + sent[1], in[2] + sent[2]};
            return true;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return false;
}

static void put_counters(struct buf *out, int i, const char *name, const char *before,
                         const char *after)
{
    struct counters old, now;
    if (!counters_of(before, name, &old) || !counters_of(after, name, &now))
        return;
    answer_put_at(out, "if", i, "packets", "%lld", now.packets);
    answer_put_at(out, "if", i, "errors", "%lld", now.errors);
    answer_put_at(out, "if", i, "errors_grown", "%lld", now.errors - old.errors);
}

/* ---- addresses ---- */

static const char *scope_of(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        uint32_t ip = ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr);
        return ip >> 24 == 127 ? "host" : ip >> 16 == 0xa9fe ? "link" : "global";
    }
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ip) ? "host" : IN6_IS_ADDR_LINKLOCAL(ip) ? "link" : "global";
}

static bool has_ip(const struct ifaddrs *a)
{
    return a->ifa_addr && (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6);
}

static void put_addresses(struct buf *out, const struct ifaddrs *all)
{
    int n = 0;
    for (const struct ifaddrs *a = all; a && n < ADDRESSES; a = a->ifa_next) {
        char ip[INET6_ADDRSTRLEN];
        if (!has_ip(a))
            continue;
        bool v4 = a->ifa_addr->sa_family == AF_INET;
        const void *bytes = v4 ? (const void *)&((struct sockaddr_in *)a->ifa_addr)->sin_addr
                               : (const void *)&((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr;
        if (!inet_ntop(a->ifa_addr->sa_family, bytes, ip, sizeof(ip)))
            continue;
        answer_put_at(out, "addr", n, "if", "%s", a->ifa_name);
        answer_put_at(out, "addr", n, "ip", "%s", ip);
        answer_put_at(out, "addr", n, "family", "%d", v4 ? 4 : 6);
        answer_put_at(out, "addr", n, "scope", "%s", scope_of(a->ifa_addr));
        n++;
    }
}

/* ---- all of them ---- */

struct names {
    const struct ifaddrs *list[INTERFACES]; /* one entry for each interface name */
    int n;
};

static void add_names(struct names *names, const struct ifaddrs *all, bool with_ip)
{
    for (const struct ifaddrs *a = all; a && names->n < INTERFACES; a = a->ifa_next) {
        bool known = has_ip(a) != with_ip;
        for (int i = 0; i < names->n && !known; i++)
            known = strcmp(names->list[i]->ifa_name, a->ifa_name) == 0;
        if (!known)
            names->list[names->n++] = a;
    }
}

static int run_network(struct buf *out, const struct machine *m, const struct setting *s)
{
    const struct timespec pause = {0, SAMPLE_MS * (long)CLOCK_MS};
    struct ifaddrs *all = NULL;
    struct names names = {.n = 0};
    auto_free char *before = NULL, *after = NULL;
    auto_close int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint64_t start = clock_ns();
    bool counted = machine_read(m, "proc/net/dev", &before, NULL) == 0;
    if (sock < 0)
        sock = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (getifaddrs(&all) < 0)
        return -errno;
    add_names(&names, all, true);
    add_names(&names, all, false);
    if (counted) {
        nanosleep(&pause, NULL);
        counted = machine_read(m, "proc/net/dev", &after, NULL) == 0;
        answer_put(out, "sample_ms", "%d", (int)((clock_ns() - start) / CLOCK_MS));
    }
    for (int i = 0; i < names.n; i++) {
        const char *name = names.list[i]->ifa_name;
        answer_put_at(out, "if", i, "name", "%s", name);
        answer_put_at(out, "if", i, "flags", "%u", names.list[i]->ifa_flags);
        if (sock >= 0)
            put_link(out, i, sock, name);
        if (counted)
            put_counters(out, i, name, before, after);
    }
    put_addresses(out, all);
    freeifaddrs(all);
    return 0;
}

static const struct probe probes[] = {{.name = "network", .level = 1, .run = run_network}};

const struct probe_table probes_network = {probes, sizeof(probes) / sizeof(probes[0])};
