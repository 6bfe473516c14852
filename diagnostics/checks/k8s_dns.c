/* SPDX-License-Identifier: Apache-2.0
 *
 * k8s_dns: a pod's DNS: does it answer, how is it configured, does it resolve the other workers?
 * Everything is skipped outside a pod.
 *
 * The probes "k8s-dns" and "workers" look names up. Pure functions, run by doctor.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/kubernetes.h"
#include "diagnostics/checks/nic.h"

/* glibc before 2.26 takes six domains; resolv.conf(5): three name servers. resolv.conf(5) allows
 * ndots up to 15; more than 5 warns (own threshold). */
#define SEARCH_MANY 6
#define SERVERS_MAX 3
#define NDOTS_MAX   5
#define DNS_SLOW_MS 1000
#define NAMES_SHOWN 4

struct resolv {
    int servers, domains, ndots;
    bool svc; /* a search domain is one of the cluster's */
};

/* Takes in a line of resolv.conf: words are what follows the keyword. */
static void resolv_line(struct resolv *c, const char *key, char *words)
{
    char *state = NULL;
    if (strcmp(key, "search") == 0 || strcmp(key, "domain") == 0)
        c->domains = c->svc = 0; /* only the last search line is effective */
    for (char *w = strtok_r(words, " \t\r", &state); w; w = strtok_r(NULL, " \t\r", &state)) {
        if (strcmp(key, "nameserver") == 0)
            c->servers++;
        else if (strcmp(key, "options") == 0 && strncmp(w, "ndots:", 6) == 0)
            c->ndots = atoi(w + 6);
        else if (strcmp(key, "search") == 0 || strcmp(key, "domain") == 0) {
            c->domains++;
            c->svc |= strncmp(w, "svc.", 4) == 0 || strstr(w, ".svc.") != NULL;
        }
    }
}

static int resolv_read(const struct machine *m, struct resolv *ret)
{
    auto_free char *text = NULL;
    char *state = NULL;
    *ret = (struct resolv){.ndots = 1};
    int rc = machine_read(m, "etc/resolv.conf", &text, NULL);
    if (rc < 0)
        return rc;
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        char key[16];
        int used = 0;
        if (sscanf(line, " %15[a-z] %n", key, &used) == 1 && used)
            resolv_line(ret, key, line + used);
    }
    return 0;
}

static void check_dns(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "k8s-dns");
    struct resolv conf;
    if (!in_pod(v, r) || !result_needs(r, a, "the cluster's DNS"))
        return;
    const char *name = answer_str(a, "name", "kubernetes.default.svc");
    const char *ip = answer_str(a, "ip", NULL);
    int ms = (int)answer_int(a, "ms", 0);
    int rc = resolv_read(v->machine, &conf);
    result_observed(r, "%s", ip ? ip : answer_str(a, "error", "no address"));
    result_expected(r, "an address within %d ms", DNS_SLOW_MS);
    if (ip && ms > DNS_SLOW_MS)
        result_warn(r, "%s took %d ms", name, ms);
    else if (ip)
        result_pass(r, "%s is %s, %d ms", name, ip, ms);
    else if (rc == 0 && !conf.svc)
        result_warn(r, "no cluster domain in /etc/resolv.conf: this pod asks the node's name "
                       "servers (dnsPolicy: Default, or hostNetwork)");
    else
        result_fail(r, "%s does not resolve: %s (%d ms)", name,
                    answer_str(a, "error", "no address"), ms);
}

static void check_ndots(const struct view *v, struct result *r)
{
    struct resolv c;
    if (!in_pod(v, r))
        return;
    int rc = resolv_read(v->machine, &c);
    if (rc < 0) {
        result_skip(r, "/etc/resolv.conf: %s", strerror(-rc));
        return;
    }
    result_observed(r, "ndots:%d, %d search domains, %d name servers", c.ndots, c.domains,
                    c.servers);
    result_expected(r, "ndots <= %d, <= %d search domains, 1 to %d name servers", NDOTS_MAX,
                    SEARCH_MANY, SERVERS_MAX);
    if (c.servers == 0)
        result_warn(r, "/etc/resolv.conf names no name server");
    else if (c.servers > SERVERS_MAX)
        result_warn(r, "%d name servers: the resolver uses only the first %d", c.servers,
                    SERVERS_MAX);
    else if (c.domains > SEARCH_MANY)
        result_warn(r, "%d search domains: up to %d DNS queries for each external name", c.domains,
                    2 * (c.domains + 1));
    else if (c.ndots > NDOTS_MAX)
        result_warn(r, "ndots:%d: each name with fewer dots is first tried with %d search domains",
                    c.ndots, c.domains);
    else if (c.ndots > 2 && c.domains > 2)
        result_info(r,
                    "ndots:%d with %d domains: an external name takes up to %d DNS queries; end it "
                    "with a dot, or set ndots:2",
                    c.ndots, c.domains, 2 * (c.domains + 1));
    else
        result_pass(r, "ndots:%d, %d search domain%s", c.ndots, c.domains,
                    c.domains == 1 ? "" : "s");
}

static void check_workers(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "workers");
    char missing[256] = "", first[128] = "";
    int bad = 0;
    if (!in_pod(v, r) || !result_needs(r, a, "the names of the workers"))
        return;
    int n = answer_count(a, "name");
    for (int i = 0; i < n; i++) {
        const char *error = answer_str_at(a, "name", i, "error", NULL);
        if (!error)
            continue;
        if (bad++ < NAMES_SHOWN)
            check_append(missing, sizeof(missing), ", ", "%.80s",
                         answer_str_at(a, "name", i, "name", "?"));
        if (!*first)
            snprintf(first, sizeof(first), "%.127s", error);
    }
    result_observed(r, "%d of %d", n - bad, n);
    result_expected(r, "%d of %d", n, n);
    if (n == 0)
        result_skip(r, "no worker is named in HVD_RENDEZVOUS, MASTER_ADDR, TF_CONFIG or an MPI "
                       "hostfile");
    else if (bad)
        result_fail(r, "%d of %d names do not resolve after %" PRId64 " ms: %s%s: %s", bad, n,
                    answer_int(a, "tried_ms", 0), missing, bad > NAMES_SHOWN ? ", ..." : "", first);
    else
        result_pass(r, "%d name%s of workers resolve%s", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
}

#define DNS_DOC "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/"

static const struct check rows[] = {
    {.id = "k8s-dns",
     .code = "HVD9201",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a pod",
     .probes = {"k8s-dns"},
     .run = check_dns,
     .title = "the cluster's DNS answers",
     .why = "Workers find each other by names of a Service: without DNS they wait for the "
            "rendezvous until it times out.",
     .fix = {NULL,
             "dnsPolicy: ClusterFirst (with hostNetwork: ClusterFirstWithHostNet); "
             "kubectl -n kube-system get pods -l k8s-app=kube-dns; a NetworkPolicy must let UDP "
             "and TCP 53 out",
             NULL},
     .action = ACTION_NETWORK,
     .explain = "Looks up kubernetes.default.svc in a child process. More than 1 s warns (own "
                "threshold). Without a search domain of the cluster (svc.cluster.local) in "
                "/etc/resolv.conf the pod uses the node's name servers: that warns, jobs with "
                "numeric addresses still work.",
     .refs = {DNS_DOC,
              "https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/"}},
    {.id = "k8s-search-ndots",
     .code = "HVD9202",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a pod",
     .run = check_ndots,
     .title = "resolv.conf of the pod",
     .why = "With many search domains each external name (a data set's host) costs a dozen DNS "
            "queries for every rank: the DNS server drops some of them, and look-ups take 5 s.",
     .fix = {NULL, "dnsConfig: {options: [{name: ndots, value: \"2\"}]}", NULL},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "nameserver, search and options of /etc/resolv.conf. ClusterFirst gives ndots:5 and "
         "three or more domains: a note. More than 6 domains (all that glibc before 2.26 "
         "takes), more than 3 name servers (resolv.conf(5): MAXNS), ndots above 5 (own "
         "threshold) warn.",
     .refs = {DNS_DOC, "https://man7.org/linux/man-pages/man5/resolv.conf.5.html"}},
    {.id = "k8s-worker-dns",
     .code = "HVD9203",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a pod, names of workers",
     .probes = {"workers"},
     .run = check_workers,
     .title = "names of the other workers",
     .why = "A launcher that starts before its workers' names are known ends with \"Could not "
            "resolve hostname\"; workers wait for a rank that they cannot find.",
     .fix = {NULL,
             "a headless Service (clusterIP: None) with publishNotReadyAddresses: true that "
             "selects the workers, and subdomain: SERVICE in their pods",
             NULL},
     .action = ACTION_NETWORK,
     .explain =
         "Names (up to 64) in HVD_RENDEZVOUS, MASTER_ADDR, TF_CONFIG, /etc/mpi/hostfile and "
         "the hostfile variables of Open MPI and Intel MPI, looked up all at once, again "
         "and again for half of --timeout, at most 5 s: DNS has a pod's name only once the pod "
         "runs.",
     .refs = {DNS_DOC, "https://github.com/kubeflow/mpi-operator/issues/386"}},
};

const struct check_table checks_k8s_dns = {rows, sizeof(rows) / sizeof(*rows)};
