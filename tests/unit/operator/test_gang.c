/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/gang and newpod: the choice of the back end, its PodGroup, and the
 * pods of workers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/reconcile/newpod.h"
#include "tests/unit/operator/jobs.h"

#define ALL "scheduling.k8s.io/v1alpha2 scheduling.x-k8s.io/v1alpha1 scheduling.volcano.sh/v1beta1"

static void test_choose(void **state)
{
    static const struct {
        const char *backend, *scheduler, *served, *want, *api;
    } rows[] = {
        {"auto", "", "", "gates", ""},
        {"auto", "", "v1 scheduling.k8s.io/v1", "gates", ""},
        {"auto", "", "scheduling.k8s.io/v1alpha22", "gates", ""},
        {"auto", "", ALL, "native", "scheduling.k8s.io/v1alpha2"},
        {"auto", "volcano", ALL, "volcano", "scheduling.volcano.sh/v1beta1"},
        {"auto", "volcano", "", NULL, "does not serve scheduling.volcano.sh (v1beta1)"},
        {"gates", "", ALL, "gates", ""},
        {"native", "", "", NULL, "gang backend native: this cluster does not serve"},
        {"coscheduling", "", ALL, "coscheduling", "scheduling.x-k8s.io/v1alpha1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char spec[128], api[128] = "";
        struct err err = {0};
        snprintf(spec, sizeof(spec), "'gang':{'backend':'%s'}", rows[i].backend);
        struct hvdjob job = make_job(spec, "");
        snprintf(job.podspec.scheduler, sizeof(job.podspec.scheduler), "%s", rows[i].scheduler);
        const struct gang_ops *ops = gang_choose(&job, rows[i].served, api, sizeof(api), &err);
        if (!ops != !rows[i].want || (ops && strcmp(ops->name, rows[i].want) != 0) ||
            !strstr(ops ? api : err.msg, rows[i].api))
            fail_msg("row %zu: %s %s %s", i, ops ? ops->name : "none", api, err.msg);
        hvdjob_fini(&job);
    }
}

/* The JSON for each back end: its PodGroup, and what makes a pod its member. */
static void test_groups(void **state)
{
    static const struct {
        const char *backend, *spec, *waits, *in_pod;
    } rows[] = {
        {"native", "{'schedulingPolicy':{'gang':{'minCount':2}}}",
         "{'status':{'conditions':[{'type':'PodGroupScheduled','status':'False','message':'m'}]}}",
         "\"schedulingGroup\":{\"podGroupName\":\"digits\"}"},
        {"coscheduling", "{'minMember':2,'scheduleTimeoutSeconds':300}", NULL,
         "\"scheduling.x-k8s.io/pod-group\":\"digits\""},
        {"volcano", "{'minMember':2}",
         "{'status':{'conditions':[{'type':'Unschedulable','status':'True','message':'m'}]}}",
         "\"scheduling.k8s.io/group-name\":\"digits\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char spec[128], api[128];
        snprintf(spec, sizeof(spec), "'workers':3,'minWorkers':2,'gang':{'backend':'%s'}",
                 rows[i].backend);
        struct hvdjob job = make_job(spec, "");
        const struct gang_ops *ops = gang_choose(&job, ALL, api, sizeof(api), NULL);
        auto_json json_t *group = gang_group(ops, &job, api);
        auto_json json_t *want = from_text(rows[i].spec);
        auto_json json_t *waits = rows[i].waits ? from_text(rows[i].waits) : NULL;
        auto_json json_t *pod = newpod(&job, ops, 1, 0);
        auto_free char *text = json_write(pod);
        assert_true(json_equal(json_object_get(group, "spec"), want));
        assert_string_equal(json_string_value(json_object_get(group, "apiVersion")), api);
        assert_int_equal(gang_pending(ops, group) != NULL, 0);
        if (waits)
            assert_string_equal(gang_pending(ops, waits), "m");
        if (!strstr(text, rows[i].in_pod))
            fail_msg("%s: %s", rows[i].backend, text);
        hvdjob_fini(&job);
    }
}

static void test_pod(void **state)
{
    char api[8];
    struct hvdjob job = make_job("", "");
    struct pod p;
    (void)state;
    free(job.template_text);
    auto_json json_t *template = from_text(
        "{'metadata':{'name':'mine','labels':{'a':'b','hvd.dev/"
        "job':'other'},'annotations':{'x':'y'}},"
        "'spec':{'restartPolicy':'Always','terminationGracePeriodSeconds':5,'tolerations':[{'key':"
        "'node.kubernetes.io/not-ready','operator':'Exists','tolerationSeconds':7}],'containers':[{"
        "'name':'w','command':['x']}],'schedulingGates':[{'name':'site/quota'}]}}");
    job.template_text = json_write(template);
    const struct gang_ops *gates = gang_choose(&job, "", api, sizeof(api), NULL);
    auto_json json_t *pod = newpod(&job, gates, 3, 2);
    auto_free char *text = json_write(pod);
    static const char *const words[] = {
        "\"name\":\"digits-3-2\"",
        "\"namespace\":\"ml\"",
        "\"a\":\"b\"",
        "\"x\":\"y\"",
        "\"hvd.dev/job\":\"digits\"",
        "\"hvd.dev/worker\":\"3\"",
        "\"hvd.dev/attempt\":\"2\"",
        "\"restartPolicy\":\"Never\"",
        "\"terminationGracePeriodSeconds\":5",
        "\"name\":\"site/quota\"",
        "\"tolerationSeconds\":7",
        "\"tolerationSeconds\":30",
        "\"automountServiceAccountToken\":false",
        "\"kind\":\"HvdJob\",\"name\":\"digits\",\"uid\":\"u1\",\"controller\":true",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strstr(text, words[i]))
            fail_msg("%s is not in %s", words[i], text);
    /* pod_parse() understands what newpod() makes. */
    json_object_set_new(json_object_get(pod, "metadata"), "uid", json_string("p"));
    assert_int_equal(pod_parse(pod, &p, NULL), 0);
    assert_false(p.gated);
    assert_string_equal(p.owner, "u1");
    assert_string_equal(p.job, "digits");
    pod_fini(&p);
    hvdjob_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choose), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_pod)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
