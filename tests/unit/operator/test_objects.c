/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects: parsing and writing of API objects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "tests/unit/operator/jobs.h"

static void test_quantity(void **state)
{
    static const struct {
        const char *text;
        enum quantity_unit unit;
        int64_t want; /* -1: invalid */
        const char *shown;
    } rows[] = {
        {"4", QUANTITY_MILLI, 4000, "4"},
        {"100m", QUANTITY_MILLI, 100, "100m"},
        {"0.5", QUANTITY_MILLI, 500, "500m"},
        {"1.0001", QUANTITY_MILLI, 1001, "1001m"},
        {"1n", QUANTITY_MILLI, 1, "1m"},
        {"8Gi", QUANTITY_BYTES, INT64_C(8) << 30, "8Gi"},
        {"1.5Gi", QUANTITY_BYTES, INT64_C(3) << 29, "1.5Gi"},
        {"2e3", QUANTITY_COUNT, 2000, "2000"},
        {"2E3", QUANTITY_COUNT, 2000, "2000"},
        {"2E", QUANTITY_BYTES, INT64_C(2000000000000000000), NULL},
        {"1k", QUANTITY_COUNT, 1000, "1000"},
        {"100m", QUANTITY_COUNT, 1, "1"},
        {"+3", QUANTITY_COUNT, 3, "3"},
        {"000000000000000000000000000007", QUANTITY_COUNT, 7, "7"},
        {"0.00000000000000000000000000001", QUANTITY_COUNT, 1, "1"},
        {"1.000000000000000Ki", QUANTITY_BYTES, 1024, "1Ki"},
        {"1.00000000000000000Ei", QUANTITY_BYTES, INT64_C(1) << 60, "1024Pi"},
        {"8Ei", QUANTITY_BYTES, QUANTITY_MAX, NULL},
        {"9223372036854775808", QUANTITY_COUNT, QUANTITY_MAX, NULL},
        {"1.00000000000000000000001", QUANTITY_MILLI, 1001, NULL}, /* rounded up, as a request is */
        {"99999999999999999999999999Ei", QUANTITY_BYTES, QUANTITY_MAX, NULL},
        {"1e99999999999", QUANTITY_COUNT, QUANTITY_MAX, NULL},
        {"", QUANTITY_COUNT, -1, NULL},
        {".", QUANTITY_COUNT, -1, NULL},
        {"-1", QUANTITY_COUNT, -1, NULL},
        {"1Q", QUANTITY_COUNT, -1, NULL},
        {"1.2.3", QUANTITY_COUNT, -1, NULL},
        {"1e", QUANTITY_COUNT, -1, NULL},
        {"1e5x", QUANTITY_COUNT, -1, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t have = -1;
        char shown[32];
        int rc = quantity_parse(rows[i].text, rows[i].unit, &have);
        if (rc != (rows[i].want < 0 ? -EINVAL : 0) || have != rows[i].want)
            fail_msg("%s: %d, %lld", rows[i].text, rc, (long long)have);
        quantity_write(have, rows[i].unit, shown, sizeof(shown));
        if (rows[i].shown)
            assert_string_equal(shown, rows[i].shown);
    }
}

static void test_moment(void **state)
{
    static const struct {
        const char *text;
        int64_t want; /* -1: invalid */
    } rows[] = {
        {"2023-11-14T22:13:20Z", NOW},
        {"2023-11-14T22:13:20.5Z", NOW + 500},
        {"2023-11-14T22:13:20.123456Z", NOW + 123},
        {"2023-11-15T00:13:20+02:00", NOW},
        {"2023-11-14T20:43:20-01:30", NOW},
        {"", MOMENT_NONE},
        {NULL, MOMENT_NONE},
        {"2023-11-14", -1},
        {"2023-13-14T22:13:20Z", -1},
        {"2023-11-14T22:13:20", -1},
        {"2023-11-14T22:13:20.Z", -1},
        {"2023-11-14T22:13:20Zx", -1},
        {"1969-12-31T23:59:59Z", -1},
        {"1970-01-01T00:00:00+01:00", -1},
    };
    char text[MOMENT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t have = -1;
        int rc = moment_parse(rows[i].text, &have);
        if (rc != (rows[i].want < 0 ? -EINVAL : 0) || have != rows[i].want)
            fail_msg("%s: %d, %lld", rows[i].text, rc, (long long)have);
    }
    moment_write(NOW + 999, text);
    assert_string_equal(text, "2023-11-14T22:13:20Z");
}

/* ---- pods ----------------------------------------------------------------------------------- */

#define POD_HEAD                                                                                   \
    "{'metadata':{'name':'digits-3-1','uid':'p','labels':{'hvd.dev/job':'digits',"                 \
    "'hvd.dev/worker':'3','hvd.dev/attempt':'1'},'ownerReferences':[{'uid':'x'},"                  \
    "{'uid':'u1','controller':true}]},"

static struct pod read_pod(const char *text)
{
    struct pod p;
    struct err err = {0};
    auto_json json_t *j = from_text(text);
    if (pod_parse(j, &p, &err) < 0)
        fail_msg("%s", err.msg);
    return p;
}

/* A pod's name says which worker it is. Its labels may only differ from that. */
static void test_strayed_pod(void **state)
{
    static const struct {
        const char *name, *labels, *kind, *job;
        int worker, attempt;
        bool strayed;
    } rows[] = {
        {"a-3-1", "'hvd.dev/job':'a','hvd.dev/worker':'3','hvd.dev/attempt':'1'", "HvdJob", "a", 3,
         1, false},
        {"a-3-1", "'hvd.dev/worker':'3','hvd.dev/attempt':'1'", "HvdJob", "a", 3, 1, true},
        {"a-3-1", "'hvd.dev/job':'b','hvd.dev/worker':'3','hvd.dev/attempt':'1'", "HvdJob", "a", 3,
         1, true},
        {"a-3-1", "'hvd.dev/job':'a','hvd.dev/worker':'2','hvd.dev/attempt':'1'", "HvdJob", "a", 3,
         1, true},
        {"a-3-1", "'hvd.dev/job':'a','hvd.dev/worker':'3'", "HvdJob", "a", 3, 1, true},
        {"a-3-1", "'hvd.dev/job':'b'", "ConfigMap", "b", -1, -1, false},
        {"a-3-1", "", "ConfigMap", "", -1, -1, false},
        {"a-3", "", "HvdJob", "a", -1, -1, false},
        {"a-3-1x", "", "HvdJob", "a", -1, -1, false},
        {"a-99999999999-1", "", "HvdJob", "a", -1, -1, false},
        {"a-65535-1073741822", "", "HvdJob", "a", 65535, 1073741822, true},
        {"a-65536-0", "", "HvdJob", "a", -1, -1, false}, /* no status could count it */
        {"a-0-1073741823", "", "HvdJob", "a", -1, -1, false},
        {"b-a-3-1", "'hvd.dev/job':'a'", "HvdJob", "a", -1, -1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "{'metadata':{'name':'%s','uid':'p','labels':{%s},'ownerReferences':[{'kind':'%s',"
                 "'apiVersion':'hvd.dev/v1alpha1','name':'a','uid':'u1','controller':true}]}}",
                 rows[i].name, rows[i].labels, rows[i].kind);
        struct pod p = read_pod(text);
        if (strcmp(p.job, rows[i].job) != 0 || p.worker != rows[i].worker ||
            p.attempt != rows[i].attempt || p.strayed != rows[i].strayed)
            fail_msg("row %zu: job %s, worker %d, attempt %d, strayed %d", i, p.job, p.worker,
                     p.attempt, p.strayed);
        pod_fini(&p);
    }
}

static void test_pod_stuck(void **state)
{
    (void)state;
    struct pod p = read_pod("{'metadata':{'name':'x','uid':'u'}}");
    assert_false(p.deleting);
    assert_true(pod_stuck_at(&p) == INT64_MAX);
    pod_fini(&p);
    p = read_pod("{'metadata':{'name':'x','uid':'u','deletionTimestamp':'2023-11-14T22:13:20Z',"
                 "'deletionGracePeriodSeconds':600}}");
    assert_true(p.deleting);
    assert_true(pod_stuck_at(&p) == NOW + POD_LEAVES_LATE);
    pod_fini(&p);
}

static void test_pod_ends(void **state)
{
    static const struct {
        const char *status;
        bool disrupted;
        int code;
        const char *reason, *why;
    } rows[] = {
        {"'phase':'Failed','containerStatuses':[{'state':{'terminated':{'exitCode':0}}},"
         "{'state':{'terminated':{'exitCode':137,'reason':'OOMKilled'}}}]",
         false, 137, "OOMKilled", "OOMKilled"},
        {"'phase':'Failed','containerStatuses':[{'state':{'terminated':{'exitCode':3,'reason':"
         "'Error','message':'rank 2: no data'}}}]",
         false, 3, "Error", "Error: rank 2: no data"},
        {"'phase':'Failed','reason':'Evicted','message':'low on memory','containerStatuses':[{"
         "'state':{'terminated':{'exitCode':137,'reason':'Error'}}}]",
         true, 137, "Evicted", "Evicted: low on memory"},
        {"'phase':'Failed','conditions':[{'type':'DisruptionTarget','status':'True'}],"
         "'containerStatuses':[{'state':{'terminated':{'exitCode':143,'reason':'Error'}}}]",
         true, 143, "Error", "Error"},
        {"'phase':'Failed','containerStatuses':[{'state':{'terminated':{'exitCode':125,'reason':"
         "'Error','message':'hvd-agent: operator-away: no answer'}}}]",
         true, 125, "Error", "Error: hvd-agent: operator-away: no answer"},
        {"'phase':'Failed','containerStatuses':[{'state':{'terminated':{'exitCode':125,'reason':"
         "'Error','message':'hvd-agent: invalid-setting: HVD_BIND=x'}}}]",
         false, 125, "Error", "Error: hvd-agent: invalid-setting: HVD_BIND=x"},
        {"'phase':'Failed','containerStatuses':[{'state':{'terminated':{'exitCode':125,'reason':"
         "'Error','message':'my own 125'}}}]",
         false, 125, "Error", "Error: my own 125"},
        {"'phase':'Failed','reason':'DeadlineExceeded'", false, 0, "DeadlineExceeded",
         "DeadlineExceeded"},
        {"'phase':'Failed','reason':'OutOfcpu'", true, 0, "OutOfcpu", "OutOfcpu"},
        {"'phase':'Failed'", true, 0, "", NULL},
        {"'phase':'Pending','containerStatuses':[{'state':{'waiting':{'reason':"
         "'ContainerCreating'}}}]",
         false, 0, "", NULL},
        {"'phase':'Pending','containerStatuses':[{'state':{'waiting':{'reason':'ErrImagePull',"
         "'message':'no such image'}}}]",
         false, 0, "", "ErrImagePull: no such image"},
        {"'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False','message':"
         "'0/3 nodes are available'}]",
         false, 0, "", "Unschedulable: 0/3 nodes are available"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text), POD_HEAD "'status':{%s}}", rows[i].status);
        struct pod p = read_pod(text);
        if (p.disrupted != rows[i].disrupted || p.exit_code != rows[i].code ||
            strcmp(p.reason, rows[i].reason) != 0 || !p.why != !rows[i].why ||
            (p.why && strcmp(p.why, rows[i].why) != 0))
            fail_msg("%s: %d %d %s %s", rows[i].status, p.disrupted, p.exit_code, p.reason,
                     p.why ? p.why : "-");
        assert_string_equal(p.owner, "u1");
        assert_int_equal(p.worker, 3);
        assert_int_equal(p.attempt, 1);
        pod_fini(&p);
    }
}

/* Of a long log the last lines count: the agent says at its end why the pod failed. */
static void test_long_message(void **state)
{
    static const char last[] = "hvd-agent: rank 2 exited with code 3";
    char text[2048], log[1024] = "";
    (void)state;
    for (int i = 0; i < 25; i++)
        snprintf(log + strlen(log), sizeof(log) - strlen(log), "epoch %02d loss 0.123456789\\n", i);
    snprintf(text, sizeof(text),
             POD_HEAD "'status':{'phase':'Failed','containerStatuses':[{'state':{'terminated':{"
                      "'exitCode':3,'reason':'Error','message':'%s%s'}}}]}}",
             log, last);
    struct pod p = read_pod(text);
    assert_true(strlen(p.why) <= strlen("Error: ") + 400);
    assert_memory_equal(p.why, "Error: epoch 1", strlen("Error: epoch 1"));
    assert_string_equal(p.why + strlen(p.why) - strlen(last), last);
    pod_fini(&p);
}

/* A gate of ours is removed by us, and says nothing; one of another controller is the reason. */
static void test_gates(void **state)
{
#define BLOCKED                                                                                    \
    "'status':{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False','reason':"  \
    "'SchedulingGated','message':'Scheduling is blocked due to non-empty scheduling gates'}]}}"
    (void)state;
    struct pod p =
        read_pod(POD_HEAD "'spec':{'schedulingGates':[{'name':'" POD_GATE "'}]}," BLOCKED);
    assert_true(p.gated);
    assert_null(p.why);
    pod_fini(&p);
    p = read_pod(POD_HEAD "'spec':{'schedulingGates':[{'name':'" POD_GATE
                          "'},{'name':'site/quota'},{'name':'b'}]}," BLOCKED);
    assert_true(p.gated);
    assert_string_equal(p.why,
                        "another controller has not removed its scheduling gate: site/quota");
    pod_fini(&p);
#undef BLOCKED
}

/* Containers add up, init containers run one after the other, sidecars beside all that follow. */
static void test_requests(void **state)
{
    (void)state;
    struct pod p = read_pod(
        POD_HEAD
        "'spec':{'nodeName':'n1','schedulingGates':[{'name':'other'}],'overhead':{'cpu':"
        "'100m'},'initContainers':[{'resources':{'requests':{'cpu':'3'}}},{'restartPolicy':"
        "'Always','resources':{'requests':{'cpu':'1'}}},{'resources':{'requests':{'cpu':"
        "'2500m'}}}],'containers':[{'resources':{'limits':{'cpu':'2','memory':'1Gi'},"
        "'requests':{'cpu':1}}},{}]}}");
    assert_int_equal(p.requests.amount[RESOURCES_CPU], 3600); /* sidecar 1 + init 2.5, and 0.1 */
    assert_int_equal(p.requests.amount[RESOURCES_MEMORY], 1 << 30);
    assert_int_equal(p.requests.amount[RESOURCES_PODS], 1);
    assert_string_equal(p.node, "n1");
    assert_false(p.gated); /* a gate of another controller */
    pod_fini(&p);
    static const char *const bad[] = {"{'metadata':{'name':'x'}}", "{'metadata':{'uid':'x'}}", "[]",
                                      "{'metadata':{'name':'','uid':''}}"};
    for (size_t i = 0; i < 4; i++) {
        struct err err = {0};
        auto_json json_t *j = from_text(bad[i]);
        assert_int_equal(pod_parse(j, &p, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
}

static void test_node(void **state)
{
    struct node n;
    const char *missing;
    struct labels want = {0};
    struct taints tolerated = {0};
    (void)state;
    auto_json json_t *j = from_text(
        "{'metadata':{'name':'n','labels':{'a':'1','b':''}},'spec':{'unschedulable':true,'taints':["
        "{"
        "'key':'soft','effect':'PreferNoSchedule'},{'key':'ml','value':'x','effect':'NoSchedule'}]}"
        ","
        "'status':{'allocatable':{'cpu':'3920m','memory':'64Gi','pods':'110','nvidia.com/gpu':'8'},"
        "'conditions':[{'type':'Ready','status':'True'}]}}");
    assert_int_equal(node_parse(j, &n, NULL), 0);
    assert_true(n.ready && n.cordoned);
    assert_string_equal(labels_get(&n.labels, "b"), "");
    assert_null(labels_get(&n.labels, "c"));
    auto_json json_t *selector = from_text("{'a':'2'}");
    assert_int_equal(labels_parse(selector, &want, NULL), 0);
    assert_false(labels_match(&n.labels, &want, &missing));
    assert_string_equal(missing, "a");
    assert_string_equal(taints_refuse(&n.taints, &tolerated)->key, "ml");
    static const struct {
        const char *text;
        bool fine;
    } rows[] = {
        {"[{'key':'ml','operator':'Exists'}]", true},
        {"[{'operator':'Exists'}]", true},
        {"[{'key':'ml','value':'x','effect':'NoSchedule'}]", true},
        {"[{'key':'ml','value':'y'}]", false},
        {"[{'key':'ml','operator':'Exists','effect':'NoExecute'}]", false},
        {"[{'key':'soft','operator':'Exists'}]", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_json json_t *list = from_text(rows[i].text);
        assert_int_equal(tolerations_parse(list, &tolerated, NULL), 0);
        assert_int_equal(!taints_refuse(&n.taints, &tolerated), rows[i].fine);
        taints_fini(&tolerated);
    }
    labels_fini(&want);
    node_fini(&n);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    static const struct {
        const char *spec, *words;
    } rows[] = {
        {"'workers':0", "spec.workers: want an integer from 1 to 10000"},
        {"'workers':'2'", "spec.workers: want an integer"},
        {"'workers':2,'minWorkers':3", "spec.workers: 2 is less than minWorkers 3"},
        {"'workers':4,'maxWorkers':3", "spec.workers: 4 is more than maxWorkers 3"},
        {"'workers':4,'keepPlaces':true", "spec.keepPlaces: it needs minWorkers or maxWorkers"},
        {"'maxWorkers':4,'keepPlaces':1", "spec.keepPlaces: want true or false"},
        {"'slotsPerWorker':0", "spec.slotsPerWorker: want an integer from 1 to 1024"},
        {"'gang':{'backend':'kueue'}", "spec.gang.backend: want one of auto gates native"},
        {"'gang':{'timeoutSeconds':0}", "spec.gang.timeoutSeconds"},
        {"'gang':[]", "spec.gang: want a mapping"},
        {"'runPolicy':{'cleanPodPolicy':'all'}", "want one of Running All None"},
        {"'runPolicy':{'backoffLimit':-1}", "spec.runPolicy.backoffLimit"},
        {"'runPolicy':{'suspend':'yes'}", "spec.runPolicy.suspend: want true or false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hvdjob job = make_job(rows[i].spec, "");
        if (!strstr(words(job.refused), rows[i].words))
            fail_msg("%s: \"%s\"", rows[i].spec, words(job.refused));
        hvdjob_fini(&job);
    }
}

/* A template with this annotation for /dev/shm and this memory limit. */
#define SHM(size, limit)                                                                           \
    "{'template':{'metadata':{'annotations':{'hvd.dev/shm-size':'" size                            \
    "'}},'spec':{'containers':[{'command':['x'],'resources':{'limits':{'memory':'" limit           \
    "'}}}]}}}"

static void test_template(void **state)
{
    static const struct {
        const char *name, *spec, *words;
    } rows[] = {
        {"a", "{}", "spec.template.spec.containers: want a list"},
        {"a", "{'template':3}", "spec.template: want a mapping"},
        {"a", "{'template':{'spec':{'containers':[]}}}", "want a list with a container"},
        {"a", "{'template':{'spec':{'containers':[7]}}}", "containers[0]: want a mapping"},
        {"a", "{'template':{'spec':{'containers':[{'name':'x'}]}}}",
         "containers[0].command: missing"},
        {"a",
         "{'template':{'spec':{'containers':[{'command':['x'],'resources':{'requests':{'cpu':'many'"
         "}}}]}}}",
         "spec.template.spec: containers[0]: resources: cpu: want an amount"},
        {"a", "{'template':{'spec':{'containers':[{'command':['x']}],'restartPolicy':'Always'}}}",
         "restartPolicy: want Never"},
        {"a", "{'template':{'spec':{'containers':[{'command':['x']}],'nodeSelector':{'a':1}}}}",
         "nodeSelector: a: want a name with a text"},
        {"a", "{'template':{'spec':{'containers':[{'command':['x']}],'nodeName':'n1'}}}",
         "spec.template.spec.nodeName: remove it: such pods start on node n1 without a check that "
         "they fit. To choose nodes, use nodeSelector or nodeAffinity on the label "
         "kubernetes.io/hostname"},
        {"a", "{'template':{'spec':{'containers':[{'command':['x']}],'nodeName':''}}}", ""},
        {"a.b", "{'template':{'spec':{'containers':[{'command':['x']}]}}}",
         "metadata.name: it contains a dot"},
        {"a123456789012345678901234567890123456789012345678",
         "{'template':{'spec':{'containers':[{'command':['x']}]}}}",
         "metadata.name: it has 49 characters"},
        {"a", "3", "spec: missing"},
        {"a", "{'template':{'spec':{'containers':[{'command':['x']}]}}}", ""},
        {"a",
         "{'template':{'spec':{'containers':[{'command':['x']}],'volumes':[{'name':'hvd-shm'}]}}}",
         "volumes[0].name: names that begin with \"hvd-\" are reserved for the operator"},
        {"a",
         "{'template':{'spec':{'containers':[{'command':['x'],'volumeMounts':[{'mountPath':'/"
         "data'},"
         "{'mountPath':'/hvd/x'}]}]}}}",
         "containers[0].volumeMounts[1].mountPath: /hvd is reserved"},
        {"a",
         "{'template':{'spec':{'containers':[{'command':['x'],'volumeMounts':[{'mountPath':'/"
         "hvdata'"
         "}]}]}}}",
         ""},
        {"a", "{'template':{'spec':{'containers':[{'command':['x'],'env':'x'}]}}}",
         "spec.template.spec.containers[0].env: want a list"},
        {"a", "{'template':{'metadata':7,'spec':{'containers':[{'command':['x']}]}}}",
         "spec.template.metadata: want a mapping"},
        {"a", "{'template':{'spec':{'volumes':null,'containers':[{'command':['x'],'args':null}]}}}",
         ""},
        {"a", SHM("lots", "1Gi"), "hvd.dev/shm-size: want an amount such as 2Gi, got \"lots\""},
        {"a", SHM("0", "1Gi"), "want an amount"},
        {"a", SHM("2Gi", "1Gi"), "2Gi is more than the container's memory limit"},
        {"a", SHM("1Gi", "1Gi"), ""},
        {"a",
         "{'doctor':{'policy':'maybe'},'template':{'spec':{'containers':[{'command':['x']}]}}}",
         "spec.doctor.policy: want one of warn fail off"},
        {"a", "{'doctor':{'level':3},'template':{'spec':{'containers':[{'command':['x']}]}}}",
         "spec.doctor.level: want an integer from 0 to 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[1024];
        struct hvdjob job;
        snprintf(text, sizeof(text), "{'metadata':{'name':'%s','uid':'u'},'spec':%s}", rows[i].name,
                 rows[i].spec);
        auto_json json_t *j = from_text(text);
        assert_int_equal(hvdjob_parse(j, &job, NULL), 0);
        if (!strstr(words(job.refused), rows[i].words) || (!*rows[i].words && job.refused))
            fail_msg("%s: \"%s\"", rows[i].spec, words(job.refused));
        hvdjob_fini(&job);
    }
}

static void test_defaults(void **state)
{
    static const struct {
        const char *spec;
        int workers, min, max;
        bool elastic, keep_places;
    } rows[] = {
        {"", 1, 1, 1, false, false},
        {"'workers':3", 3, 3, 3, false, false},
        {"'minWorkers':2", 2, 2, 2, true, false},
        {"'workers':3,'maxWorkers':5", 3, 3, 5, true, false},
        {"'workers':3,'minWorkers':1,'maxWorkers':5,'keepPlaces':true", 3, 1, 5, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hvdjob job = make_job(rows[i].spec, "");
        assert_null(job.refused);
        assert_int_equal(job.workers, rows[i].workers);
        assert_int_equal(job.min, rows[i].min);
        assert_int_equal(job.max, rows[i].max);
        assert_int_equal(job.elastic, rows[i].elastic);
        assert_int_equal(job.keep_places, rows[i].keep_places);
        assert_true(job.ours);
        assert_int_equal(job.podspec.requests.amount[RESOURCES_CPU], 2000);
        hvdjob_fini(&job);
    }
}

/* The sizes of an invalid spec: its own if they are valid, else as many workers as there are. */
static void test_sizes_of_invalid_specs(void **state)
{
    static const struct {
        const char *spec;
        int workers, min, max, slots;
        bool elastic;
    } rows[] = {
        {"'workers':3,'minWorkers':2,'maxWorkers':4,'doctor':{'level':7}", 3, 2, 4, 1, true},
        {"'workers':1,'minWorkers':2,'slotsPerWorker':8", 5, 1, 5, 8, true},
        {"'workers':0", 5, 5, 5, 1, false},
        {"'workers':0,'maxWorkers':9,'slotsPerWorker':8", 5, 1, 5, 8, true},
        {"'workers':3,'maxWorkers':'many'", 5, 1, 5, 1, true},
        {"'minWorkers':2,'maxWorkers':20000", 5, 1, 5, 1, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hvdjob job = make_job(rows[i].spec, "'workers':5");
        assert_non_null(job.refused);
        if (job.workers != rows[i].workers || job.min != rows[i].min || job.max != rows[i].max ||
            job.slots != rows[i].slots || job.elastic != rows[i].elastic)
            fail_msg("%s: %d workers, %d to %d, of %d slots", rows[i].spec, job.workers, job.min,
                     job.max, job.slots);
        hvdjob_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantity),     cmocka_unit_test(test_moment),
        cmocka_unit_test(test_pod_stuck),    cmocka_unit_test(test_pod_ends),
        cmocka_unit_test(test_long_message), cmocka_unit_test(test_sizes_of_invalid_specs),
        cmocka_unit_test(test_gates),        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_node),         cmocka_unit_test(test_strayed_pod),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_template),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
