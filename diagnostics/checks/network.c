/* SPDX-License-Identifier: Apache-2.0
 *
 * network: names, address families and the kernel's settings for TCP.
 *
 * The probe "hostname" looks up the machine's own name, "network" lists its addresses. Pure
 * functions, run by doctor.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/nic.h"

static bool is_loopback(const char *ip)
{
    return strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;
}

/* ---- address families ---- */

static void check_families(const struct view *v, struct result *r)
{
    const struct answer *h = machine_answer(v->machine, "hostname");
    const char *family = machine_env(v->machine, "NCCL_SOCKET_FAMILY");
    struct nics nics;
    bool v4 = false, v6 = false, name4 = false, name6 = false;
    if (!nics_read(v, r, &nics))
        return;
    for (int i = 0; i < nics.n; i++) {
        v4 = v4 || (nic_usable(&nics.list[i]) && nics.list[i].v4);
        v6 = v6 || (nic_usable(&nics.list[i]) && nics.list[i].v6);
    }
    for (int i = 0, n = answer_count(h, "addr"); i < n; i++) {
        int f = (int)answer_int_at(h, "addr", i, "family", 0);
        if (is_loopback(answer_str_at(h, "addr", i, "ip", "")))
            continue; /* hostname-resolves reports a loopback address */
        name4 = name4 || f == 4;
        name6 = name6 || f == 6;
    }
    const char *own = v4 && v6 ? "IPv4 and IPv6" : v4 ? "IPv4" : v6 ? "IPv6" : "none";
    result_observed(r, "%s", own);
    if (!v4 && !v6) {
        result_skip(r, "no interface to other machines is up: see nic-up");
    } else if (family && ((strcmp(family, "AF_INET") == 0 && !v4) ||
                          (strcmp(family, "AF_INET6") == 0 && !v6))) {
        result_fail(r, "NCCL_SOCKET_FAMILY=%s, but the addresses here are %s", family, own);
        result_action(r, ACTION_ENVIRONMENT);
        result_fix(r, FIX_DOCKER, "docker run without -e NCCL_SOCKET_FAMILY");
        result_fix(r, FIX_K8S, "remove NCCL_SOCKET_FAMILY from env");
        result_fix(r, FIX_HOST, "unset NCCL_SOCKET_FAMILY");
    } else if ((name4 || name6) && !(name4 && v4) && !(name6 && v6)) {
        result_warn(r, "the host name has only %s addresses, the interfaces only %s",
                    name4 ? "IPv4" : "IPv6", own);
    } else if (!v4) {
        result_info(r, "IPv6 only: hvd, NCCL and gloo work; Open MPI needs a build with "
                       "--enable-ipv6");
    } else {
        result_pass(r, "%s%s", own, v6 ? "" : " only");
    }
}

/* ---- the machine's name ---- */

static bool own_name(const struct view *v, struct result *r, char *dst, size_t size)
{
    int rc = machine_line(v->machine, dst, size, "proc/sys/kernel/hostname");
    if (rc < 0)
        snprintf(dst, size, "%s", answer_str(machine_answer(v->machine, "hostname"), "name", ""));
    if (*dst || rc == 0)
        return true;
    result_skip(r, "the host name cannot be read: needs /proc");
    return false;
}

/* At most a warning: hvd does not use the name. Programs that also use gloo or MPI between machines
 * do. */
static void wrong(const struct view *v, struct result *r, const char *text)
{
    if (job_spans_machines(v->setting) == 0)
        result_info(r, "%s; the job stays on this machine", text);
    else
        result_warn(r, "%s; hvd does not use the name", text);
}

static void check_resolves(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "hostname");
    char name[256], loop[64] = "", foreign[64] = "", good[64] = "", text[RESULT_TEXT];
    if (!own_name(v, r, name, sizeof(name)) || !result_needs(r, a, "the host name's address"))
        return;
    bool know_own = machine_answer(v->machine, "network")->state == ANSWER_OK;
    int n = answer_count(a, "addr");
    for (int i = 0; i < n; i++) {
        const char *ip = answer_str_at(a, "addr", i, "ip", "");
        char *dst = is_loopback(ip) ? loop : know_own && !nics_own(v, ip) ? foreign : good;
        if (!*dst)
            snprintf(dst, 64, "%.63s", ip);
    }
    result_observed(r, "%s", *good ? good : *foreign ? foreign : loop);
    result_expected(r, "an address of this machine, not 127.*");
    if (n == 0) {
        snprintf(text, sizeof(text), "host name %.200s does not resolve: %.150s", name,
                 answer_str(a, "error", "no address"));
        wrong(v, r, text);
    } else if (*good) {
        result_pass(r, "%s is %s", name, good);
    } else if (*foreign) {
        snprintf(text, sizeof(text), "host name %.200s resolves to %s, which no interface here has",
                 name, foreign);
        wrong(v, r, text);
    } else {
        snprintf(text, sizeof(text),
                 "host name %.200s resolves to %s only: gloo and Open MPI of other machines would "
                 "connect to themselves",
                 name, loop);
        wrong(v, r, text);
    }
}

static void check_unique(const struct view *v, struct result *r)
{
    static const char *const shared[] = {"localhost", "localhost.localdomain", "(none)", "ubuntu",
                                         "debian",    "raspberrypi",           ""};
    char name[256];
    if (!own_name(v, r, name, sizeof(name)))
        return;
    result_observed(r, "%s", name);
    result_expected(r, "a name that no other machine has");
    for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
        if (strcmp(name, shared[i]) != 0)
            continue;
        result_warn(
            r,
            "host name \"%s\": it is a default that several machines may have; hvd does not "
            "use it",
            name);
        return;
    }
    const char *id = machine_env(v->machine, "NCCL_HOSTID");
    result_pass(r, "%s%s%s (--level 3 compares it with the other workers)", name,
                id ? ", NCCL_HOSTID=" : "", id ? id : "");
}

/* ---- the kernel's settings ---- */

/* How many ports of ip_local_reserved_ports ("8080,9000-9010") are within low..high. */
static int64_t reserved_ports(const char *list, int64_t low, int64_t high)
{
    int64_t n = 0;
    for (const char *p = list; *p;) {
        char *end;
        int64_t a = strtoll(p, &end, 10), b = a;
        if (end == p)
            break;
        if (*end == '-')
            b = strtoll(end + 1, &end, 10);
        a = a < low ? low : a;
        b = b > high ? high : b;
        n += b >= a ? b - a + 1 : 0;
        p = end + strspn(end, ", ");
        if (p == end && *p)
            break;
    }
    return n;
}

static void check_ports(const struct view *v, struct result *r)
{
    char line[64], reserved[512];
    int64_t low, high;
    int rc = machine_line(v->machine, line, sizeof(line), "proc/sys/net/ipv4/ip_local_port_range");
    if (rc < 0) {
        result_skip(r, "/proc/sys/net/ipv4/ip_local_port_range: %s", strerror(-rc));
        return;
    }
    if (sscanf(line, "%" SCNd64 " %" SCNd64, &low, &high) != 2 || low < 0 || high > 65535) {
        result_skip(r, "/proc/sys/net/ipv4/ip_local_port_range has no two ports: \"%s\"", line);
        return;
    }
    machine_line(v->machine, reserved, sizeof(reserved),
                 "proc/sys/net/ipv4/ip_local_reserved_ports");
    int64_t n = high < low ? 0 : high - low + 1 - reserved_ports(reserved, low, high);
    result_observed(r, "%" PRId64, n);
    result_expected(r, ">= 1000");
    if (n < 1000)
        result_warn(r,
                    "only %" PRId64
                    " ephemeral ports (outgoing connections, listeners on port 0): %" PRId64
                    "-%" PRId64,
                    n, low, high);
    else
        result_pass(r, "%" PRId64 " ports: %" PRId64 "-%" PRId64, n, low, high);
}

static void check_conntrack(const struct view *v, struct result *r)
{
    int64_t count, max;
    int rc = machine_int(v->machine, &max, "proc/sys/net/netfilter/nf_conntrack_max");
    int rc2 = machine_int(v->machine, &count, "proc/sys/net/netfilter/nf_conntrack_count");
    if (rc == -ENOENT || rc2 == -ENOENT) {
        if (machine_exists(v->machine, "proc/sys/net"))
            result_pass(r, "no connection tracking in this network namespace");
        else
            result_skip(r, "/proc/sys/net is not there: needs /proc");
        return;
    }
    if (rc < 0 || rc2 < 0 || max <= 0) {
        result_skip(r, "/proc/sys/net/netfilter/nf_conntrack_max: %s",
                    rc < 0    ? strerror(-rc)
                    : rc2 < 0 ? strerror(-rc2)
                              : "not a number above 0");
        return;
    }
    double part = 100.0 * (double)count / (double)max;
    result_observed(r, "%" PRId64, count);
    result_expected(r, "<= %" PRId64, max / 10 * 9);
    if (part > 90)
        result_fail(r,
                    "connection tracking: %" PRId64 " of %" PRId64 " entries (%.0f %%): "
                    "new connections will soon be dropped",
                    count, max, part);
    else if (part > 75)
        result_warn(r, "connection tracking: %" PRId64 " of %" PRId64 " entries (%.0f %%)", count,
                    max, part);
    else
        result_pass(r, "connection tracking: %" PRId64 " of %" PRId64 " entries (%.0f %%)", count,
                    max, part);
}

static void check_congestion(const struct view *v, struct result *r)
{
    char name[64], available[256];
    int rc =
        machine_line(v->machine, name, sizeof(name), "proc/sys/net/ipv4/tcp_congestion_control");
    if (rc < 0) {
        result_skip(r, "/proc/sys/net/ipv4/tcp_congestion_control: %s", strerror(-rc));
        return;
    }
    machine_line(v->machine, available, sizeof(available),
                 "proc/sys/net/ipv4/tcp_allowed_congestion_control");
    result_observed(r, "%s", name);
    result_expected(r, "cubic");
    if (strncmp(name, "bbr", 3) != 0)
        result_pass(r, "%s", name);
    else if (strstr(available, "cubic"))
        result_info(r, "%s; hvd asks for cubic on its own connections, NCCL and gloo do not", name);
    else
        result_info(r, "%s, and programs may not choose cubic (%s)", name,
                    *available ? available : "no list");
}

#define IP_SYSCTL "https://docs.kernel.org/networking/ip-sysctl.html"

static const struct check rows[] = {
    {.id = "ipv6-only",
     .code = "HVD8004",
     .group = GROUP_NETWORK,
     .level = 1,
     .probes = {"network", "hostname"},
     .run = check_families,
     .title = "one address family for all",
     .why = "Where one side offers IPv4 and the other IPv6, connecting ends with \"Address family "
            "not supported by protocol\" or \"Network is unreachable\".",
     .fix = {"docker run --sysctl net.ipv6.conf.all.disable_ipv6=1 ... (IPv4 only)",
             "env: [{name: NCCL_SOCKET_FAMILY, value: AF_INET}] (or AF_INET6) on all workers",
             "give the host name an address of the family that the interfaces have: /etc/hosts"},
     .action = ACTION_NETWORK,
     .explain = "Families of the addresses of interfaces that are up (no link-local ones), those "
                "that the own host name resolves to, and NCCL_SOCKET_FAMILY. Whether all workers "
                "have a family in common is tested between them (--level 3).",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"
              "env.html#nccl-socket-family",
              "https://docs.open-mpi.org/en/main/installing-open-mpi/configure-cli-options/"
              "networking.html"}},
    {.id = "hostname-resolves",
     .code = "HVD8005",
     .group = GROUP_NETWORK,
     .level = 1,
     .probes = {"hostname", "network"},
     .run = check_resolves,
     .title = "this machine's host name resolves",
     .why = "gloo and Open MPI hand out the address that the host name resolves to: with 127.* "
            "every other machine connects to itself; without any they stop at start.",
     .fix = {"docker run --network=host ... or --hostname NAME --add-host NAME:ADDRESS",
             "without hostNetwork the pod's /etc/hosts has its name; with it: dnsPolicy: "
             "ClusterFirstWithHostNet, and the node's name in DNS",
             "put \"ADDRESS NAME\" of a real interface into /etc/hosts, above 127.0.1.1; or export "
             "GLOO_SOCKET_IFNAME=eth0"},
     .action = ACTION_NETWORK,
     .explain = "getaddrinfo(gethostname()) in a child process, since a dead name server holds it "
                "for 10 s. Debian and Ubuntu map the host name to 127.0.1.1: fine for a job on one "
                "machine, wrong on several for programs that use gloo or Open MPI. The "
                "check warns at most: hvd itself does not use the name, it takes addresses from "
                "the interfaces.",
     .refs = {"https://www.debian.org/doc/manuals/debian-reference/ch05.en.html",
              "https://pytorch.org/docs/stable/distributed.html"}},
    {.id = "hostname-unique",
     .code = "HVD8006",
     .group = GROUP_NETWORK,
     .level = 1,
     .run = check_unique,
     .title = "the host name is unique",
     .why = "MPI and NCCL treat ranks with one host name as ranks of one machine, and try shared "
            "memory and CUDA IPC between machines (\"failed to open CUDA IPC handle\").",
     .fix = {"docker run --hostname $(hostname)-trainer ...",
             "no hostNetwork for two workers on one node; a StatefulSet or HvdJob names its pods",
             "hostnamectl set-hostname NAME"},
     .action = ACTION_NETWORK,
     .explain = "Warns of names that many machines have: localhost and the defaults of "
                "installers. hvd itself does not use the name. Equal names among the workers are "
                "found by comparing them (--level 3). "
                "NCCL also mixes in /proc/sys/kernel/random/boot_id; NCCL_HOSTID replaces both.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid"}},
    {.id = "port-range",
     .code = "HVD8007",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/proc/sys/net",
     .run = check_ports,
     .title = "ephemeral ports",
     .why = "Every connection and every listener on port 0 takes one of these ports; when none is "
            "left, connecting fails with \"Cannot assign requested address\".",
     .fix = {"docker run --sysctl net.ipv4.ip_local_port_range=\"32768 60999\" ...",
             "securityContext: {sysctls: [{name: net.ipv4.ip_local_port_range, value: \"32768 "
             "60999\"}]}",
             "sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\""},
     .action = ACTION_HOST,
     .explain = "/proc/sys/net/ipv4/ip_local_port_range less ip_local_reserved_ports. Fewer than "
                "1000 warn (own threshold). The kernel's default has 28232.",
     .refs = {IP_SYSCTL}},
    {.id = "conntrack",
     .code = "HVD8008",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/proc/sys/net",
     .run = check_conntrack,
     .title = "connection tracking has room",
     .why = "A full table drops the first packet of every new connection: ranks time out while "
            "connecting, and nothing but the kernel log says why.",
     .fix = {NULL,
             "on the node: sysctl -w net.netfilter.nf_conntrack_max=1048576 (kube-proxy: "
             "conntrack.maxPerCore)",
             "sysctl -w net.netfilter.nf_conntrack_max=1048576"},
     .action = ACTION_HOST,
     .explain = "nf_conntrack_count / nf_conntrack_max: above 90 % fails, above 75 % warns (own "
                "thresholds). The kernel log says \"nf_conntrack: table full, dropping packet\".",
     .refs = {"https://docs.kernel.org/networking/nf_conntrack-sysctl.html"}},
    {.id = "tcp-congestion",
     .code = "HVD8009",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/proc/sys/net",
     .run = check_congestion,
     .title = "TCP congestion control",
     .why = "bbr paces by timers and is made for long paths: within a rack it reached a half to a "
            "third of cubic's bandwidth in our measurements.",
     .fix = {"docker run --sysctl net.ipv4.tcp_congestion_control=cubic ...",
             "securityContext: {sysctls: [{name: net.ipv4.tcp_congestion_control, value: cubic}]} "
             "(the kubelet has to allow it)",
             "sysctl -w net.ipv4.tcp_congestion_control=cubic"},
     .action = ACTION_HOST,
     .explain = "The default for new connections. bbr is a note, not a fault: on a long path it "
                "may be right.",
     .refs = {IP_SYSCTL}},
};

const struct check_table checks_network = {rows, sizeof(rows) / sizeof(*rows)};
