/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_objects: any JSON as a Node, a Pod, a PodDisruptionBudget, a ResourceQuota and an HvdJob, as
 * an API server would send them. Objects that can be read go through the count of what nodes have
 * in use, the queue, reconcile() and the construction of pods.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/driver/daemons.h"
#include "operator/objects/sanitize.h"
#include "operator/reconcile/budget.h"
#include "operator/reconcile/injection.h"
#include "operator/reconcile/newpod.h"
#include "operator/reconcile/reconcile.h"

#define NOW INT64_C(1700000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct injection injection = {.url = "https://operator:7443",
                                           .ca = "-----BEGIN CERTIFICATE-----",
                                           .audience = "hvd-operator",
                                           .bundle = "hvd-bundle:1"};

static void make_pods(const struct hvdjob *job, const struct gang_ops *gang, const char *api,
                      const struct drains *drains, const struct actions *a)
{
    for (int i = 0; i < a->n && i < 4; i++) {
        if (a->all[i].kind == ACTION_CREATE_GROUP)
            json_decref(gang_group(gang, job, api));
        if (a->all[i].kind != ACTION_CREATE_POD)
            continue;
        json_t *pod = newpod(job, gang, a->all[i].worker, a->all[i].attempt);
        if (!pod || injection_add(&injection, job, pod) < 0 || newpod_avoid(pod, drains) < 0)
            abort();
        json_decref(pod);
    }
}

/* Reconciles the job three times, each time with the status that the reconciliation before gave. */
static void walk(struct hvdjob *job, const struct pod *pod, struct cluster *c,
                 const struct drains *drains)
{
    const struct pod *list[] = {pod};
    char api[128] = "";
    struct demand demand = {.spec = job->podspec};
    struct queue_job q = {.job = job, .demand = &demand, .gates = true};
    struct queue_input queue = {
        .jobs = &q, .n = 1, .cluster = c, .policy = {.share = 100, .probes = 1}, .now = NOW};
    const struct gang_ops *gang = gang_choose(
        job, "scheduling.k8s.io/v1alpha2 scheduling.volcano.sh/v1beta1", api, sizeof(api), NULL);
    for (int i = 0; i < 3; i++) {
        struct actions a;
        if (queue_decide(&queue) < 0)
            abort();
        struct reconcile_input in = {.job = job,
                                     .pods = list,
                                     .npods = pod != NULL,
                                     .admission = &q.ret,
                                     .gang = gang,
                                     .gang_missing = "none",
                                     .drains = drains,
                                     .now = NOW};
        if (reconcile(&in, &a, NULL) == 0 && gang)
            make_pods(job, gang, api, drains, &a);
        hvdjob_status_fini(&job->status);
        job->status = a.status;
        a.status = (struct hvdjob_status){0};
        actions_fini(&a);
    }
}

/* The object as a ResourceQuota, and its spec as that of a pod. */
static void walk_quota(json_t *j)
{
    struct quota quota;
    struct demand demand;
    const struct quota_line *line = NULL;
    char text[256];
    bool have_demand = demand_parse(json_object_get(j, "spec"), NULL, &demand, NULL) == 0;
    bool have_quota = quota_parse(j, &quota, NULL) == 0;
    if (have_demand && have_quota) {
        int n = quota_admits(&quota, &demand, 100, &line);
        if (n < 0 || n > 100 || (n < 100 && !line))
            abort();
        if (line)
            quota_explain(&quota, line, &demand, 100, 100, text, sizeof(text));
        quota_never(&quota, &demand, n);
        quota_gives(&quota, &quota);
        quota_take(&quota, &demand, 100);
    }
    if (have_demand)
        demand_fini(&demand);
    if (have_quota)
        quota_fini(&quota);
}

/* Counts the pod twice, before and after its node is known; nothing may be left of it afterwards.
 */
static void count(struct pod *pod, const struct node *node, struct hvdjob *job)
{
    struct usage u = {0};
    struct usage_pod *first = usage_pod_make(pod), *second = usage_pod_make(pod);
    struct resources used = {.n = 0};
    struct hostports ports = {.n = 0};
    struct usage_antis anti = {.n = 0};
    if (!first || !second || usage_add(&u, first, "a") < 0 ||
        usage_set_node(&u, node->name, &node->allocatable) < 0 || usage_add(&u, second, "b") < 0 ||
        usage_get(&u, node->name, 0, &used) < 0 || usage_ports(&u, node->name, &ports) < 0)
        abort();
    struct cluster c = {.n = 1, .nodes = node, .used = &used, .ports = &ports};
    if (usage_anti(&u, &anti) < 0)
        abort();
    c.anti = anti.list;
    c.nanti = anti.n;
    if (job) {
        char text[256];
        fit_place(&c, 0, &job->podspec, fit_count(&c, &job->podspec, 3));
        fit_explain(&c, &job->podspec, 3, text, sizeof(text));
    }
    usage_remove(&u, first);
    usage_remove(&u, second);
    usage_set_node(&u, node->name, NULL);
    if (u.nodes.n || u.anti.n)
        abort();
    resources_fini(&used);
    hostports_fini(&ports);
    usage_antis_fini(&anti);
    usage_pod_destroy(first);
    usage_pod_destroy(second);
    usage_fini(&u);
}

/* A DaemonSet's pod on a node of usage, until its time is over. */
static void walk_daemons(json_t *j, const struct node *node)
{
    struct usage u = {0};
    struct daemons d;
    struct daemonset set;
    bool changed;
    if (daemonset_parse(j, &set, NULL) < 0)
        return;
    daemons_init(&d, &u);
    if (usage_set_node(&u, node->name, &node->allocatable) < 0 ||
        daemons_note_node(&d, node->name, node, 1, 0) < 0 ||
        daemons_note_set(&d, NULL, &set, 0, &changed) < 0)
        abort();
    bool counts = !list_empty(&d.awaited);
    if (counts != daemonset_runs_on(&set, node) || daemons_expire(&d, 1) != UINT64_MAX)
        abort();
    daemons_fini(&d);
    usage_set_node(&u, node->name, NULL);
    if (u.nodes.n || u.anti.n)
        abort();
    usage_fini(&u);
    daemonset_fini(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hvdjob job;
    struct pod pod;
    struct node node;
    struct resources used = {0};
    struct err err = {0};
    json_t *j = NULL;
    const char *replaced;
    if (sanitize_read((const char *)data, size, "fuzz", &j, &replaced, NULL) < 0)
        return 0;
    struct budget budget;
    bool have_budget = budget_parse(j, &budget, NULL) == 0;
    int have_node = node_parse(j, &node, &err);
    if (have_node < 0 && !err.msg[0])
        abort();
    walk_quota(j);
    if (have_node == 0)
        walk_daemons(j, &node);
    int have_pod = pod_parse(j, &pod, &err);
    int have_job = hvdjob_parse(j, &job, &err);
    struct cluster c = {.n = have_node == 0, .nodes = &node, .used = &used};
    struct signals signals;
    struct drain_node drained = {.name = have_node == 0 ? node.name : NULL};
    struct drains drains = {&drained, have_node == 0, 900000};
    signals_default(&signals);
    signals_look(&signals, have_node == 0 ? &node : NULL, &drained.drain);
    if (have_pod == 0 && have_node == 0) {
        if (!pod.node && pod.requests.n % 2 == 0)
            pod.node = strdup(node.name);
        count(&pod, &node, have_job == 0 ? &job : NULL);
    }
    /* Many workers would only make this slow. */
    if (have_job == 0 && job.workers <= 100)
        walk(&job, have_pod == 0 ? &pod : NULL, &c, &drains);
    if (have_job == 0 && have_budget &&
        budget_decide(&job, (struct budget_drain){0}, &budget) == BUDGET_CHANGE)
        json_decref(budget_change(&job, (struct budget_drain){0}, &budget));
    if (have_job == 0)
        hvdjob_fini(&job);
    if (have_pod == 0)
        pod_fini(&pod);
    if (have_node == 0)
        node_fini(&node);
    json_decref(j);
    return 0;
}
