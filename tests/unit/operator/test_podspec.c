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

/* ---- what the API server adds ---------------------------------------------------------------- */

static void test_limit_range(void **state)
{
    struct limitrange limits = {.names = NULL}, more;
    struct podspec spec;
    char text[256];
    (void)state;
    auto_json json_t *first = from_text(
        "{'spec':{'limits':[{'type':'Container','defaultRequest':{'cpu':'500m','x/gpu':1}},{'type':"
        "'Pod','defaultRequest':{'memory':'9Gi'}}]}}");
    auto_json json_t *second =
        from_text("{'spec':{'limits':[{'type':'Container','defaultRequest':{'cpu':'250m',"
                  "'ephemeral-storage':'1Gi'}}]}}");
    assert_int_equal(limitrange_parse(first, &limits, NULL), 0);
    assert_int_equal(limitrange_parse(second, &more, NULL), 0);
    assert_int_equal(limitrange_merge(&limits, &more, NULL), 0);
    auto_json json_t *pod = from_text(
        "{'containers':[{'resources':{'requests':{'cpu':2}}},{'resources':{'limits':{'x/gpu':3}}},"
        "{}]}");
    struct podspec_defaults defaults = {.limits = &limits};
    assert_int_equal(podspec_parse(pod, &defaults, &spec, NULL), 0);
    resources_write(&spec.requests, spec.names, text, sizeof(text));
    assert_string_equal(text, "cpu 3, ephemeral-storage 3Gi, x/gpu 5");
    podspec_fini(&spec);
    /* pod-level requests are not touched; its limits had been filled in before */
    auto_json json_t *level =
        from_text("{'resources':{'requests':{'cpu':1},'limits':{'cpu':4}},'containers':[{},{}]}");
    assert_int_equal(podspec_parse(level, &defaults, &spec, NULL), 0);
    assert_int_equal(spec.requests.amount[RESOURCES_CPU], 1000);
    assert_int_equal(resources_get(&spec.requests, "x/gpu"), 2);
    podspec_fini(&spec);
    limitrange_fini(&limits);
    limitrange_fini(&more);
}

static void test_runtime_class(void **state)
{
    struct hvdjob job = make_job("", "");
    struct runtime runtime;
    struct podspec spec;
    const char *missing;
    (void)state;
    auto_json json_t *class = from_text(
        "{'handler':'kata','overhead':{'podFixed':{'cpu':'250m','x/tdx':1}},'scheduling':{"
        "'nodeSelector':{'vm':'yes'},'tolerations':[{'key':'vm','operator':'Exists'}]}}");
    auto_json json_t *pod = from_text(
        "{'runtimeClassName':'kata','nodeSelector':{'a':''},'tolerations':[{'key':'b','value':'c'}]"
        ",'containers':[{'resources':{'requests':{'cpu':1}}}]}");
    assert_int_equal(runtime_parse(class, &runtime, NULL), 0);
    assert_int_equal(podspec_parse(pod, NULL, &spec, NULL), 0);
    assert_string_equal(spec.unjudged, "runtimeClassName");
    podspec_fini(&spec);
    struct podspec_defaults defaults = {.runtime = &runtime};
    assert_int_equal(podspec_parse(pod, &defaults, &spec, NULL), 0);
    assert_null(spec.unjudged);
    assert_int_equal(spec.requests.amount[RESOURCES_CPU], 1250);
    assert_int_equal(resources_get(&spec.requests, "x/tdx"), 1);
    struct labels half = {.text = NULL};
    auto_json json_t *labels = from_text("{'a':''}");
    assert_int_equal(labels_parse(labels, &half, NULL), 0);
    assert_false(labels_match(&half, &spec.selector, &missing));
    assert_string_equal(missing, "vm");
    labels_fini(&half);
    assert_int_equal(spec.tolerated.n, 2);
    podspec_fini(&spec);
    runtime_fini(&runtime);
    hvdjob_fini(&job);
}

/* The job's podspec is computed again when a LimitRange comes and goes. */
static void test_job_defaults(void **state)
{
    struct hvdjob job = make_job("", "");
    struct limitrange limits;
    (void)state;
    auto_json json_t *j = from_text(
        "{'spec':{'limits':[{'type':'Container','defaultRequest':{'ephemeral-storage':'1Gi'}}]}}");
    assert_int_equal(limitrange_parse(j, &limits, NULL), 0);
    struct podspec_defaults defaults = {.limits = &limits};
    assert_int_equal(hvdjob_set_defaults(&job, &defaults, NULL), 0);
    assert_int_equal(job.podspec.requests.amount[RESOURCES_STORAGE], 1 << 30);
    assert_int_equal(job.podspec.requests.amount[RESOURCES_CPU], 2000);
    assert_int_equal(hvdjob_set_defaults(&job, NULL, NULL), 0);
    assert_int_equal(job.podspec.requests.amount[RESOURCES_STORAGE], 0);
    assert_string_equal(labels_get(&job.podspec.labels, "hvd.dev/job"), "digits");
    limitrange_fini(&limits);
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
        if (anti_term_selects(&a.all[0], "ml", &labels) != rows[i].selects)
            fail_msg("%s", rows[i].term);
        antiaffinity_fini(&a);
    }
    labels_fini(&labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_no_overflow),
        cmocka_unit_test(test_limit_range),   cmocka_unit_test(test_runtime_class),
        cmocka_unit_test(test_job_defaults),  cmocka_unit_test(test_ports),
        cmocka_unit_test(test_anti_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
