/* SPDX-License-Identifier: Apache-2.0
 *
 * fit_of: how many workers of each job fit, as the operator counts them. For a comparison with
 * kube-scheduler.
 *
 * Reads from standard input {"nodes", "pods", "daemonSets", "namespaces", "jobs", "dryRuns"}: lists
 * of objects, as the API server has them; dryRuns: for each job what the server returned for a dry
 * run of one worker, or null. Prints a list, for each job: {"fits": how many of its workers, "why":
 * the operator's message, "unjudged": the field or null, "pods": the pods that the operator would
 * create}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/driver/daemons.h"
#include "operator/driver/items.h"
#include "operator/objects/demand.h"
#include "operator/objects/parts.h"
#include "operator/reconcile/newpod.h"

struct world {
    json_t *input;
    struct usage usage;
    struct usage_pod **pods;
    struct usage_antis anti;
    struct daemons daemons;
    struct daemonset **sets;
    struct fit_namespace *namespaces;
    struct cluster c;
};

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "fit_of: %s: %s\n", what, err_text(err));
    exit(1);
}

static void read_nodes(struct world *w)
{
    json_t *list = json_object_get(w->input, "nodes"), *j;
    struct node *nodes = calloc(json_array_size(list) + 1, sizeof(*nodes));
    struct err err = {0};
    size_t i;
    w->c.used = calloc(json_array_size(list) + 1, sizeof(*w->c.used));
    w->c.ports = calloc(json_array_size(list) + 1, sizeof(*w->c.ports));
    json_array_foreach(list, i, j)
    {
        if (!nodes || !w->c.used || !w->c.ports || node_parse(j, &nodes[i], &err) < 0 ||
            usage_set_node(&w->usage, nodes[i].name, &nodes[i].allocatable) < 0)
            die("a node", &err);
    }
    w->c.nodes = nodes;
    w->c.n = (int)json_array_size(list);
}

static void read_pods(struct world *w)
{
    json_t *list = json_object_get(w->input, "pods"), *j;
    struct err err = {0};
    size_t i;
    w->pods = calloc(json_array_size(list) + 1, sizeof(struct usage_pod *));
    json_array_foreach(list, i, j)
    {
        const char *name = parts_text(json_object_get(j, "metadata"), "name");
        if (!w->pods || items_foreign(j, &w->pods[i], NULL, &err) < 0 ||
            usage_add(&w->usage, w->pods[i], name) < 0)
            die("a pod", &err);
    }
}

/* After the pods: only DaemonSets without a pod on a node are awaited there. */
static void read_daemonsets(struct world *w)
{
    json_t *list = json_object_get(w->input, "daemonSets"), *j;
    struct err err = {0};
    bool changed;
    size_t i;
    w->sets = calloc(json_array_size(list) + 1, sizeof(struct daemonset *));
    daemons_init(&w->daemons, &w->usage);
    for (int k = 0; k < w->c.n; k++)
        if (daemons_note_node(&w->daemons, w->c.nodes[k].name, &w->c.nodes[k], UINT64_MAX, 0) < 0)
            die("a node", &err);
    json_array_foreach(list, i, j)
    {
        if (!w->sets || items_daemonset(j, &w->sets[i], &err) < 0 ||
            daemons_note_set(&w->daemons, NULL, w->sets[i], 0, &changed) < 0)
            die("a DaemonSet", &err);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct fit_namespace *)a)->name, ((const struct fit_namespace *)b)->name);
}

static void read_namespaces(struct world *w)
{
    json_t *list = json_object_get(w->input, "namespaces"), *j;
    size_t i, n = json_array_size(list);
    struct err err = {0};
    w->namespaces = calloc(n + 1, sizeof(*w->namespaces));
    json_array_foreach(list, i, j)
    {
        json_t *meta = json_object_get(j, "metadata");
        if (!w->namespaces ||
            labels_parse(json_object_get(meta, "labels"), &w->namespaces[i].labels, &err) < 0)
            die("a namespace", &err);
        w->namespaces[i].name = parts_text(meta, "name");
    }
    qsort(w->namespaces, n, sizeof(*w->namespaces), by_name);
    w->c.namespaces = w->namespaces;
    w->c.nnamespaces = (int)n;
}

static void take_usage(struct world *w)
{
    struct err err = {0};
    for (int k = 0; k < w->c.n; k++)
        if (usage_get(&w->usage, w->c.nodes[k].name, k, &w->c.used[k]) < 0 ||
            usage_ports(&w->usage, w->c.nodes[k].name, &w->c.ports[k]) < 0)
            die("usage", &err);
    if (usage_anti(&w->usage, &w->anti) < 0)
        die("anti-affinity", &err);
    w->c.anti = w->anti.list;
    w->c.nanti = w->anti.n;
}

/* worker: the pod that a dry run returned; NULL: the template counts. */
static json_t *judge(struct world *w, json_t *object, json_t *worker)
{
    struct demand demand;
    const struct podspec *spec;
    struct hvdjob job;
    struct err err = {0};
    char api[64], why[1024];
    json_t *pods = json_array();
    if (hvdjob_parse(object, &job, &err) < 0)
        die("a job", &err);
    if (job.refused) {
        fprintf(stderr, "fit_of: %s\n", job.refused);
        exit(1);
    }
    bool known = json_is_object(worker);
    if (known && demand_parse(json_object_get(worker, "spec"), &job.podspec, &demand, &err) < 0)
        die("the pod of a dry run", &err);
    spec = known ? &demand.spec : &job.podspec;
    const struct gang_ops *gang = gang_choose(&job, "", api, sizeof(api), &err);
    for (int i = 0; i < job.workers && gang; i++)
        json_array_append_new(pods, newpod(&job, gang, i, 0));
    fit_explain(&w->c, spec, job.workers, why, sizeof(why));
    json_t *ret = json_pack("{s:i, s:s, s:s?, s:o}", "fits", fit_count(&w->c, spec, job.workers),
                            "why", why, "unjudged", spec->unjudged, "pods", pods);
    if (known)
        demand_fini(&demand);
    hvdjob_fini(&job);
    return ret;
}

static void fini(struct world *w)
{
    size_t npods = json_array_size(json_object_get(w->input, "pods"));
    size_t nsets = json_array_size(json_object_get(w->input, "daemonSets"));
    daemons_fini(&w->daemons);
    for (size_t i = 0; i < nsets; i++)
        items_daemonset_destroy(w->sets[i]);
    for (int i = 0; i < w->c.nnamespaces; i++)
        labels_fini(&w->namespaces[i].labels);
    for (size_t i = 0; i < npods; i++) {
        usage_remove(&w->usage, w->pods[i]);
        usage_pod_destroy(w->pods[i]);
    }
    for (int i = 0; i < w->c.n; i++) {
        node_fini((struct node *)&w->c.nodes[i]);
        resources_fini(&w->c.used[i]);
        hostports_fini(&w->c.ports[i]);
    }
    free(w->sets);
    free(w->namespaces);
    free(w->pods);
    usage_antis_fini(&w->anti);
    free((struct node *)w->c.nodes);
    free(w->c.used);
    free(w->c.ports);
    usage_fini(&w->usage);
    json_decref(w->input);
}

int main(void)
{
    json_error_t wrong;
    struct world w = {.input = json_loadf(stdin, 0, &wrong)};
    auto_json json_t *ret = json_array();
    size_t i;
    json_t *job;
    if (!w.input) {
        fprintf(stderr, "fit_of: %s\n", wrong.text);
        return 1;
    }
    read_nodes(&w);
    read_pods(&w);
    read_daemonsets(&w);
    read_namespaces(&w);
    take_usage(&w);
    json_array_foreach(json_object_get(w.input, "jobs"), i, job)
    {
        json_array_append_new(
            ret, judge(&w, job, json_array_get(json_object_get(w.input, "dryRuns"), i)));
    }
    fini(&w);
    return json_dumpf(ret, stdout, JSON_COMPACT) < 0;
}
