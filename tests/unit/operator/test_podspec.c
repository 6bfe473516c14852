/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects/podspec and what it is computed from: requests as kube-scheduler counts
 * them, LimitRanges, RuntimeClasses, host ports, anti-affinity.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/objects/antiaffinity.h"
#include "tests/unit/operator/jobs.h"

#define C(requests) "'containers':[{'name':'c','resources':{'requests':{" requests "}}}]"

/* The sums are those of PodRequests() in k8s.io/component-helpers/resource. */
static void test_requests(void **state)
{
    static const struct {
        const char *pod; /* without the outer braces */
        int64_t cpu, memory, gpu, hugepages;
    } rows[] = {
        {"'spec':{" C("'cpu':'1','memory':'1Ki','x/gpu':2") "}", 1000, 1024, 2, 0},
        /* a missing request defaults to the limit, a request of 0 does not */
        {"'spec':{'containers':[{'resources':{'limits':{'cpu':2,'memory':'2Ki','x/gpu':1},"
         "'requests':{'cpu':0}}}]}",
         0, 2048, 1, 0},
        /* init containers run alone, but beside the sidecars before them */
        {"'spec':{'initContainers':[{'resources':{'requests':{'cpu':4,'x/gpu':3}}}]," C(
             "'cpu':1,'x/gpu':1") "}",
         4000, 0, 3, 0},
        {"'spec':{'initContainers':[{'restartPolicy':'Always','resources':{'requests':{'cpu':1}}},{"
         "'resources':{'requests':{'cpu':4}}}]," C("'cpu':1") "}",
         5000, 0, 0, 0},
        {"'spec':{'initContainers':[{'resources':{'requests':{'cpu':4}}},{'restartPolicy':'Always',"
         "'resources':{'requests':{'cpu':1}}}]," C("'cpu':2") "}",
         4000, 0, 0, 0},
        /* pod-level requests win for cpu, memory and hugepages; other names there have no effect */
        {"'spec':{'resources':{'requests':{'cpu':5,'hugepages-2Mi':'4Mi','x/gpu':7}}," C(
             "'cpu':1,'memory':'1Ki','x/gpu':1") "}",
         5000, 1024, 1, 4 << 20},
        /* pod-level limits default to the containers' sum, else they are the requests */
        {"'spec':{'resources':{'limits':{'cpu':5,'memory':'8Ki'}}," C("'cpu':1") "}", 1000, 8192, 0,
         0},
        /* overhead */
        {"'spec':{'overhead':{'cpu':'100m','x/gpu':1}," C("'cpu':1") "}", 1100, 0, 1, 0},
        {"'spec':{'overhead':{'cpu':'100m'},'resources':{'requests':{'cpu':3}}," C("'cpu':1") "}",
         3100, 0, 0, 0},
        /* resized in place: the largest of spec, status and what the node allocated */
        {"'spec':{" C("'cpu':1,'memory':'4Ki'") "},'status':{'containerStatuses':[{'name':'c',"
                                                "'resources':{'requests':{'cpu':3,'memory':'1Ki'}},"
                                                "'allocatedResources':{'cpu':2}}]}",
         3000, 4096, 0, 0},
        {"'spec':{" C("'cpu':8") "},'status':{'conditions':[{'type':'PodResizePending','reason':"
                                 "'Infeasible'}],'containerStatuses':[{'name':'c','resources':{'"
                                 "requests':{'cpu':1}},"
                                 "'allocatedResources':{'cpu':2}}]}",
         2000, 0, 0, 0},
        {"'spec':{" C("'cpu':1") "},'status':{'containerStatuses':[{'name':'other','resources':{"
                                 "'requests':{'cpu':3}}}]}",
         1000, 0, 0, 0},
        {"'spec':{'resources':{'requests':{'cpu':2}}," C(
             "'cpu':1") "},'status':{'resources':{"
                        "'requests':{'cpu':4}},'allocatedResources':{'cpu':3}}",
         4000, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[1024];
        struct pod p;
        snprintf(text, sizeof(text), "{'metadata':{'name':'p','uid':'u'},%s}", rows[i].pod);
        auto_json json_t *j = from_text(text);
        assert_int_equal(pod_parse(j, &p, NULL), 0);
        if (p.requests.amount[RESOURCES_CPU] != rows[i].cpu ||
            p.requests.amount[RESOURCES_MEMORY] != rows[i].memory ||
            resources_get(&p.requests, "x/gpu") != rows[i].gpu ||
            resources_get(&p.requests, "hugepages-2Mi") != rows[i].hugepages ||
            p.requests.amount[RESOURCES_PODS] != 1)
            fail_msg("%s: cpu %lld, memory %lld, gpu %lld, hugepages %lld", rows[i].pod,
                     (long long)p.requests.amount[RESOURCES_CPU],
                     (long long)p.requests.amount[RESOURCES_MEMORY],
                     (long long)resources_get(&p.requests, "x/gpu"),
                     (long long)resources_get(&p.requests, "hugepages-2Mi"));
        pod_fini(&p);
    }
}

/* Sums of amounts that do not fit 64 bits are exact, and such a pod fits nowhere. */
static void test_no_overflow(void **state)
{
    struct resources node = {.amount = {[RESOURCES_MEMORY] = QUANTITY_MAX}}, none = {.n = 0};
    struct pod p;
    (void)state;
    auto_json json_t *j = from_text(
        "{'metadata':{'name':'p','uid':'u'},'spec':{'containers':[{'resources':{'requests':{"
        "'memory':'7Ei'}}},{'resources':{'requests':{'memory':'7Ei'}}}]}}");
    assert_int_equal(pod_parse(j, &p, NULL), 0);
    assert_true(p.requests.amount[RESOURCES_MEMORY] == (resources_sum)14 << 60);
    assert_int_equal(resources_fit(&node, &none, &p.requests, 5), 0);
    p.requests.amount[RESOURCES_MEMORY] = QUANTITY_MAX; /* "9Ei" is read as this */
    assert_int_equal(resources_fit(&node, &none, &p.requests, 5), 0);
    p.requests.amount[RESOURCES_MEMORY] = (resources_sum)7 << 60;
    p.requests.amount[RESOURCES_PODS] = 0;
    assert_int_equal(resources_fit(&node, &none, &p.requests, 5), 1);
    pod_fini(&p);
}

/* This name was made so that a fast hash of it is that of "nvidia.com/gpu". */
static void test_invented_name(void **state)
{
    struct pod p;
    (void)state;
    auto_json json_t *j = from_text("{'metadata':{'name':'p','uid':'u'},'spec':{'containers':[{"
                                    "'resources':{'requests':{'x.io/aaa8awvgg1k2bycgolc':8}}}]}}");
    assert_int_equal(pod_parse(j, &p, NULL), 0);
    assert_int_equal(resources_get(&p.requests, "x.io/aaa8awvgg1k2bycgolc"), 8);
    assert_int_equal(resources_get(&p.requests, "nvidia.com/gpu"), 0);
    pod_fini(&p);
}

/* ---- the pod of a dry run ---------------------------------------------------------------------
 */

/* What the API server has added counts, and the labels are those of all workers. */
static void test_demand(void **state)
{
    struct hvdjob job = make_job("", "");
    struct demand d;
    const char *missing;
    (void)state;
    auto_json json_t *pod = from_text(
        "{'priority':1000,'priorityClassName':'high','preemptionPolicy':'Never','overhead':{'cpu':"
        "'250m','x/tdx':1},'runtimeClassName':'kata','nodeSelector':{'vm':'yes'},'containers':[{"
        "'resources':{'requests':{'cpu':1},'limits':{'cpu':2,'memory':'1Gi'}}}],'initContainers':[{"
        "'resources':{'limits':{'cpu':3}}}],'activeDeadlineSeconds':5}");
    assert_int_equal(demand_parse(pod, &job.podspec, &d, NULL), 0);
    assert_null(d.spec.unjudged);
    assert_int_equal(d.spec.requests.amount[RESOURCES_CPU], 3250);
    assert_int_equal(d.limits.amount[RESOURCES_CPU], 3250);
    assert_int_equal(d.limits.amount[RESOURCES_MEMORY], 1 << 30);
    assert_int_equal(resources_get(&d.spec.requests, "x/tdx"), 1);
    assert_int_equal(d.priority, 1000);
    assert_string_equal(d.priority_class, "high");
    assert_true(d.terminating && !d.preempts && !d.best_effort);
    assert_string_equal(labels_get(&d.spec.labels, "hvd.dev/job"), "digits");
    assert_string_equal(d.spec.namespace_, "ml");
    struct labels none = {.text = NULL};
    assert_false(labels_match(&none, &d.spec.selector, &missing));
    assert_string_equal(missing, "vm");
    demand_fini(&d);
    auto_json json_t *bare = from_text("{'containers':[{}]}");
    assert_int_equal(demand_parse(bare, NULL, &d, NULL), 0);
    assert_true(d.best_effort && d.preempts && !d.terminating);
    demand_fini(&d);
    hvdjob_fini(&job);
}

/* ---- host ports and anti-affinity ------------------------------------------------------------ */

static struct hostports ports_of(const char *spec)
{
    struct hostports p;
    auto_json json_t *j = from_text(spec);
    assert_int_equal(hostports_parse(j, &p, NULL), 0);
    return p;
}

#define PORT(text) "{'containers':[{'ports':[{'containerPort':80," text "}]}]}"

static void test_ports(void **state)
{
    static const struct {
        const char *a, *b;
        bool conflict;
    } rows[] = {
        {PORT("'hostPort':80"), PORT("'hostPort':80"), true},
        {PORT("'hostPort':80"), PORT("'hostPort':81"), false},
        {PORT("'hostPort':80"), PORT("'hostPort':80,'protocol':'UDP'"), false},
        {PORT("'hostPort':80,'hostIP':'10.0.0.1'"), PORT("'hostPort':80"), true},
        {PORT("'hostPort':80,'hostIP':'10.0.0.1'"), PORT("'hostPort':80,'hostIP':'0.0.0.0'"), true},
        {PORT("'hostPort':80,'hostIP':'10.0.0.1'"), PORT("'hostPort':80,'hostIP':'10.0.0.2'"),
         false},
        {PORT("'protocol':'TCP'"), PORT("'hostPort':80"), false},
        {"{'hostNetwork':true,'containers':[{'ports':[{'containerPort':80}]}]}",
         PORT("'hostPort':80"), true},
        {"{'initContainers':[{'restartPolicy':'Always','ports':[{'hostPort':80}]}]}",
         PORT("'hostPort':80"), true},
        {"{'initContainers':[{'ports':[{'hostPort':80}]}]}", PORT("'hostPort':80"), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hostports a = ports_of(rows[i].a), b = ports_of(rows[i].b);
        if (!hostports_conflict(&a, &b) == rows[i].conflict ||
            !hostports_conflict(&b, &a) == rows[i].conflict)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
        hostports_fini(&a);
        hostports_fini(&b);
    }
}

static void test_anti_affinity(void **state)
{
    static const struct {
        const char *term;
        bool selects; /* pods of namespace ml with the labels app=a, empty="" */
    } rows[] = {
        {"'labelSelector':{'matchLabels':{'app':'a'}},'namespaces':['ml']", true},
        {"'labelSelector':{'matchLabels':{'app':'b'}},'namespaces':['ml']", false},
        {"'labelSelector':{'matchLabels':{'app':'a'}}", false}, /* its own namespace, "other" */
        {"'labelSelector':{},'namespaceSelector':{}", true},
        {"'namespaceSelector':{}", false}, /* without a selector */
        {"'labelSelector':{},'namespaceSelector':{'matchLabels':{'kubernetes.io/metadata.name':"
         "'ml'}}",
         true},
        {"'labelSelector':{},'namespaceSelector':{'matchLabels':{'kubernetes.io/metadata.name':"
         "'no'}}",
         false},
        {"'labelSelector':{},'namespaceSelector':{'matchLabels':{'team':'not known'}}", true},
        {"'labelSelector':{'matchExpressions':[{'key':'app','operator':'In','values':['x','a']}]},"
         "'namespaces':['ml']",
         true},
        {"'labelSelector':{'matchExpressions':[{'key':'app','operator':'NotIn','values':['a']}]},"
         "'namespaces':['ml']",
         false},
        {"'labelSelector':{'matchExpressions':[{'key':'no','operator':'NotIn','values':['a']}]},"
         "'namespaces':['ml']",
         true},
        {"'labelSelector':{'matchExpressions':[{'key':'empty','operator':'In','values':['']}]},"
         "'namespaces':['ml']",
         true},
        {"'labelSelector':{'matchExpressions':[{'key':'app','operator':'Exists'},{'key':'no',"
         "'operator':'DoesNotExist'}]},'namespaces':['ml']",
         true},
        {"'labelSelector':{'matchExpressions':[{'key':'app','operator':'DoesNotExist'}]},"
         "'namespaces':['ml']",
         false},
        {"'labelSelector':{'matchLabels':{'hvd.dev/worker':'7'}},'namespaces':['ml']", true},
    };
    struct labels labels;
    (void)state;
    auto_json json_t *ours = from_text("{'app':'a','empty':''}");
    assert_int_equal(labels_parse(ours, &labels, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[1024];
        struct antiaffinity a;
        auto_free char *terms = NULL;
        snprintf(text, sizeof(text),
                 "{'metadata':{'namespace':'other'},'spec':{'affinity':{'podAntiAffinity':{"
                 "'requiredDuringSchedulingIgnoredDuringExecution':[{%s,'topologyKey':'zone'}]}}}}",
                 rows[i].term);
        auto_json json_t *pod = from_text(text);
        assert_int_equal(antiaffinity_text(pod, &terms), 0);
        assert_int_equal(antiaffinity_parse(terms, &a), 0);
        assert_int_equal(a.n, 1);
        assert_string_equal(a.all[0].topology, "zone");
        if (anti_term_selects(&a.all[0], "ml", NULL, &labels) != rows[i].selects)
            fail_msg("%s", rows[i].term);
        antiaffinity_fini(&a);
    }
    labels_fini(&labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_no_overflow),
        cmocka_unit_test(test_invented_name), cmocka_unit_test(test_demand),
        cmocka_unit_test(test_ports),         cmocka_unit_test(test_anti_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
