/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects/signals, operator/reconcile/drain and what depends on them: which nodes
 * are drained, which workers leave them and when, and what the job's message and Event say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "operator/objects/parts.h"
#include "operator/objects/signals.h"
#include "operator/reconcile/newpod.h"
#include "tests/unit/operator/jobs.h"

#define LIMIT (900 * MOMENT_S)
/* drainTime, so long before NOW. */
#define AGO_0   ",'drainTime':'2023-11-14T22:13:20Z'"
#define AGO_899 ",'drainTime':'2023-11-14T21:58:21Z'"
#define AGO_900 ",'drainTime':'2023-11-14T21:58:20Z'"

#define DRAINS(a, b) ",'drains':[{'node':" a "},{'node':" b "}]"
#define AGO_1_900    "'n1','since':'2023-11-14T21:58:20Z'"
#define AGO_1_899    "'n1','since':'2023-11-14T21:58:21Z'"
#define AGO_2_900    "'n2','since':'2023-11-14T21:58:20Z'"
#define AGO_2_899    "'n2','since':'2023-11-14T21:58:21Z'"

/* ---- signals --------------------------------------------------------------------------------- */

static struct node_drain look_at(const char *changes, const char *spec, const char *labels)
{
    char text[1024];
    struct signals s;
    struct node node;
    struct node_drain drain;
    struct err err = {0};
    snprintf(text, sizeof(text), "{'metadata':{'name':'n1','labels':{%s}},'spec':{%s}}", labels,
             spec);
    auto_json json_t *j = from_text(text);
    signals_default(&s);
    if (signals_change(&s, changes, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(node_parse(j, &node, NULL), 0);
    signals_look(&s, &node, &drain);
    node_fini(&node);
    return drain;
}

static void test_signals(void **state)
{
    static const struct {
        const char *changes, *spec, *labels;
        enum signal_action action;
        const char *what;
    } rows[] = {
        {"", "", "", SIGNAL_NONE, ""},
        {"", "'taints':[{'key':'other','effect':'NoSchedule'}]", "'a':'b'", SIGNAL_NONE, ""},
        {"", "'unschedulable':true", "", SIGNAL_EVICT, "cordoned"},
        {"",
         "'taints':[{'key':'DeletionCandidateOfClusterAutoscaler','effect':'PreferNoSchedule'}]",
         "", SIGNAL_NOTE, "taint DeletionCandidateOfClusterAutoscaler"},
        {"", "'taints':[{'key':'karpenter.sh/disrupted','effect':'NoSchedule'}]", "", SIGNAL_LEAVE,
         "taint karpenter.sh/disrupted"},
        {"",
         "'unschedulable':true,'taints':[{'key':'ToBeDeletedByClusterAutoscaler','value':'17',"
         "'effect':'NoSchedule'},{'key':'DeletionCandidateOfClusterAutoscaler',"
         "'effect':'PreferNoSchedule'}]",
         "", SIGNAL_LEAVE, "taint ToBeDeletedByClusterAutoscaler"},
        {"", "", "'cloud.google.com/active-node-maintenance':'ONGOING'", SIGNAL_LEAVE,
         "label cloud.google.com/active-node-maintenance=ONGOING"},
        {"", "", "'cloud.google.com/active-node-maintenance':'PENDING'", SIGNAL_NONE, ""},
        {"cordon:replace", "'unschedulable':true", "", SIGNAL_REPLACE, "cordoned"},
        {"cordon:none", "'unschedulable':true", "", SIGNAL_NONE, ""},
        {"rack/off:leave,power=low:note,", "'taints':[{'key':'rack/off','effect':'NoExecute'}]",
         "'power':'low'", SIGNAL_LEAVE, "taint rack/off"},
        {"power=low:note", "", "'power':'low'", SIGNAL_NOTE, "label power=low"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_drain d = look_at(rows[i].changes, rows[i].spec, rows[i].labels);
        if (d.action != rows[i].action || strcmp(d.what, rows[i].what) != 0)
            fail_msg("row %zu: %d %s", i, d.action, d.what);
    }
}

static void test_wrong_lists(void **state)
{
    static const char *const rows[] = {"x",        "x:",       ":leave",   "x:go",
                                       "x=:leave", "=y:leave", "a:leave,b"};
    char many[SIGNALS_MAX * 16] = "", huge[400];
    struct signals s;
    (void)state;
    signals_default(&s);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};
        if (signals_change(&s, rows[i], &err) != -EINVAL || !strstr(err.msg, "ACTION"))
            fail_msg("%s: %s", rows[i], err.msg);
    }
    for (int i = 0; i < SIGNALS_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "k%d:note,", i);
    assert_int_equal(signals_change(&s, many, NULL), -EINVAL);
    memset(huge, 'k', sizeof(huge));
    snprintf(huge + sizeof(huge) - 8, 8, ":leave");
    assert_int_equal(signals_change(&s, huge, NULL), -EINVAL);
}

/* ---- which workers leave --------------------------------------------------------------------- */

#define ELASTIC(policy)                                                                            \
    "'workers':3,'minWorkers':2,'maxWorkers':4,'runPolicy':{'drainPolicy':'" policy "'}"
#define LEAST(policy)                                                                              \
    "'workers':2,'minWorkers':2,'maxWorkers':4,'runPolicy':{'drainPolicy':'" policy "'}"
#define FIXED(policy) "'workers':2,'runPolicy':{'drainPolicy':'" policy "'}"
#define MORE          "Running: status event"

/* Worker i is on node "ni". drains: "1L 2R": node n1 has the signal leave, n2 replace; E evict, N
 * note. */
static const struct row {
    const char *what, *spec, *status, *pods, *drains;
    const char *want, *words; /* as in test_reconcile.c */
} rows[] = {
    {"no drain", ELASTIC("Wait"), "", "0-0R 1-0R 2-0R", "7L", "Running: status",
     "3 of 3 workers run"},
    {"a hint", ELASTIC("Wait"), "", "0-0R 1-0R 2-0R", "1N", "Running: status",
     "node n1 (taint t): worker 1 may be drained"},
    {"a drain ends", ELASTIC("Wait"), AGO_899, "0-0R 1-0R 2-0R", "", "Running: status", NULL},

    {"leave: at once, all of the node together", ELASTIC("Wait"), "", "0-0R 1-0R 2-0R", "1L 2L",
     MORE " -1-0 -2-0",
     "node n1 (taint t): worker 1 and 1 more will leave at the next step boundary"},
    {"leave: a policy cannot block it", ELASTIC("Block"), "", "0-0R 1-0R 2-0R", "1L", MORE " -1-0",
     "will leave at"},
    {"leave: the replacement comes once the pod is being deleted", ELASTIC("Wait"), AGO_0,
     "0-0R 1-0r 2-0R", "1L", "Running: status +1-1", NULL},
    {"leave: below minWorkers the others wait with their state", LEAST("Wait"), AGO_0, "0-0R 1-0r",
     "1L", "Waiting: status event +1-1", NULL},
    {"leave: a pod that does not run yet, too", ELASTIC("Wait"), "", "0-0R 1-0R 2-0B", "2L",
     MORE " -2-0", NULL},

    {"wait: a cordon moves nobody", ELASTIC("Wait"), "", "0-0R 1-0R 2-0R", "1E", MORE,
     "may be evicted while more than 2 run, and in any case from 2023-11-14T22:28:20Z"},
    {"wait: nor when the limit is over", ELASTIC("Wait"), AGO_900, "0-0R 1-0R 2-0R", "1E",
     "Running: status", "worker 1 may be evicted"},
    {"wait: one after the other", ELASTIC("Wait"), "", "0-0R 1-0R 2-0R", "1R 2R", MORE " -1-0",
     NULL},
    {"wait: the next when the first is replaced", ELASTIC("Wait"), AGO_0, "0-0R 1-1R 2-0R", "2R",
     MORE " -2-0", NULL},
    {"wait: not while the first is being replaced", ELASTIC("Wait"), AGO_0, "0-0R 1-1B 2-0R", "2R",
     "Running: status", "worker 2 will be moved before 2023-11-14T22:28:20Z"},
    {"wait: at minWorkers until the limit", LEAST("Wait"), AGO_899, "0-0R 1-0R", "1R",
     "Running: status", "will be moved before 2023-11-14T22:13:21Z"},
    {"wait: and then", LEAST("Wait"), AGO_900, "0-0R 1-0R", "1R", MORE " -1-0", "will leave at"},
    {"wait: a fixed job", FIXED("Wait"), AGO_899, "0-0R 1-0R", "1R", "Running: status", NULL},
    {"wait: a fixed job after the limit", FIXED("Wait"), AGO_900, "0-0R 1-0R", "1R", MORE " -1-0",
     NULL},
    {"wait: a fixed job starts again", FIXED("Wait"), AGO_900, "0-0R 1-0r", "1R",
     "Restarting: status event -0-0", "a node with workers of the job is drained"},

    {"shrink: at once", ELASTIC("Shrink"), "", "0-0R 1-0R 2-0R", "1R", MORE " -1-0", NULL},
    {"shrink: at minWorkers as restart", LEAST("Shrink"), "", "0-0R 1-0R", "1R",
     "Restarting: status event event -0-0 -1-0", "a node with workers of the job is drained"},
    {"shrink: two at once would be too few", ELASTIC("Shrink"), "", "0-0R 1-0R 2-0R", "1R 2R",
     "Restarting: status event event -0-0 -1-0 -2-0", NULL},
    {"shrink: a cordon alone", LEAST("Shrink"), "", "0-0R 1-0R", "1E", MORE, "may be evicted"},
    {"shrink: an eviction at minWorkers", LEAST("Shrink"), AGO_0, "0-0R 1-0r", "1E",
     "Restarting: status event event -0-0", NULL},
    {"shrink: an eviction above minWorkers", ELASTIC("Shrink"), AGO_0, "0-0R 1-0r 2-0R", "1E",
     "Running: status +1-1", NULL},

    {"restart: all", ELASTIC("Restart"), "", "0-0R 1-0R 2-0R", "1R",
     "Restarting: status event event -0-0 -1-0 -2-0", NULL},
    {"restart: by an eviction", ELASTIC("Restart"), AGO_0, "0-0R 1-0r 2-0R", "1E",
     "Restarting: status event event -0-0 -2-0", NULL},
    {"restart: not by a deletion elsewhere", ELASTIC("Restart"), AGO_0, "0-0R 1-0r 2-0R", "2E",
     "Running: status +1-1", NULL},
    {"restart: not by a scale-down", ELASTIC("Restart"), AGO_0, "0-0R 1-0R 2-0R 3-0r", "3E 2E",
     "Running: status", NULL},
    {"restart: is said while it lasts", FIXED("Restart"), AGO_0 ",'phase':'Restarting'",
     "0-0R 1-0r", "1R", "Restarting: status -0-0", "a node with workers of the job is drained"},

    {"block: until the limit", ELASTIC("Block"), AGO_899, "0-0R 1-0R 2-0R", "1R", "Running: status",
     NULL},
    {"block: a cordon", ELASTIC("Block"), AGO_899, "0-0R 1-0R 2-0R", "1E", "Running: status",
     "may not be evicted before 2023-11-14T22:13:21Z"},
    {"block: and then", ELASTIC("Block"), AGO_900, "0-0R 1-0R 2-0R", "1R", MORE " -1-0", NULL},

    {"two nodes: each has its own limit", ELASTIC("Block"), DRAINS(AGO_1_900, AGO_2_899) AGO_900,
     "0-0R 1-0R 2-0R", "1R 2R", MORE " -1-0", NULL},
    {"two nodes: also the second", ELASTIC("Block"), DRAINS(AGO_1_900, AGO_2_900) AGO_900,
     "0-0R 1-0R 2-0R", "1R 2R", MORE " -1-0 -2-0", NULL},
    {"two nodes: the second begins", LEAST("Wait"), DRAINS(AGO_1_899, AGO_1_899) AGO_899,
     "0-0R 1-0R", "0R 1R", MORE, "worker 0 and 1 more will be moved before 2023-11-14T22:28:20Z"},
    {"two nodes: the first ends", ELASTIC("Block"), DRAINS(AGO_1_900, AGO_2_899) AGO_900,
     "0-0R 1-0R 2-0R", "2R", "Running: status", "will be moved before 2023-11-14T22:13:21Z"},

    {"a list that an earlier version has kept", ELASTIC("Block"),
     DRAINS(AGO_1_900, AGO_2_900) AGO_0, "0-0R 1-0R 2-0R", "1R", "Running: status",
     "will be moved before 2023-11-14T22:28:20Z"},

    {"starting", ELASTIC("Wait"), ",'phase':'Starting','admittedTime':'2023-11-14T22:13:19Z'",
     "0-0R 1-0B 2-0B", "1L", "Starting: status event -1-0", NULL},
    {"completing: nobody is replaced, so nobody is moved", ELASTIC("Wait"), ",'phase':'Completing'",
     "0-0S 1-0R 2-0R", "1L", "Completing: status event", NULL},
};

static void set_nodes(struct pod *pods, int n)
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", pods[i].attempt > 0 ? 100 : pods[i].worker);
        free(pods[i].node);
        pods[i].node = strdup(name);
    }
}

static int make_drains(const char *text, struct drain_node *all)
{
    static const char letters[] = "-NERL"; /* in the order of enum signal_action */
    int n = 0;
    for (const char *p = text; *p; p += strcspn(p, " ") + (p[strcspn(p, " ")] == ' ')) {
        char name[] = {'n', *p, '\0'};
        all[n].name = strdup(name);
        all[n].drain.action = (enum signal_action)(strchr(letters, p[1]) - letters);
        snprintf(all[n].drain.what, sizeof(all[n].drain.what), "taint t");
        n++;
    }
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct drain_node *)a)->name, ((const struct drain_node *)b)->name);
}

static void test_table(void **state)
{
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        char status[256], text[512];
        snprintf(status, sizeof(status), "%s%s",
                 strstr(row->status, "phase") ? "" : "'phase':'Running'",
                 row->status + (strstr(row->status, "phase") && row->status[0] == ','));
        struct hvdjob job = make_job(row->spec, status);
        struct pod pods[8];
        const struct pod *list[8];
        struct admission admission = {.again = INT64_MAX};
        struct drain_node nodes[4];
        struct actions a;
        int n = make_pods(row->pods, pods, list);
        set_nodes(pods, n);
        struct drains drains = {nodes, make_drains(row->drains, nodes), LIMIT};
        qsort(nodes, (size_t)drains.n, sizeof(*nodes), by_name);
        struct reconcile_input in = input(&job, list, n, &admission);
        in.drains = &drains;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        told(&a, text, sizeof(text));
        if (strcmp(text, row->want) != 0 ||
            (row->words && !strstr(words(a.status.message), row->words))) {
            print_message("%s:\n  want %s (%s)\n  have %s (%s)\n", row->what, row->want,
                          row->words ? row->words : "", text, words(a.status.message));
            failed++;
        }
        assert_int_equal(a.status.failures, 0);
        actions_fini(&a);
        for (int k = 0; k < n; k++)
            pod_fini(&pods[k]);
        for (int k = 0; k < drains.n; k++)
            free(nodes[k].name);
        hvdjob_fini(&job);
    }
    assert_int_equal(failed, 0);
}

/* status.drains: from the first look to the end of the drain; kept while nodes are not known,
 * so that a new operator does not begin again. */
static void test_since(void **state)
{
    (void)state;
    struct hvdjob job = make_job(LEAST("Wait"), "'phase':'Running'");
    struct pod pods[2];
    const struct pod *list[2];
    struct admission admission = {.again = INT64_MAX};
    struct drain_node node = {(char *)"n1", {SIGNAL_EVICT, "cordoned"}};
    struct drains drains = {&node, 1, LIMIT};
    struct actions a;
    int n = make_pods("0-0R 1-0R", pods, list);
    set_nodes(pods, n);
    struct reconcile_input in = input(&job, list, n, &admission);
    in.drains = &drains;
    in.now = NOW + 300;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.drain_since, NOW);
    assert_int_equal(a.status.drains.n, 1);
    assert_string_equal(a.status.drains.all[0].node, "n1");
    assert_int_equal(a.again, NOW + LIMIT);
    assert_string_equal(a.events[ACTION_EVENT_DRAIN].reason, "NodeDrained");
    assert_non_null(strstr(a.events[ACTION_EVENT_DRAIN].text, "node n1 (cordoned): worker 1"));
    hvdjob_status_fini(&job.status);
    job.status = a.status;
    a.status = (struct hvdjob_status){0};
    actions_fini(&a);

    in.now += 5000; /* the Event is not repeated */
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.drain_since, NOW);
    assert_string_equal(a.events[ACTION_EVENT_DRAIN].reason, "");
    actions_fini(&a);
    in.drains = NULL;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.drain_since, NOW);
    actions_fini(&a);
    in.drains = &drains;
    for (int over = 0; over < 2; over++) {
        in.now = NOW + LIMIT - 1 + over;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_int_equal(drain_over(&a.status, &drains, "n1"), over);
        assert_false(drain_over(&a.status, &drains, "n0"));
        actions_fini(&a);
    }
    in.now = NOW + 5300;
    /* the clock was set back */
    job.status.drain_since = job.status.drains.all[0].since = NOW + 3600000;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.drains.all[0].since, NOW + 5000);
    assert_int_equal(a.status.drain_since, NOW + 5000);
    actions_fini(&a);
    drains.n = 0;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.drains.n, 0);
    assert_int_equal(a.status.drain_since, MOMENT_NONE);
    actions_fini(&a);
    for (int k = 0; k < n; k++)
        pod_fini(&pods[k]);
    hvdjob_fini(&job);
}

/* More nodes are drained than the list holds: those beyond it count as the last one of the list. */
static void test_many(void **state)
{
    enum { WORKERS = JOB_DRAINS_MAX + 2 };
    struct hvdjob job =
        make_job("'workers':34,'runPolicy':{'drainPolicy':'Block'}", "'phase':'Running'");
    struct pod pods[WORKERS];
    const struct pod *list[WORKERS];
    struct admission admission = {.again = INT64_MAX};
    struct drain_node nodes[WORKERS];
    struct drains drains = {nodes, WORKERS, LIMIT};
    struct actions a;
    (void)state;
    for (int i = 0; i < WORKERS; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d-0R", i);
        pods[i] = make_pod(text);
        list[i] = &pods[i];
        snprintf(text, sizeof(text), "n%02d", i);
        free(pods[i].node);
        pods[i].node = strdup(text);
        nodes[i] = (struct drain_node){strdup(text), {SIGNAL_EVICT, "cordoned"}};
    }
    struct reconcile_input in = input(&job, list, WORKERS, &admission);
    in.drains = &drains;
    for (int late = 0; late < 2; late++) {
        in.now = NOW + late * LIMIT;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_int_equal(a.status.drains.n, JOB_DRAINS_MAX);
        assert_int_equal(drain_over(&a.status, &drains, nodes[WORKERS - 1].name), late);
        hvdjob_status_fini(&job.status);
        job.status = a.status;
        a.status = (struct hvdjob_status){0};
        actions_fini(&a);
    }
    for (int i = 0; i < WORKERS; i++) {
        pod_fini(&pods[i]);
        free(nodes[i].name);
    }
    hvdjob_fini(&job);
}

/* ---- pods ------------------------------------------------------------------------------------ */

/* New pods avoid nodes that workers leave, whatever affinity their template has. */
static void test_avoid(void **state)
{
#define AVOID "'matchFields':[{'key':'metadata.name','operator':'NotIn','values':['b']}]"
#define TERMS                                                                                      \
    "'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':{'"              \
    "nodeSelectorTerms':"
    static const struct {
        const char *before, *after;
    } pods[] = {
        {"{}", "{'spec':{" TERMS "[{" AVOID "}]}}}}}"},
        {"{'spec':{" TERMS "[{'matchExpressions':[1]},{}]}}}}}",
         "{'spec':{" TERMS "[{'matchExpressions':[1]," AVOID "},{}]}}}}}"},
    };
    struct drain_node nodes[] = {{(char *)"a", {SIGNAL_EVICT, ""}},
                                 {(char *)"b", {SIGNAL_REPLACE, ""}}};
    struct drains drains = {nodes, 2, 0};
    (void)state;
    for (size_t i = 0; i < sizeof(pods) / sizeof(pods[0]); i++) {
        auto_json json_t *pod = from_text(pods[i].before), *want = from_text(pods[i].after);
        auto_json json_t *same = json_deep_copy(pod);
        assert_int_equal(newpod_avoid(pod, NULL), 0);
        drains.n = 1;
        assert_int_equal(newpod_avoid(pod, &drains), 0);
        assert_true(json_equal(pod, same));
        drains.n = 2;
        assert_int_equal(newpod_avoid(pod, &drains), 0);
        assert_true(json_equal(pod, want));
    }
}

static void test_annotations(void **state)
{
    static const char *const policies[] = {FIXED("Wait"), FIXED("Block")};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hvdjob job = make_job(policies[i], "");
        char api[64];
        auto_json json_t *pod = newpod(&job, gang_choose(&job, "", api, sizeof(api), NULL), 0, 0);
        json_t *have = json_object_get(json_object_get(pod, "metadata"), "annotations");
        assert_string_equal(parts_text(have, "cluster-autoscaler.kubernetes.io/safe-to-evict"),
                            i ? "false" : "");
        assert_string_equal(parts_text(have, "karpenter.sh/do-not-disrupt"), i ? "true" : "");
        hvdjob_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals), cmocka_unit_test(test_wrong_lists),
        cmocka_unit_test(test_table),   cmocka_unit_test(test_since),
        cmocka_unit_test(test_avoid),   cmocka_unit_test(test_annotations),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
