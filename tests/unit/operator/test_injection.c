/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/injection and operator/objects/template: what a pod has besides its
 * template, and that all of it passes pod security "restricted".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/objects/template.h"
#include "operator/reconcile/injection.h"
#include "operator/reconcile/newpod.h"
#include "tests/unit/operator/jobs.h"

static const struct injection usual = {.url = "https://hvd-operator.hvd-system:7443",
                                       .ca = "-----BEGIN CERTIFICATE-----\nabc\n",
                                       .audience = "hvd-operator",
                                       .bundle = "registry/hvd-bundle:0.1.0"};

/* The pod of a job whose template has this spec and metadata. */
static json_t *make(const struct injection *e, const char *metadata, const char *spec)
{
    char text[3000], api[8];
    struct hvdjob job;
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'digits','namespace':'ml','uid':'u1'},'spec':{'doctor':{'policy':"
             "'fail','level':2},'template':{'metadata':{%s},'spec':{%s}}}}",
             metadata, spec);
    auto_json json_t *j = from_text(text);
    assert_int_equal(hvdjob_parse(j, &job, NULL), 0);
    assert_null(job.refused);
    json_t *pod = newpod(&job, gang_choose(&job, "", api, sizeof(api), NULL), 2, 1);
    assert_non_null(pod);
    assert_int_equal(injection_add(e, &job, pod), 0);
    hvdjob_fini(&job);
    return pod;
}

/* Looks up a path such as "spec.containers.0.name". */
static json_t *at(json_t *j, const char *path)
{
    char name[128];
    for (; j && *path; path += *path == '.') {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(name)) : json_object_get(j, name);
        path += n;
    }
    return j;
}

static void is(json_t *pod, const char *path, const char *want)
{
    char wrapped[2048];
    snprintf(wrapped, sizeof(wrapped), "[%s]", want);
    auto_json json_t *list = from_text(wrapped);
    json_t *have = at(pod, path);
    auto_free char *text = have ? json_dumps(have, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (!have || !json_equal(have, json_array_get(list, 0)))
        fail_msg("%s: %s, want %s", path, text ? text : "missing", want);
}

static const char *env(json_t *pod, const char *name)
{
    static char text[512];
    size_t i;
    json_t *item;
    const char *found = NULL;
    json_array_foreach(at(pod, "spec.containers.0.env"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) != 0)
            continue;
        assert_null(found); /* at most one */
        json_t *value = json_object_get(item, "value");
        if (!value)
            value = at(item, "valueFrom.fieldRef.fieldPath");
        snprintf(text, sizeof(text), "%s", json_string_value(value));
        found = text;
    }
    return found;
}

#define LEAST "'containers':[{'name':'w','command':['python3','a b.py']}]"

static void test_least(void **state)
{
    (void)state;
    auto_json json_t *pod = make(&usual, "", LEAST);
    is(pod, "spec.containers.0.command", "['/hvd/bin/hvd-agent','pod','--','python3','a b.py']");
    is(pod, "spec.initContainers.0.image", "'registry/hvd-bundle:0.1.0'");
    is(pod, "spec.initContainers.0.command", "['/bin/hvd-launch','--install','/hvd']");
    is(pod, "spec.initContainers.0.resources", "{}");
    is(pod, "spec.initContainers.0.volumeMounts", "[{'name':'hvd-bundle','mountPath':'/hvd'}]");
    is(pod, "spec.volumes",
       "[{'name':'hvd-shm','emptyDir':{'medium':'Memory','sizeLimit':'1073741824'}},"
       "{'name':'hvd-token','projected':{'sources':[{'serviceAccountToken':{'audience':"
       "'hvd-operator','expirationSeconds':3600,'path':'token'}}]}},"
       "{'name':'hvd-bundle','emptyDir':{'sizeLimit':'256Mi'}}]");
    is(pod, "spec.containers.0.volumeMounts",
       "[{'name':'hvd-shm','mountPath':'/dev/shm'},"
       "{'name':'hvd-token','mountPath':'/var/run/secrets/hvd.dev','readOnly':true},"
       "{'name':'hvd-bundle','mountPath':'/hvd','readOnly':true}]");
    is(pod, "spec.containers.0.readinessProbe.httpGet", "{'path':'/ready','port':7444}");
    is(pod, "spec.automountServiceAccountToken", "false");
    assert_null(at(pod, "spec.containers.0.securityContext")); /* may run as root */
}

static void test_environment(void **state)
{
    (void)state;
    auto_json json_t *pod =
        make(&usual, "",
             "'terminationGracePeriodSeconds':45,'containers':[{'name':'w','command':['x'],'args':["
             "'$(HVD_JOB_NAME)'],'env':[{'name':'A','value':'$(HVD_POD_NAME)'},{'name':"
             "'HVD_OPERATOR','value':'http://elsewhere'},{'name':'HVD_BIND','value':'core'},"
             "{'name':'HVD_DOCTOR_LEVEL','value':'1'}]}]");
    is(pod, "spec.containers.0.command", "['/hvd/bin/hvd-agent','pod','--','x','$(HVD_JOB_NAME)']");
    assert_null(at(pod, "spec.containers.0.args"));
    assert_string_equal(env(pod, "HVD_OPERATOR"), usual.url);
    assert_string_equal(env(pod, "HVD_OPERATOR_CA"), usual.ca);
    assert_string_equal(env(pod, "HVD_TOKEN_FILE"), "/var/run/secrets/hvd.dev/token");
    assert_string_equal(env(pod, "HVD_JOB_UID"), "u1");
    assert_string_equal(env(pod, "HVD_JOB_NAME"), "digits");
    assert_string_equal(env(pod, "HVD_JOB_NAMESPACE"), "ml");
    assert_string_equal(env(pod, "HVD_POD_UID"), "metadata.uid");
    assert_string_equal(env(pod, "HVD_POD_NAME"), "metadata.name");
    assert_string_equal(env(pod, "HVD_DOCTOR"), "fail");
    assert_string_equal(env(pod, "HVD_DOCTOR_LEVEL"), "2"); /* overrides the template's */
    assert_string_equal(env(pod, "HVD_DRAIN_SECONDS"), "40");
    assert_string_equal(env(pod, "HVD_METRICS"), "7444");
    assert_string_equal(env(pod, "HVD_BIND"), "core");
    /* A variable may refer only to those before it. */
    size_t last = json_array_size(at(pod, "spec.containers.0.env")) - 1;
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(at(pod, "spec.containers.0.env"), last - 1), "name")),
                        "A");
}

static void test_drain(void **state)
{
    static const struct {
        int grace;
        const char *want;
    } rows[] = {{0, "1"},  {1, "1"},   {2, "1"},           {10, "5"},
                {11, "6"}, {60, "55"}, {99999999, "86400"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char spec[256];
        snprintf(spec, sizeof(spec), "'terminationGracePeriodSeconds':%d," LEAST, rows[i].grace);
        auto_json json_t *pod = make(&usual, "", spec);
        assert_string_equal(env(pod, "HVD_DRAIN_SECONDS"), rows[i].want);
    }
}

#define WITH_LIMIT                                                                                 \
    "'containers':[{'name':'w','command':['x'],'resources':{'requests':{'cpu':2,'memory':'4Gi'},"  \
    "'limits':{'memory':'4Gi','nvidia.com/gpu':8}}}]"

static void test_shm(void **state)
{
    static const struct {
        const char *metadata, *spec, *want;
    } rows[] = {
        {"", WITH_LIMIT, "2147483648"},
        {"'annotations':{'hvd.dev/shm-size':'3Gi'}", WITH_LIMIT, "3221225472"},
        {"'annotations':{'hvd.dev/shm-size':'64Mi'}", LEAST, "67108864"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[128];
        auto_json json_t *pod = make(&usual, rows[i].metadata, rows[i].spec);
        snprintf(want, sizeof(want), "{'medium':'Memory','sizeLimit':'%s'}", rows[i].want);
        is(pod, "spec.volumes.0.emptyDir", want);
    }
    /* The template's own /dev/shm: none is injected. */
    auto_json json_t *pod =
        make(&usual, "",
             "'volumes':[{'name':'mine','emptyDir':{'medium':'Memory'}}],'containers':[{'name':'w',"
             "'command':['x'],'volumeMounts':[{'name':'mine','mountPath':'/dev/shm'}]}]");
    is(pod, "spec.volumes.0.name", "'mine'");
    is(pod, "spec.volumes.1.name", "'hvd-token'");
}

/* A pod requests no more than its template, in each QoS class. */
static void test_requests(void **state)
{
    static const char *const specs[] = {
        LEAST, WITH_LIMIT,
        "'initContainers':[{'name':'i','restartPolicy':'Always','resources':{'requests':{'cpu':'1',"
        "'memory':'1Gi'}}}],'containers':[{'name':'w','command':['x'],'resources':{'requests':{"
        "'cpu':'1','memory':'1Gi'}}},{'name':'s','resources':{'requests':{'cpu':'1'}}}]"};
    (void)state;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        char text[1024];
        struct resources before = {0}, after = {0};
        snprintf(text, sizeof(text), "{%s}", specs[i]);
        auto_json json_t *spec = from_text(text);
        auto_json json_t *pod = make(&usual, "", specs[i]);
        assert_int_equal(podspec_requests(spec, NULL, NULL, &before, NULL), 0);
        assert_int_equal(podspec_requests(at(pod, "spec"), NULL, NULL, &after, NULL), 0);
        assert_memory_equal(before.amount, after.amount, sizeof(before.amount));
        assert_int_equal(before.n, after.n);
        if (before.n > 0)
            assert_memory_equal(before.others, after.others, before.n * sizeof(before.others[0]));
        resources_fini(&before);
        resources_fini(&after);
    }
    auto_json json_t *pod = make(&usual, "", WITH_LIMIT);
    is(pod, "spec.initContainers.0.resources",
       "{'requests':{'cpu':2,'memory':'4Gi'},'limits':{'memory':'4Gi'}}");
}

static void test_bundle(void **state)
{
    struct injection mounted = usual, none = usual;
    (void)state;
    mounted.mount = true;
    none.bundle = NULL;
    auto_json json_t *by_mount = make(&mounted, "", LEAST);
    is(by_mount, "spec.volumes.2",
       "{'name':'hvd-bundle','image':{'reference':'registry/hvd-bundle:0.1.0','pullPolicy':"
       "'IfNotPresent'}}");
    assert_null(at(by_mount, "spec.initContainers"));
    auto_json json_t *without = make(&none, "", LEAST);
    assert_null(at(without, "spec.initContainers"));
    assert_null(at(without, "spec.volumes.2"));
    auto_json json_t *another = make(&usual, "'annotations':{'hvd.dev/bundle':'mine:2'}",
                                     "'initContainers':[{'name':'before','image':'i'}]," LEAST);
    is(another, "spec.initContainers.0.image", "'mine:2'");
    is(another, "spec.initContainers.1.name", "'before'");
}

#define RESTRICTED                                                                                 \
    "{'allowPrivilegeEscalation':false,'runAsNonRoot':true,'capabilities':{'drop':['ALL']},"       \
    "'seccompProfile':{'type':'RuntimeDefault'}}"

static void test_security(void **state)
{
    static const struct {
        const char *of_pod, *of_first, *want;
    } rows[] = {
        {"'runAsUser':1000", "", RESTRICTED},
        {"'runAsNonRoot':true", "", RESTRICTED},
        {"", "'runAsNonRoot':true", RESTRICTED},
        {"'runAsNonRoot':true", "'capabilities':{'add':['IPC_LOCK']}",
         "{'allowPrivilegeEscalation':false,'runAsNonRoot':true,'capabilities':{'add':['IPC_LOCK']}"
         ","
         "'seccompProfile':{'type':'RuntimeDefault'}}"},
        {"'runAsUser':1000,'seccompProfile':{'type':'Localhost'}", "",
         "{'allowPrivilegeEscalation':false,'runAsNonRoot':true,'capabilities':{'drop':['ALL']}}"},
        {"'runAsUser':1000", "'runAsUser':0", "{'runAsUser':0}"},
        {"'runAsUser':0", "'privileged':true", "{'privileged':true}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char spec[512];
        snprintf(spec, sizeof(spec),
                 "'securityContext':{%s},'containers':[{'name':'w','command':['x'],"
                 "'securityContext':{%s}}]",
                 rows[i].of_pod, rows[i].of_first);
        auto_json json_t *pod = make(&usual, "", spec);
        is(pod, "spec.containers.0.securityContext", rows[i].want);
        /* The init container passes whatever user the pod runs as. */
        is(pod, "spec.initContainers.0.securityContext.runAsNonRoot", "true");
        is(pod, "spec.initContainers.0.securityContext.capabilities", "{'drop':['ALL']}");
        json_t *user = at(pod, "spec.initContainers.0.securityContext.runAsUser");
        assert_true(!user == !strstr(rows[i].of_pod, "'runAsUser':0"));
    }
}

#define EVICTABLE "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

/* The cluster autoscaler may evict the pod: its own emptyDirs do not matter, the user's may. */
static void test_evictable(void **state)
{
    struct injection mounted = usual; /* the bundle is an image volume */
    mounted.mount = true;
    const struct {
        const struct injection *e;
        const char *metadata, *volumes, *want;
    } rows[] = {
        {&usual, "", "", "'hvd-shm,hvd-bundle'"},
        {&usual, "'annotations':{'" EVICTABLE "':'scratch'}",
         "'volumes':[{'name':'scratch','emptyDir':{}}],", "'scratch,hvd-shm,hvd-bundle'"},
        {&mounted, "", "'volumes':[{'name':'data','emptyDir':{}}],", "'hvd-shm'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char spec[512];
        snprintf(spec, sizeof(spec), "%s" LEAST, rows[i].volumes);
        auto_json json_t *pod = make(rows[i].e, rows[i].metadata, spec);
        json_t *have = json_object_get(at(pod, "metadata.annotations"), EVICTABLE);
        char wrapped[256];
        snprintf(wrapped, sizeof(wrapped), "[%s]", rows[i].want);
        auto_json json_t *want = from_text(wrapped);
        if (!json_equal(have, json_array_get(want, 0)))
            fail_msg("%zu: %s", i, have ? json_string_value(have) : "none");
    }
    /* No emptyDir of ours: no annotation. */
    auto_json json_t *none = make(&mounted, "",
                                  "'volumes':[{'name':'m','emptyDir':{'medium':'Memory'}}],"
                                  "'containers':[{'name':'w','command':['x'],'volumeMounts':[{"
                                  "'name':'m','mountPath':'/dev/shm'}]}]");
    assert_null(json_object_get(at(none, "metadata.annotations"), EVICTABLE));
}

static void test_kept(void **state)
{
    (void)state;
    auto_json json_t *pod = make(&usual, "",
                                 "'hostNetwork':true,'containers':[{'name':'w','command':['x'],"
                                 "'terminationMessagePolicy':'File'}]");
    assert_null(at(pod, "spec.containers.0.readinessProbe"));
    assert_null(env(pod, "HVD_METRICS"));
    is(pod, "spec.containers.0.terminationMessagePolicy", "'File'");
    assert_null(env(pod, "HVD_TERMINATION_MESSAGE_PATH"));
    auto_json json_t *moved =
        make(&usual, "",
             "'containers':[{'name':'w','command':['x'],'terminationMessagePath':'/tmp/end'}]");
    assert_string_equal(env(moved, "HVD_TERMINATION_MESSAGE_PATH"), "/tmp/end");
    auto_json json_t *probed = make(
        &usual, "", "'containers':[{'name':'w','command':['x'],'readinessProbe':{'exec':{}}}]");
    is(probed, "spec.containers.0.readinessProbe", "{'exec':{}}");
}

/* ---- no memory ------------------------------------------------------------------------------ */

static long fail_at = -1, live;

static void *counted(size_t size)
{
    if (fail_at >= 0 && fail_at-- == 0)
        return NULL;
    void *p = malloc(size);
    live += p != NULL;
    return p;
}

static void released(void *p)
{
    live -= p != NULL;
    free(p);
}

/* Each allocation fails once: injection_add() returns an error, or the pod is complete, and nothing
 * leaks. */
static void test_no_memory(void **state)
{
    struct hvdjob job = make_job("", "");
    char api[8];
    const struct gang_ops *gang = gang_choose(&job, "", api, sizeof(api), NULL);
    int failed = 0, done = 0;
    (void)state;
    json_t *whole = newpod(&job, gang, 0, 0);
    assert_int_equal(injection_add(&usual, &job, whole), 0);
    json_set_alloc_funcs(counted, released);
    for (int i = 0; done == 0 && i < 10000; i++) {
        live = 0;
        fail_at = i;
        json_t *pod = newpod(&job, gang, 0, 0);
        bool ok = pod && injection_add(&usual, &job, pod) == 0;
        done += fail_at >= 0; /* no allocation failed: all were tried */
        fail_at = -1;
        if (ok && !json_equal(pod, whole))
            fail_msg("allocation %d failed: the pod is not complete", i);
        json_decref(pod);
        assert_int_equal(live, 0);
        failed += !ok;
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(failed > 100 && done == 1);
    json_decref(whole);
    hvdjob_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least),    cmocka_unit_test(test_environment),
        cmocka_unit_test(test_drain),    cmocka_unit_test(test_shm),
        cmocka_unit_test(test_requests), cmocka_unit_test(test_bundle),
        cmocka_unit_test(test_security), cmocka_unit_test(test_evictable),
        cmocka_unit_test(test_kept),     cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
