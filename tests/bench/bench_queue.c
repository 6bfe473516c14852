/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_queue [JOBS NODES]: a run of the operator's queue with many waiting jobs on a cluster in
 * which nothing is free: 2,000 and 1,000 by default. Prints how long the run takes, and the longest
 * of its steps of one job. The operator looks at the clock after each step. Half of the
 * jobs have a nodeSelector, a tenth wait for a quota, and there are 50 namespaces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/queue.h"

#define NOW INT64_C(1700000000000)

static json_t *read_json(const char *text)
{
    struct err err = {0};
    json_t *j = NULL;
    if (json_read(text, strlen(text), "bench", &j, &err) < 0) {
        fprintf(stderr, "bench_queue: %s\n", err_text(&err));
        exit(1);
    }
    return j;
}

static void make_node(struct node *node, struct resources *used, int i)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"n%d\",\"labels\":{\"pool\":\"%c\",\"zone\":\"z%d\"}},"
             "\"spec\":{},\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\","
             "\"pods\":\"110\",\"nvidia.com/gpu\":\"8\"},\"conditions\":[{\"type\":\"Ready\","
             "\"status\":\"True\"}]}}",
             i, 'a' + i % 2, i % 3);
    auto_json json_t *j = read_json(text);
    if (node_parse(j, node, NULL) < 0 || resources_copy(&node->allocatable, used) < 0)
        exit(1);
    resources_set(used, "nvidia.com/gpu", 7, NULL); /* each worker wants two */
}

static void make_job(struct hvdjob *job, int i)
{
    char text[2048];
    snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"j%d\",\"namespace\":\"ns%02d\",\"uid\":\"u%d\"},\"spec\":{"
        "\"workers\":10,\"gang\":{\"probeSeconds\":0},\"template\":{\"spec\":{%s\"containers\":"
        "[{\"name\":\"w\",\"command\":[\"x\"],\"resources\":{\"requests\":{\"cpu\":\"4\","
        "\"memory\":\"32Gi\"},\"limits\":{\"nvidia.com/gpu\":\"2\"}}}]}}},\"status\":{"
        "\"phase\":\"Queued\",\"queuedTime\":\"2023-11-14T22:%02d:00Z\"}}",
        i, i % 50, i, i % 2 ? "\"nodeSelector\":{\"pool\":\"a\"}," : "", 13 - i % 13);
    auto_json json_t *j = read_json(text);
    if (hvdjob_parse(j, job, NULL) < 0 || job->refused)
        exit(1);
}

int main(int argc, char **argv)
{
    int njobs = argc > 2 ? atoi(argv[1]) : 2000, nnodes = argc > 2 ? atoi(argv[2]) : 1000;
    struct hvdjob *jobs = calloc((size_t)njobs, sizeof(*jobs));
    struct demand *demands = calloc((size_t)njobs, sizeof(*demands));
    struct queue_job *q = calloc((size_t)njobs, sizeof(*q));
    struct node *nodes = calloc((size_t)nnodes, sizeof(*nodes));
    struct resources *used = calloc((size_t)nnodes, sizeof(*used));
    struct cluster c = {.n = nnodes, .nodes = nodes, .used = used};
    struct quota quota;
    struct queue *run;
    if (!jobs || !demands || !q || !nodes || !used)
        return 1;
    for (int i = 0; i < nnodes; i++)
        make_node(&nodes[i], &used[i], i);
    for (int i = 0; i < njobs; i++) {
        make_job(&jobs[i], i);
        demands[i] = (struct demand){.spec = jobs[i].podspec, .preempts = true};
        q[i] = (struct queue_job){
            .job = &jobs[i], .demand = &demands[i], .gates = true, .priority = i % 3};
    }
    auto_json json_t *limits = read_json("{\"metadata\":{\"namespace\":\"ns07\",\"name\":\"few\"},"
                                         "\"spec\":{\"hard\":{\"pods\":\"5\"}}}");
    if (quota_parse(limits, &quota, NULL) < 0)
        return 1;
    struct queue_input in = {.jobs = q,
                             .n = njobs,
                             .cluster = &c,
                             .quotas = &quota,
                             .nquotas = 1,
                             .policy = {.share = 50, .probes = 8},
                             .now = NOW};
    uint64_t begun = clock_ns(), most = 0;
    if (queue_begin(&run, &in) < 0)
        return 1;
    uint64_t before = clock_ns() - begun;
    for (bool done = false; !done;) {
        uint64_t at = clock_ns();
        done = queue_step(run, 1);
        uint64_t took = clock_ns() - at;
        most = took > most ? took : most;
    }
    uint64_t all = clock_ns() - begun;
    queue_end(run);
    printf("%d waiting jobs on %d nodes: a run %.1f ms, its beginning %.2f ms, the longest step "
           "%.2f ms\n",
           njobs, nnodes, (double)all / 1e6, (double)before / 1e6, (double)most / 1e6);
    return 0;
}
