/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of how losses of pods are counted: by events, with the kubelet's, the disruption's and the
 * agent's reasons (reconcile_losses.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "tests/unit/operator/jobs.h"

#define ELASTIC "'workers':4,'minWorkers':1,'maxWorkers':4,'runPolicy':{'backoffLimit':1}"

static char event[1024];   /* of the last look: an agent has ended */
static char ruled[1024];   /* of the last look: a rule has matched */
static char lost[1024];    /* of the last look: an event began, "REASON: text" */
static char message[1024]; /* of the job after the last look */

/* Reconciles the job with these pods, all created at this time, and keeps the status that results,
 * as the API server would. Times are in seconds from NOW. */
static void look(struct hvdjob *job, const char *pods, int created, int now)
{
    static char api[64];
    struct pod all[8];
    const struct pod *list[8];
    struct actions a;
    struct admission admission = {.again = INT64_MAX};
    int n = make_pods(pods, all, list);
    for (int i = 0; i < n; i++)
        all[i].created = NOW + created * MOMENT_S;
    struct reconcile_input in = {.job = job,
                                 .pods = list,
                                 .npods = n,
                                 .admission = &admission,
                                 .gang = gang_choose(job, "", api, sizeof(api), NULL),
                                 .now = NOW + now * MOMENT_S};
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    snprintf(event, sizeof(event), "%s", a.events[ACTION_EVENT_AGENT].text);
    snprintf(ruled, sizeof(ruled), "%s", a.events[ACTION_EVENT_RULE].text);
    const struct action_event *say = &a.events[ACTION_EVENT_LOSS];
    snprintf(lost, sizeof(lost), "%s%s%.900s", say->reason, *say->reason ? ": " : "", say->text);
    snprintf(message, sizeof(message), "%s", a.status.message);
    auto_json json_t *written = hvdjob_status_write(&a.status, "x");
    hvdjob_status_fini(&job->status);
    assert_int_equal(hvdjob_status_parse(written, &job->status, NULL), 0);
    actions_fini(&a);
    for (int i = 0; i < n; i++)
        pod_fini(&all[i]);
}

static void expect(const struct hvdjob *job, int failures, int losses, int restarts)
{
    const struct hvdjob_status *s = &job->status;
    if (s->failures != failures || s->losses != losses || s->restarts != restarts)
        fail_msg("%d failures, %d losses, %d restarts instead of %d, %d, %d", s->failures,
                 s->losses, s->restarts, failures, losses, restarts);
}

/* A crash that all ranks see is one failure, however slowly the other pods end. */
static void test_one_crash(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0R 1-0F 2-0F 3-0R", -50, 0);
    expect(&job, 1, 1, 2);
    assert_string_equal(lost, "WorkerFailed: worker 1 (pod digits-1-0, node n1): ended, exit code "
                              "1; 0 of 1 attempts left");
    look(&job, "0-0F 1-1P 2-1P 3-0R", -50, 90);
    expect(&job, 1, 1, 3);
    assert_string_equal(lost, "");
    assert_int_equal(job.status.phase, JOB_RUNNING);
    hvdjob_fini(&job);
}

/* The replacement crashes as soon as it is there: another event, and with backoffLimit 1 the last
 * one.
 */
static void test_crash_loop(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0R 1-0F 2-0R 3-0R", -50, 0);
    look(&job, "0-0R 1-1F 2-0R 3-0R", 1, 2);
    expect(&job, 2, 2, 2);
    assert_int_equal(job.status.phase, JOB_FAILED);
    hvdjob_fini(&job);
}

static void test_two_crashes(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0R 1-0F 2-0R 3-0R", -50, 0);
    look(&job, "0-0R 1-1R 2-0F 3-0R", -50, 130);
    expect(&job, 2, 2, 2);
    hvdjob_fini(&job);
}

/* The ranks of a fixed job fail because a pod was evicted. */
static void test_disruption_first(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0E 1-0R 2-0R 3-0R", -50, 0);
    look(&job, "0-1P 1-0F 2-0F 3-0F", -50, 3);
    expect(&job, 0, 1, 4);
    hvdjob_fini(&job);
}

/* Pods that are evicted together: one event, and their workers are replaced at once. A failure that
 * follows from it is none of the program's. */
static void test_evicted(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0R 1-0D 2-0D 3-0R", -50, 0);
    expect(&job, 0, 0, 2);
    assert_string_equal(lost, "WorkerLost: worker 1 (pod digits-1-0, node n1): "
                              "EvictionByEvictionAPI; no attempt is used up");
    look(&job, "0-0R 1-0D 2-0D 3-0F 1-1P 2-1P", -50, 3);
    expect(&job, 0, 0, 3);
    assert_string_equal(lost, "");
    look(&job, "0-0D 1-1R 2-1R 3-1R", -50, 200);
    assert_non_null(strstr(lost, "WorkerLost: worker 0 "));
    hvdjob_fini(&job);
}

/* Pods whose labels were changed: one event, a pause, no attempt used up. Whoever does that again
 * and again only makes the pauses longer. */
static void test_strayed(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0L 1-0L 2-0R 3-0R", -50, 0);
    assert_string_equal(lost, "WorkerLost: worker 0 (pod digits-0-0, node n1): somebody has "
                              "changed or removed its label hvd.dev/job, hvd.dev/worker or "
                              "hvd.dev/attempt; no attempt is used up");
    expect(&job, 0, 1, 2);
    look(&job, "0-0l 1-0l 2-0R 3-0R", -50, 1);
    expect(&job, 0, 1, 2);
    look(&job, "0-0l 0-1L 1-1R 2-0R 3-0R", 1, 2);
    expect(&job, 0, 2, 3);
    look(&job, "0-1l 1-1R 2-0R 3-0R", 1, 3);
    expect(&job, 0, 2, 3);
    assert_null(job.status.first);
    hvdjob_fini(&job);
}

/* The operator was away for longer than the job allows: all agents have ended their ranks. */
static void test_agents_gave_up(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    look(&job, "0-0A 1-0A 2-0A 3-0A", -50, 0);
    expect(&job, 0, 1, 4);
    assert_null(job.status.first);
    assert_string_equal(event, "worker 3 (pod digits-3-0, node n1): Error: hvd-agent: "
                               "operator-away: no answer for 60 s");
    hvdjob_fini(&job);
}

/* ---- rules of runPolicy.failurePolicy ---------------------------------------------------------
 */

#define ON(op, codes) "'onExitCodes':{'operator':'" op "','values':[" codes "]}"
#define RULES(text)                                                                                \
    "'workers':4,'minWorkers':1,'maxWorkers':4,'runPolicy':{'backoffLimit':1,'failurePolicy':{"    \
    "'rules':[" text "]}}"

static void expect_rule(const struct hvdjob *job, const char *name, const char *action,
                        const char *pod)
{
    const struct job_failure_rule *rule = job->status.rule;
    assert_non_null(rule);
    assert_string_equal(rule->name, name);
    assert_string_equal(job_failure_action_name(rule->action), action);
    assert_string_equal(rule->pod, pod);
}

/* "1-0F42": the number behind the letter is the exit code. */
static void test_rule_ignores(void **state)
{
    (void)state;
    struct hvdjob job = make_job(RULES("{'name':'spot','action':'Ignore'," ON("In", "42,43") "}"),
                                 "'phase':'Running'");
    for (int i = 0; i < 3; i++) {
        char pods[64];
        snprintf(pods, sizeof(pods), "0-0R 1-%dF43 2-0R 3-0R", i);
        look(&job, pods, i * 200, i * 200 + 100);
        expect(&job, 0, i + 1, i + 1);
    }
    expect_rule(&job, "spot", "Ignore", "digits-1-2");
    assert_null(job.status.first);
    look(&job, "0-0F1 1-3R 2-0R 3-0R", 600, 700);
    expect(&job, 1, 4, 4);
    assert_string_equal(ruled, "");
    hvdjob_fini(&job);
}

/* The first rule that matches decides, and a name is not required. */
static void test_rule_fails_job(void **state)
{
    (void)state;
    struct hvdjob job = make_job(
        RULES("{'action':'Ignore'," ON("In", "7") "},{'action':'FailJob'," ON("NotIn", "1,2") "}"),
        "'phase':'Running'");
    look(&job, "0-0F1 1-0F7 2-0R 3-0R", -50, 0);
    assert_int_equal(job.status.phase, JOB_RUNNING);
    look(&job, "0-1R 1-1R 2-0F9 3-0R", -50, 5);
    assert_int_equal(job.status.phase, JOB_FAILED);
    expect_rule(&job, "rules[1]", "FailJob", "digits-2-0");
    assert_string_equal(job.status.conditions[CONDITION_FAILED].reason, "FailurePolicy");
    assert_non_null(strstr(message, "failed by the rule \"rules[1]\" of runPolicy.failurePolicy: "
                                    "pod digits-2-0: exit code 9 of container w"));
    assert_string_equal(ruled, "rule \"rules[1]\" of runPolicy.failurePolicy (FailJob): worker 2 "
                               "(pod digits-2-0, node n1): exit code 9 of container w");
    hvdjob_fini(&job);
}

/* All workers go, though the job is elastic, and one attempt is used up. */
static void test_rule_restarts_gang(void **state)
{
    (void)state;
    struct hvdjob job = make_job(RULES("{'name':'nan','action':'RestartGang'," ON("In", "3") "}"),
                                 "'phase':'Running'");
    look(&job, "0-0R 1-0F3 2-0R 3-0R", -50, 0);
    assert_int_equal(job.status.phase, JOB_RESTARTING);
    assert_non_null(strstr(message, "all workers start again by the rule \"nan\""));
    expect(&job, 1, 1, 1);
    look(&job, "", 0, 2);
    assert_int_equal(job.status.phase, JOB_QUEUED);
    hvdjob_fini(&job);
}

/* Of losses in the same second the one with a rule is the event's first; and of two rules that
 * match in one look, the stronger one is kept. */
static void test_rule_of_event(void **state)
{
    (void)state;
    struct hvdjob job = make_job(RULES("{'name':'a','action':'Ignore'," ON(
                                     "In", "5") "},{'name':"
                                                "'b','action':'FailJob'," ON("In", "6") "}"),
                                 "'phase':'Running'");
    look(&job, "0-0F1 1-0F5 2-0R 3-0R", -50, 0);
    expect(&job, 0, 1, 2);
    look(&job, "0-1F6 1-1F5 2-0R 3-0R", 5, 10);
    expect_rule(&job, "b", "FailJob", "digits-0-1");
    hvdjob_fini(&job);
}

/* A disruption that counts, by the pod's condition; and an agent's own end, of which the exit code
 * is not the program's. */
static void test_rule_on_condition(void **state)
{
    (void)state;
    struct hvdjob job =
        make_job(RULES("{'action':'FailJob'," ON(
                     "In", "125") "},{'name':'evicted',"
                                  "'action':'Count','onPodConditions':[{'type':'Odd'},{'type':"
                                  "'DisruptionTarget'}]}"),
                 "'phase':'Running'");
    look(&job, "0-0A 1-0R 2-0R 3-0R", -50, 0);
    expect(&job, 0, 1, 1);
    assert_null(job.status.rule);
    look(&job, "0-1R 1-0E 2-0R 3-0R", -50, 200);
    expect(&job, 1, 2, 2);
    expect_rule(&job, "evicted", "Count", "digits-1-0");
    assert_string_equal(job.status.rule->cause, "condition DisruptionTarget is True ()");
    hvdjob_fini(&job);
}

/* After a worker has succeeded, an ignored failure does not fail the job. */
static void test_rule_at_end(void **state)
{
    (void)state;
    struct hvdjob job =
        make_job(RULES("{'action':'Ignore'," ON("In", "5") "}"), "'phase':'Running'");
    look(&job, "0-0S 1-0F5 2-0S 3-0S", -50, 0);
    assert_int_equal(job.status.phase, JOB_SUCCEEDED);
    hvdjob_fini(&job);
}

/* With another container and an init container. */
#define SIDES                                                                                      \
    ",'template':{'spec':{'initContainers':[{'name':'fetch'}],'containers':[{'name':'w',"          \
    "'command':['x']},{'name':'side'}]}}"
#define OF(container)                                                                              \
    "{'action':'FailJob','onExitCodes':{'containerName':'" container                               \
    "','operator':'In','values':[5]}}"

/* A rule may name every container of the template, and no other. */
static void test_rule_of_missing_container(void **state)
{
    (void)state;
    struct hvdjob job = make_job(RULES(OF("side") "," OF("fetch") "," OF("")) SIDES, "");
    assert_null(job.refused);
    hvdjob_fini(&job);
    job = make_job(RULES(OF("w") "," OF("trainer")) SIDES, "");
    assert_string_equal(words(job.refused),
                        "spec.runPolicy.failurePolicy.rules[1].onExitCodes.containerName: no "
                        "container or init container of spec.template has the name \"trainer\"");
    hvdjob_fini(&job);
}

/* A spec that an earlier operator has accepted stays valid, until it changes. */
static void test_accepted_before(void **state)
{
    static const struct {
        const char *valid;
        int generation;
        bool refused;
    } rows[] = {{"True", 3, false}, {"True", 2, true}, {"False", 3, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char status[256];
        snprintf(status, sizeof(status),
                 "'phase':'Running','conditions':[{'type':'Valid','status':'%s',"
                 "'observedGeneration':%d}]",
                 rows[i].valid, rows[i].generation);
        struct hvdjob job = make_job(RULES(OF("injected")) SIDES, status);
        assert_int_equal(job.refused != NULL, rows[i].refused);
        hvdjob_fini(&job);
        job = make_job("'workers':1,'template':{'spec':{'nodeName':'n1','containers':[{'name':'w',"
                       "'command':['x']}]}}",
                       status);
        assert_int_equal(job.refused != NULL, rows[i].refused);
        hvdjob_fini(&job);
    }
}

static void test_rule_of_container(void **state)
{
    (void)state;
    struct hvdjob job = make_job(RULES("{'action':'FailJob','onExitCodes':{'containerName':'side','"
                                       "operator':'In','values':[5]}}") SIDES,
                                 "'phase':'Running'");
    assert_null(job.refused);
    look(&job, "0-0F5 1-0R 2-0R 3-0R", -50, 0);
    assert_int_equal(job.status.phase, JOB_RUNNING);
    assert_null(job.status.rule);
    hvdjob_fini(&job);
}

static void test_invalid_rules(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", ".rules: want 1 to 20 rules"},
        {"{'action':'Retry'," ON("In", "1") "}", "rules[0].action: want Ignore, Count, FailJob"},
        {"{'action':'Count'}", "rules[0]: want either onExitCodes or onPodConditions"},
        {"{'action':'Count'," ON("In", "1") ",'onPodConditions':[{'type':'x'}]}", "want either"},
        {"{'action':'Count'," ON("In", "0") "}", "values[0]: want an integer from 1 to 255"},
        {"{'action':'Count'," ON("NotIn", "0,256") "}", "values[1]: want an integer from 0 to 255"},
        {"{'action':'Count'," ON("Out", "1") "}", "operator: want In or NotIn"},
        {"{'action':'Count'," ON("In", "") "}", "values: want a list of 1 to 255"},
        {"{'action':'Count','onPodConditions':[{}]}", "onPodConditions[0].type: missing"},
        {"{'action':'Count','onPodConditions':[]}", "onPodConditions: want 1 to 20"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char spec[512];
        snprintf(spec, sizeof(spec), "'runPolicy':{'failurePolicy':{'rules':[%s]}}", bad[i][0]);
        struct hvdjob job = make_job(spec, "");
        if (!job.refused || !strstr(job.refused, bad[i][1]))
            fail_msg("%s: refused with %s", bad[i][0], job.refused);
        assert_null(job.failure_rules);
        hvdjob_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_crash),
        cmocka_unit_test(test_crash_loop),
        cmocka_unit_test(test_two_crashes),
        cmocka_unit_test(test_disruption_first),
        cmocka_unit_test(test_agents_gave_up),
        cmocka_unit_test(test_rule_ignores),
        cmocka_unit_test(test_rule_fails_job),
        cmocka_unit_test(test_rule_restarts_gang),
        cmocka_unit_test(test_rule_of_event),
        cmocka_unit_test(test_rule_on_condition),
        cmocka_unit_test(test_rule_at_end),
        cmocka_unit_test(test_rule_of_container),
        cmocka_unit_test(test_strayed),
        cmocka_unit_test(test_accepted_before),
        cmocka_unit_test(test_evicted),
        cmocka_unit_test(test_invalid_rules),
        cmocka_unit_test(test_rule_of_missing_container),
    };
    return cmocka_run_group_tests_name("operator/losses", tests, NULL, NULL);
}
