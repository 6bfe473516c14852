/* SPDX-License-Identifier: Apache-2.0
 *
 * workers_paths: faults of the paths between the machines of a job: connections,
 * payloads, clocks. From the answer "workers"; without that answer every check is skipped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/checks/workers_read.h"
#include "diagnostics/registry.h"

#define SKEW_WARN 100  /* ms */
#define SKEW_FAIL 1000 /* ms */

/* each_entry() calls it for every entry k of the lists KIND_I of all workers I. list: the name
 * KIND_I; from: I. */
typedef void each_f(void *arg, const struct answer *a, const char *list, int k, int from);

static void each_entry(const struct answer *a, int n, const char *kind, each_f *each, void *arg)
{
    for (int i = 0; i < n; i++) {
        char list[32];
        snprintf(list, sizeof(list), "%s_%d", kind, i);
        int count = answer_count(a, list);
        for (int k = 0; k < count; k++)
            each(arg, a, list, k, i);
    }
}

struct matrix {
    int failed; /* addresses that do not work */
    int cut;    /* of these, addresses of a worker that is reached by none of its addresses */
    char text[300];
};

static void see_connect(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct matrix *m = arg;
    char h0[WORKERS_HOST], h1[WORKERS_HOST], key[32];
    int to = (int)answer_int_at(a, list, k, "to", -1), same = 0;
    snprintf(key, sizeof(key), "address_%d", to);
    int count = answer_count(a, list);
    for (int i = 0; i < count; i++)
        same += answer_int_at(a, list, i, "to", -1) == to;
    m->cut += same >= answer_count(a, key);
    if (m->failed++ < 3)
        check_append(m->text, sizeof(m->text), "; ", "%s to %s at %s: %s",
                     workers_host(a, from, h0), workers_host(a, to, h1),
                     answer_str_at(a, list, k, "ip", "?"), answer_str_at(a, list, k, "error", "?"));
}

static void check_connect(const struct view *v, struct result *r)
{
    struct matrix m = {0};
    int n, tried = 0;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    each_entry(a, n, "connect", see_connect, &m);
    for (int i = 0; i < n; i++)
        tried += (int)answer_int_at(a, "worker", i, "tried", 0);
    result_observed(r, "%d of %d failed", m.failed, tried);
    result_expected(r, "0 failed");
    if (m.failed == 0)
        result_pass(r, "%d connections between %d workers, every address of each", tried, n);
    else if (m.cut)
        result_fail(r,
                    "%d of %d connections failed, and some workers cannot reach others at all: "
                    "%s",
                    m.failed, tried, m.text);
    else
        result_warn(r,
                    "%d of %d connections failed, every worker can be reached by another of its "
                    "addresses: %s",
                    m.failed, tried, m.text);
}

struct pairs {
    int n, broken;
    bool swallowed; /* on some path the round trips work and payloads stop */
    double *large;  /* [n] */
    double worst_skew, slowest;
    char skew[300], text[300], slow[300];
};

static void count_pair(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct pairs *p = arg;
    (void)a, (void)list, (void)k, (void)from;
    p->n++;
}

static void see_pair(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct pairs *p = arg;
    char h0[WORKERS_HOST], h1[WORKERS_HOST];
    int to = (int)answer_int_at(a, list, k, "to", -1);
    const char *ip = answer_str_at(a, list, k, "ip", "?");
    const char *error = answer_str_at(a, list, k, "error", NULL);
    double skew = strtod(answer_str_at(a, list, k, "skew_ms", "0"), NULL);
    double large = strtod(answer_str_at(a, list, k, "large_mbs", "0"), NULL);
    workers_host(a, from, h0);
    workers_host(a, to, h1);
    if (fabs(skew) >= fabs(p->worst_skew)) {
        p->worst_skew = skew;
        snprintf(p->skew, sizeof(p->skew), "the clock of %.60s is %.1f ms %s that of %.60s", h1,
                 fabs(skew), skew < 0 ? "behind" : "ahead of", h0);
    }
    if (error) {
        p->swallowed |= strncmp(answer_str_at(a, list, k, "part", ""), "payloads", 8) == 0;
        if (p->broken++ < 3)
            check_append(p->text, sizeof(p->text), "; ", "%s to %s at %s: %s: %s", h0, h1, ip,
                         answer_str_at(a, list, k, "part", "?"), error);
        return;
    }
    p->large[p->n++] = large;
    if (p->slowest == 0 || large < p->slowest) {
        p->slowest = large;
        snprintf(p->slow, sizeof(p->slow), "%.60s to %.60s at %s", h0, h1, ip);
    }
}

/* Returns false when no pair was measured; the result is set. The caller frees large. */
static bool read_pairs(const struct view *v, struct result *r, struct pairs *p, int *ret_n)
{
    const struct answer *a = workers_ask(v, r, ret_n);
    *p = (struct pairs){0};
    if (!a)
        return false;
    each_entry(a, *ret_n, "pair", count_pair, p);
    p->large = calloc((size_t)p->n + 1, sizeof(*p->large));
    if (!p->large || p->n == 0) {
        free(p->large);
        result_skip(r, p->n ? "no memory" : "no two workers reach each other");
        return false;
    }
    p->n = 0;
    each_entry(a, *ret_n, "pair", see_pair, p);
    qsort(p->large, (size_t)p->n, sizeof(*p->large), workers_compare);
    return true;
}

static void check_pairs(const struct view *v, struct result *r)
{
    struct pairs p;
    int n;
    if (!read_pairs(v, r, &p, &n))
        return;
    double median = p.n ? p.large[p.n / 2] : 0;
    result_observed(r, "%.0f MB/s at least, %.0f median", p.slowest, median);
    if (p.broken)
        result_fail(r, "%d paths break down under load: %s%s", p.broken, p.text,
                    p.swallowed
                        ? " (small packets pass, large ones do not: check the MTU of the path)"
                        : "");
    else if (p.slowest < median / 2)
        result_warn(r, "%s: %.0f MB/s, half of the pairs do %.0f MB/s or more", p.slow, p.slowest,
                    median);
    else
        result_pass(r, "%d paths: %.0f MB/s at least with payloads of 1 MiB, %.0f MB/s median", p.n,
                    p.slowest, median);
    free(p.large);
}

static void check_clocks(const struct view *v, struct result *r)
{
    struct pairs p;
    int n;
    if (!read_pairs(v, r, &p, &n))
        return;
    free(p.large);
    result_observed(r, "%.1f ms", fabs(p.worst_skew));
    result_expected(r, "<= %d ms", SKEW_WARN);
    if (fabs(p.worst_skew) > SKEW_FAIL)
        result_fail(r, "%s", p.skew);
    else if (fabs(p.worst_skew) > SKEW_WARN)
        result_warn(r, "%s", p.skew);
    else
        result_pass(r, "the clocks of %d workers differ by %.1f ms at most", n, fabs(p.worst_skew));
}

static const struct check rows[] = {
    {WORKERS_CHECK("xw-connect-matrix", "HVD9606", check_connect),
     .title = "every worker reaches every other",
     .why = "A firewall or a wrong route between two of many hosts stops the job at its start or "
            "at its first large message.",
     .fix = {"docker network: one network for all; --network=host where ports are not published",
             "a NetworkPolicy that allows all ports between the pods of the job",
             "open the ephemeral ports (sysctl net.ipv4.ip_local_port_range) between the hosts; "
             "HVD_IFACE and NCCL_SOCKET_IFNAME name the interfaces that work"},
     .action = ACTION_NETWORK,
     .explain = "Each worker connects to every address of every other at an ephemeral port, within "
                "2 s. Fails when no address of a worker answers, warns when some do not.",
     .refs = {NCCL_TROUBLE}},
    {WORKERS_CHECK("xw-pair-bandwidth", "HVD9607", check_pairs),
     .title = "bandwidth between pairs of workers",
     .why = "A link that loses packets or fell back to a lower rate slows all ranks. An MTU that "
            "is too large on a part of the path lets small packets pass and drops large ones.",
     .fix = {"docker network create -o com.docker.network.driver.mtu=1400 ...",
             "the MTU of the pod network (CNI) below that of the nodes",
             "ip link set dev eth0 mtu 1500 on every host; ethtool eth0 for the rate and errors"},
     .action = ACTION_NETWORK,
     .explain = "In each of up to 8 rounds every worker talks to one other: 16 round trips, "
                "payloads of 8 KiB for 150 ms and of 1 MiB for 300 ms, over every address. A "
                "path that stops fails; a path slower than half of the median warns.",
     .refs = {"https://www.rfc-editor.org/rfc/rfc2923"}},
    {WORKERS_CHECK("xw-clock-skew", "HVD9608", check_clocks), .title = "clocks agree",
     .why = "Logs of several workers cannot be put in order; tokens and certificates are refused.",
     .fix = {"a container has the clock of its host: start chronyd there",
             "a pod has the clock of its node: start chronyd there",
             "systemctl enable --now chronyd; chronyc tracking"},
     .action = ACTION_HOST,
     .explain = "16 round trips with each peer's clock; the one with the shortest trip counts. "
                "More than 100 ms warns, more than 1 s fails.",
     .refs = {"https://chrony-project.org/documentation.html"}},
};

const struct check_table checks_workers_paths = {rows, sizeof(rows) / sizeof(rows[0])};
