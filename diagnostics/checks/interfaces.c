/* SPDX-License-Identifier: Apache-2.0
 *
 * interfaces: does this machine have a network interface to other machines, and does it work well?
 *
 * The probe "network" lists interfaces, addresses and counters. Pure functions, run by doctor.c.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/base/sock.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/nic.h"

#define SLOW_MBITS 100

struct wanted {
    const struct view *view;
    const struct nics *nics;
    const struct nic *found;
    bool exact_only; /* words are names, never networks */
};

#define FLAPS 20 /* changes of a link that are too many */

static bool in_network(const struct wanted *w, const struct nic *nic, const struct sock_addr *net)
{
    const struct answer *a = machine_answer(w->view->machine, "network");
    int n = answer_count(a, "addr");
    for (int i = 0; i < n; i++) {
        struct sock_addr own;
        if (strcmp(answer_str_at(a, "addr", i, "if", ""), nic->name) == 0 &&
            sock_parse_ip(answer_str_at(a, "addr", i, "ip", ""), &own, NULL) == 0 &&
            sock_in_network(net, &own))
            return true;
    }
    return false;
}

static bool is_wanted(const char *word, void *arg)
{
    struct wanted *w = arg;
    struct sock_addr net;
    bool network = !w->exact_only && sock_parse_ip(word, &net, NULL) == 0;
    for (int i = 0; i < w->nics->n; i++) {
        const struct nic *nic = &w->nics->list[i];
        if (!nic->up || !nic->has_addr)
            continue;
        if (network ? in_network(w, nic, &net) : strcmp(nic->name, word) == 0) {
            w->found = nic;
            return true;
        }
    }
    return false;
}

/* Sets the result and returns true when a variable names interfaces and none of them exists
 * here. */
static bool names_none(const struct view *v, const struct nics *nics, const char *variable,
                       const char *value, bool exact_only, struct result *r)
{
    struct wanted w = {.view = v, .nics = nics, .exact_only = exact_only};
    char names[256];
    if (!value || !*value || each_word(value, is_wanted, &w))
        return false;
    nics_names(nics, nic_has_address, names, sizeof(names));
    result_fail(r, "%s=%s names no interface that is up with an address; there are: %s", variable,
                value, *names ? names : "none but loopback");
    result_observed(r, "%s", *names ? names : "lo");
    result_expected(r, "%s", value);
    result_action(r, ACTION_ENVIRONMENT);
    if (!*names)
        snprintf(names, sizeof(names), "lo");
    result_fix(r, FIX_DOCKER, "docker run -e %s=NAME ..., one of: %s", variable, names);
    result_fix(r, FIX_K8S, "env: [{name: %s, value: NAME}], one of: %s", variable, names);
    result_fix(r, FIX_HOST, "unset %s, or set it to one of: %s", variable, names);
    return true;
}

struct found {
    char good[300], dead[200], slow[200]; /* lists of names with their figures */
};

static void look_up(const struct nics *nics, struct found *f)
{
    for (int i = 0; i < nics->n; i++) {
        const struct nic *n = &nics->list[i];
        char speed[32] = "";
        if (n->speed > 0 && !n->made)
            snprintf(speed, sizeof(speed), " (%.4g Gb/s)", n->speed / 1000.0);
        if (nic_usable(n))
            check_append(f->good, sizeof(f->good), ", ", "%s %s%s", n->name, n->ip, speed);
        else if (n->up && !n->running && !n->loopback && !n->made && (n->v4 || n->v6))
            check_append(f->dead, sizeof(f->dead), ", ", "%s %s", n->name, n->ip);
        if (nic_usable(n) && !n->made && n->speed > 0 && n->speed <= SLOW_MBITS)
            check_append(f->slow, sizeof(f->slow), ", ", "%s %d Mb/s", n->name, n->speed);
    }
}

static void check_up(const struct view *v, struct result *r)
{
    struct nics nics;
    struct found f = {0};
    if (!nics_read(v, r, &nics))
        return;
    if (names_none(v, &nics, "HVD_IFACE", v->setting->interfaces, false, r) ||
        names_none(v, &nics, "GLOO_SOCKET_IFNAME", machine_env(v->machine, "GLOO_SOCKET_IFNAME"),
                   true, r))
        return;
    look_up(&nics, &f);
    result_observed(r, "%s", *f.good ? f.good : "lo");
    result_expected(r, "an interface that is up, with carrier and address");
    int spans = job_spans_machines(v->setting);
    if (*f.dead)
        result_warn(r, "%s: an address but no carrier: cable, switch port or the peer is down%s%s",
                    f.dead, *f.good ? "; up: " : "", f.good);
    else if (*f.slow)
        result_warn(r, "%s: such a slow link usually means a bad cable or port", f.slow);
    else if (*f.good)
        result_pass(r, "up: %s", f.good);
    else if (spans > 0)
        result_fail(r,
                    "no interface but loopback is up with an address; %d of %d ranks are on "
                    "other machines",
                    v->setting->ranks - v->setting->local_ranks, v->setting->ranks);
    else if (spans == 0)
        result_info(r, "no interface but loopback: enough for %d ranks on this machine",
                    v->setting->local_ranks);
    else
        result_warn(r, "no interface but loopback: ranks of this machine work, other machines "
                       "cannot be reached");
}

static void check_mtu(const struct view *v, struct result *r)
{
    struct nics nics;
    char list[300] = "", smallest[64] = "";
    bool differ = false;
    int count = 0, low = 0;
    if (!nics_read(v, r, &nics))
        return;
    for (int i = 0; i < nics.n; i++) {
        const struct nic *n = &nics.list[i];
        if (!nic_usable(n) || n->made || n->mtu <= 0)
            continue;
        check_append(list, sizeof(list), ", ", "%s %d", n->name, n->mtu);
        count++;
        for (int j = 0; j < i; j++) {
            const struct nic *o = &nics.list[j];
            /* IPoIB has an MTU of its own: only interfaces of the same type are compared. */
            if (nic_usable(o) && !o->made && o->type == n->type && o->mtu > 0 && o->mtu != n->mtu)
                differ = true;
        }
        if (n->mtu < 1280 && (!low || n->mtu < low)) {
            low = n->mtu;
            snprintf(smallest, sizeof(smallest), "%.60s", n->name);
        }
    }
    result_observed(r, "%s", list);
    result_expected(r, "one MTU, at least 1280");
    if (count == 0)
        result_skip(r, "no interface to other machines is up");
    else if (low)
        result_warn(r, "%s has an MTU of %d: below the 1280 that IPv6 needs (%s)", smallest, low,
                    list);
    else if (differ)
        result_warn(r, "MTUs differ: %s", list);
    else
        result_pass(r, "MTU: %s", list);
}

static int64_t counter(const struct answer *a, int i, const char *key)
{
    int64_t n = answer_int_at(a, "if", i, key, 0);
    return n > 0 ? n : 0;
}

static void check_errors(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "network");
    struct nics nics;
    char growing[200] = "", high[200] = "", some[200] = "";
    int counted = 0;
    if (!nics_read(v, r, &nics))
        return;
    for (int i = 0; i < nics.n; i++) {
        int k = nics.list[i].index;
        if (nics.list[i].loopback || !answer_str_at(a, "if", k, "errors", NULL))
            continue;
        int64_t errors = counter(a, k, "errors"), grown = counter(a, k, "errors_grown");
        int64_t packets = counter(a, k, "packets");
        counted++;
        if (grown)
            check_append(growing, sizeof(growing), ", ", "%s %lld more in %lld ms",
                         nics.list[i].name, (long long)grown,
                         (long long)answer_int(a, "sample_ms", 0));
        else if (errors > 100 && (double)errors > 1e-5 * (double)packets)
            check_append(high, sizeof(high), ", ", "%s %lld errors in %lld packets",
                         nics.list[i].name, (long long)errors, (long long)packets);
        else if (errors)
            check_append(some, sizeof(some), ", ", "%s %lld", nics.list[i].name, (long long)errors);
    }
    result_expected(r, "no growth, <= 0.001 %% of the packets");
    result_observed(r, "%s", *growing ? growing : *high ? high : *some ? some : "0");
    if (!counted)
        result_skip(r, "no counters: needs /proc/net/dev and an interface besides loopback");
    else if (*growing)
        result_warn(r, "errors are growing now: %s", growing);
    else if (*high)
        result_warn(r, "many errors since the interface came up: %s", high);
    else if (*some)
        result_info(r, "a few old errors, none new: %s", some);
    else
        result_pass(r, "no errors on %d interface%s", counted, counted == 1 ? "" : "s");
}

/* A link normally goes up once after boot; that of a container or a bond a few times. */
static void check_flaps(const struct view *v, struct result *r)
{
    struct nics nics;
    char many[200] = "";
    int counted = 0;
    int64_t most = 0;
    if (!nics_read(v, r, &nics))
        return;
    for (int i = 0; i < nics.n; i++) {
        const struct nic *n = &nics.list[i];
        int64_t changes;
        if (n->loopback || n->made ||
            machine_int(v->machine, &changes, "sys/class/net/%s/carrier_changes", n->name) < 0)
            continue;
        counted++;
        most = changes > most ? changes : most;
        if (changes >= FLAPS)
            check_append(many, sizeof(many), ", ", "%s %lld times", n->name, (long long)changes);
    }
    result_observed(r, "%lld", (long long)most);
    result_expected(r, "< %d changes since boot", FLAPS);
    if (!counted)
        result_skip(r, "no interface reports how often its link changed (/sys/class/net)");
    else if (*many)
        result_warn(r, "the link went down or up since boot: %s", many);
    else
        result_pass(r, "stable links on %d interface%s", counted, counted == 1 ? "" : "s");
}

static const struct check rows[] = {
    {.id = "nic-up",
     .code = "HVD8001",
     .group = GROUP_NETWORK,
     .level = 1,
     .probes = {"network"},
     .run = check_up,
     .title = "network interfaces are up",
     .why = "Ranks on other machines cannot be reached, or a slower interface is used in place of "
            "the one that is down.",
     .fix = {"docker run --network=host ... (not --network=none)",
             "look at the pod's network: kubectl get pod POD -o wide; kubectl describe node NODE",
             "ip -br address; ip link set dev NAME up; look at cable and switch port"},
     .action = ACTION_NETWORK,
     .explain = "Interfaces by getifaddrs(3). Usable: up, running (has carrier), not loopback, an "
                "address that is not link-local. HVD_IFACE (names or networks) and "
                "GLOO_SOCKET_IFNAME (names) must match one. With ranks of one machine only, "
                "loopback is enough. A link of 100 Mb/s or less (ethtool) warns: own threshold.",
     .refs = {"https://man7.org/linux/man-pages/man7/netdevice.7.html"}},
    {.id = "nic-mtu-consistent",
     .code = "HVD8002",
     .group = GROUP_NETWORK,
     .level = 1,
     .probes = {"network"},
     .run = check_mtu,
     .title = "interfaces have one MTU",
     .why = "With unequal MTUs, large messages get lost on one path while small ones pass (a job "
            "that connects and then hangs); NCCL from 2.20.3 on fails when RDMA ports differ.",
     .fix = {"docker network create -o com.docker.network.driver.mtu=9000 NET",
             "set the MTU in the CNI's configuration (Calico: veth_mtu, Cilium: mtu)",
             "ip link set dev NAME mtu 9000 on every machine and switch port, or 1500 everywhere"},
     .action = ACTION_NETWORK,
     .explain = "Compares the interfaces of one kind that are up and have an address; bridges and "
                "tunnels are left out. Below 1280 IPv6 does not work (RFC 8200). Whether the "
                "path carries the MTU shows only an active test between workers (--level 3).",
     .refs = {"https://www.rfc-editor.org/rfc/rfc8200#section-5",
              "https://docs.nvidia.com/deeplearning/nccl/release-notes/index.html"}},
    {.id = "nic-errors",
     .code = "HVD8003",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/proc/net/dev",
     .probes = {"network"},
     .run = check_errors,
     .title = "interface error counters",
     .why = "Each damaged frame is sent again after a time-out: collectives stall for 200 ms and "
            "more, and one bad cable slows the whole ring.",
     .fix = {NULL, "cordon the node: kubectl cordon NODE; then as on a host",
             "ethtool -S NAME | grep -i err; replace cable or transceiver; look at the switch "
             "port"},
     .action = ACTION_HOST,
     .explain =
         "Errors received and sent (lost carriers among them) in /proc/net/dev, read twice. Growth "
         "between the two looks warns. More than 100 and more than 0.001 % of the packets "
         "since boot warn too (own threshold). Dropped packets do not count: the kernel "
         "counts frames of unknown protocols there.",
     .refs = {"https://docs.kernel.org/networking/statistics.html"}},
    {.id = "nic-flaps",
     .code = "HVD8010",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/sys/class/net",
     .probes = {"network"},
     .run = check_flaps,
     .title = "links are stable",
     .why = "While a link is down every collective waits; TCP comes back after seconds, RDMA does "
            "not come back at all.",
     .fix = {NULL, "cordon the node: kubectl cordon NODE; then as on a host",
             "journalctl -k | grep -i \"link is\"; replace cable or transceiver; look at the "
             "switch port"},
     .action = ACTION_HOST,
     .explain = "carrier_changes of each interface in /sys/class/net: how often its link went down "
                "or up since boot. 20 and more warn (own threshold). While ranks run the agent "
                "watches it and warns of each change.",
     .refs = {"https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net"}},
};

const struct check_table checks_interfaces = {rows, sizeof(rows) / sizeof(*rows)};
