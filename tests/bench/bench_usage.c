/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_usage [PODS JOBS]: the cost of pods' required anti-affinity to a run of the queue: 5,000
 * pods of 50 ReplicaSets on 1,000 nodes, three terms each, and 2,000 jobs by default. Prints how
 * long it takes to count the pods, to make the snapshot of their terms, and to look for room for
 * each job once; the last where no term is about the jobs, where all are and nothing is free, and
 * where all are and every node is looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "operator/driver/daemons.h"
#include "operator/driver/items.h"
#include "operator/reconcile/fit.h"

#define NODES      1000
#define SETS       50
#define DAEMONSETS 20

static json_t *read_json(const char *text)
{
    struct err err = {0};
    json_t *j = NULL;
    if (json_read(text, strlen(text), "bench", &j, &err) < 0) {
        fprintf(stderr, "bench_usage: %s\n", err_text(&err));
        exit(1);
    }
    return j;
}

static void make_node(struct node *node, int i)
{
    char text[1024];
    snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"n%d\",\"labels\":{\"a\":\"b\",\"kubernetes.io/os\":\"linux\","
        "\"kubernetes.io/hostname\":\"n%d\",\"zone\":\"z%d\",\"rack\":\"r%d\"}},\"spec\":{},"
        "\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\",\"pods\":\"110\"},"
        "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
        i, i, i % 3, i / 20);
    auto_json json_t *j = read_json(text);
    if (node_parse(j, node, NULL) < 0)
        exit(1);
}

/* A term with a selector of 40 values. */
static int write_term(char *dst, size_t size, const char *topology, const char *more, int set)
{
    int n = snprintf(dst, size,
                     "{\"topologyKey\":\"%s\",\"namespaceSelector\":{},\"labelSelector\":{"
                     "\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"In\",\"values\":[",
                     topology);
    for (int i = 0; i < 40; i++)
        n += snprintf(dst + n, size - (size_t)n, "\"app-%d-%d\",", set, i);
    return n + snprintf(dst + n, size - (size_t)n, "\"%s\"]}]}}", more);
}

static struct usage_pod *make_pod(int i, const char *app)
{
    char terms[3][2048];
    struct usage_pod *p;
    static char text[16384];
    write_term(terms[0], sizeof(terms[0]), "kubernetes.io/hostname", app, i % SETS);
    write_term(terms[1], sizeof(terms[1]), "zone", "none", i % SETS);
    write_term(terms[2], sizeof(terms[2]), "rack", app, i % SETS);
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"pod-%d\",\"namespace\":\"ns%d\",\"uid\":\"u%d\"},\"spec\":{"
             "\"nodeName\":\"n%d\",\"affinity\":{\"podAntiAffinity\":{"
             "\"requiredDuringSchedulingIgnoredDuringExecution\":[%s,%s,%s]}}}}",
             i, i % SETS, i, i % NODES, terms[0], terms[1], terms[2]);
    auto_json json_t *j = read_json(text);
    if (items_foreign(j, &p, NULL, NULL) < 0)
        exit(1);
    return p;
}

/* Looks for room for as many jobs, whose workers request so many processors. Returns ms. */
static double look(const struct cluster *c, int njobs, int cpus)
{
    struct podspec spec = {.namespace_ = strdup("ml")};
    auto_json json_t *labels = read_json("{\"app\":\"work\",\"team\":\"a\"}");
    uint64_t began = clock_ns();
    if (labels_parse(labels, &spec.labels, NULL) < 0)
        exit(1);
    spec.requests.amount[RESOURCES_CPU] = (resources_sum)cpus * 1000;
    spec.requests.amount[RESOURCES_PODS] = 1;
    for (int i = 0; i < njobs; i++)
        fit_count(c, &spec, INT32_MAX);
    podspec_fini(&spec);
    return (double)(clock_ns() - began) / 1e6;
}

/* app: the value of the pods' terms that may be the workers' label. */
static void measure(int npods, int njobs, const char *app)
{
    struct usage u = {0};
    struct node *nodes = calloc(NODES, sizeof(*nodes));
    struct resources *used = calloc(NODES, sizeof(*used));
    struct usage_pod **pods = calloc((size_t)npods, sizeof(struct usage_pod *));
    struct usage_antis antis;
    if (!nodes || !used || !pods)
        exit(1);
    for (int i = 0; i < NODES; i++) {
        make_node(&nodes[i], i);
        if (usage_set_node(&u, nodes[i].name, &nodes[i].allocatable) < 0)
            exit(1);
    }
    for (int i = 0; i < npods; i++)
        pods[i] = make_pod(i, app);
    uint64_t at = clock_ns();
    for (int i = 0; i < npods; i++)
        if (usage_add(&u, pods[i], "some-namespace/a-pod-of-some-replicaset") < 0)
            exit(1);
    double add = (double)(clock_ns() - at) / 1e6;
    for (int i = 0; i < NODES; i++)
        if (usage_get(&u, nodes[i].name, i, &used[i]) < 0)
            exit(1);
    at = clock_ns();
    if (usage_anti(&u, &antis) < 0)
        exit(1);
    double take = (double)(clock_ns() - at) / 1e6;
    struct cluster c = {
        .n = NODES, .nodes = nodes, .used = used, .anti = antis.list, .nanti = antis.n};
    printf("%d pods with 3 terms, %s: counting them %.1f ms, a snapshot %.2f ms, %d jobs: nothing "
           "free %.1f ms, every node looked at %.1f ms\n",
           npods, strcmp(app, "work") == 0 ? "about the jobs" : "not about the jobs", add, take,
           njobs, look(&c, njobs, 99), look(&c, njobs, 1));
    usage_antis_fini(&antis);
    for (int i = 0; i < npods; i++) {
        usage_remove(&u, pods[i]);
        usage_pod_destroy(pods[i]);
    }
    for (int i = 0; i < NODES; i++) {
        resources_fini(&used[i]);
        node_fini(&nodes[i]);
    }
    usage_fini(&u);
    free(nodes);
    free(used);
    free(pods);
}

/* ---- DaemonSets ------------------------------------------------------------------------------ */

static struct daemonset *make_daemonset(int i)
{
    char text[1024];
    struct daemonset *set;
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"d%d\",\"namespace\":\"kube-system\",\"uid\":\"d%d\"},"
             "\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"kubernetes.io/os\":\"linux\"},"
             "\"tolerations\":[{\"operator\":\"Exists\"}],\"containers\":[{\"resources\":{"
             "\"requests\":{\"cpu\":\"100m\",\"memory\":\"100Mi\"}}}]}}}}",
             i, i);
    auto_json json_t *j = read_json(text);
    if (items_daemonset(j, &set, NULL) < 0)
        exit(1);
    return set;
}

/* What is used on each node, as a snapshot takes it. Returns ms. */
static double take_used(struct usage *u, const struct node *nodes)
{
    uint64_t began = clock_ns();
    for (int i = 0; i < NODES; i++) {
        struct resources used;
        if (usage_get(u, nodes[i].name, i, &used) < 0)
            exit(1);
        resources_fini(&used);
    }
    return (double)(clock_ns() - began) / 1e6;
}

static void measure_daemons(void)
{
    struct usage u = {0};
    struct daemons d;
    struct daemonset *sets[DAEMONSETS];
    struct node *nodes = calloc(NODES, sizeof(*nodes));
    bool changed;
    if (!nodes)
        exit(1);
    daemons_init(&d, &u);
    for (int i = 0; i < NODES; i++) {
        make_node(&nodes[i], i);
        if (usage_set_node(&u, nodes[i].name, &nodes[i].allocatable) < 0)
            exit(1);
    }
    double before = take_used(&u, nodes);
    for (int i = 0; i < DAEMONSETS; i++)
        if (daemons_note_set(&d, NULL, sets[i] = make_daemonset(i), 0, &changed) < 0)
            exit(1);
    uint64_t at = clock_ns();
    for (int i = 0; i < NODES; i++)
        if (daemons_note_node(&d, nodes[i].name, &nodes[i], UINT64_MAX, 0) < 0)
            exit(1);
    double join = (double)(clock_ns() - at) / 1e3;
    at = clock_ns();
    for (int i = 0; i < NODES; i++)
        daemons_note_node(&d, nodes[i].name, &nodes[i], UINT64_MAX, 0);
    double change = (double)(clock_ns() - at) / 1e3;
    at = clock_ns();
    if (daemons_note_set(&d, sets[0], NULL, 0, &changed) < 0 ||
        daemons_note_set(&d, NULL, sets[0], 0, &changed) < 0)
        exit(1);
    double set = (double)(clock_ns() - at) / 1e6;
    printf("%d nodes, %d DaemonSets: a node that joins %.1f us, that changes %.1f us, a DaemonSet "
           "that changes %.2f ms; a snapshot of what is used %.2f ms, without DaemonSets %.2f ms\n",
           NODES, DAEMONSETS, join / NODES, change / NODES, set, take_used(&u, nodes), before);
    daemons_fini(&d);
    for (int i = 0; i < DAEMONSETS; i++)
        items_daemonset_destroy(sets[i]);
    for (int i = 0; i < NODES; i++)
        node_fini(&nodes[i]);
    usage_fini(&u);
    free(nodes);
}

int main(int argc, char **argv)
{
    int npods = argc > 2 ? atoi(argv[1]) : 5000, njobs = argc > 2 ? atoi(argv[2]) : 2000;
    measure(npods, njobs, "other");
    measure(npods, njobs, "work");
    measure_daemons();
    return 0;
}
