/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of what a job's status shows of its agents: what the roster waits for, the doctor's
 * findings, the first failure, attemptsLeft.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/operator/jobs.h"

#define AGO_1   "2023-11-14T22:13:19Z"
#define AGO_590 "2023-11-14T22:03:30Z"
#define AGO_600 "2023-11-14T22:03:20Z"

#define ELASTIC "'workers':3,'minWorkers':2,'maxWorkers':4"
#define FAIL    ",'doctor':{'policy':'fail'}"

static void add(struct job_findings *f, bool failure, const char *id, const char *pod)
{
    struct job_finding one = {.failure = failure, .source = "preflight"};
    snprintf(one.id, sizeof(one.id), "%s", id);
    snprintf(one.summary, sizeof(one.summary), "%s on %s", id, pod);
    snprintf(one.fix, sizeof(one.fix), "mend %s", id);
    snprintf(one.pods[0], sizeof(one.pods[0]), "%s", pod);
    assert_int_equal(job_findings_add(f, &one), 0);
}

/* Calls reconcile() for a job with up to four pods, and returns the actions. facts NULL: the job
 * has no coordinator. */
static struct actions ask(struct hvdjob *job, const char *pods, const struct job_facts *facts)
{
    static char api[64];
    struct pod all[4];
    const struct pod *list[4];
    struct actions a;
    struct admission admission = {.again = INT64_MAX};
    int n = make_pods(pods, all, list);
    for (int i = 0; i < n; i++)
        if (all[i].phase == POD_FAILED && all[i].exit_code && strchr(pods, '!'))
            all[i].exit_code = 126;
    struct reconcile_input in = {.job = job,
                                 .pods = list,
                                 .npods = n,
                                 .admission = &admission,
                                 .gang = gang_choose(job, "", api, sizeof(api), NULL),
                                 .facts = facts,
                                 .now = NOW};
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    for (int i = 0; i < n; i++)
        pod_fini(&all[i]);
    return a;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in: %s", part, text);
}

/* One entry per problem, the worst first, pods named and counted, at most five; unchanged by
 * writing and parsing. */
static void test_findings(void **state)
{
    (void)state;
    struct job_findings f = {0};
    char pod[16], id[16];
    for (int i = 0; i < 12; i++) {
        snprintf(pod, sizeof(pod), "p-%d", i);
        add(&f, false, "everywhere", pod);
    }
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof(id), "warn-%d", i);
        add(&f, false, id, "p-1");
    }
    add(&f, true, "broken", "p-7");
    add(&f, false, "broken", "p-8"); /* only a warning on this pod */
    job_findings_keep_worst(&f);
    assert_int_equal(f.n, JOB_FINDINGS_MAX);
    assert_int_equal(f.more, 4);
    assert_string_equal(f.list[0].id, "broken");
    assert_string_equal(f.list[0].pods[0], "p-7");
    assert_int_equal(f.list[0].npods, 1);
    assert_ptr_equal(job_findings_failure(&f), &f.list[0]);
    snprintf(f.list[0].source, sizeof(f.list[0].source),
             "watch"); /* the source is the watch, which ran with the ranks */
    assert_null(job_findings_failure(&f));
    assert_string_equal(f.list[1].id, "everywhere");
    assert_int_equal(f.list[1].npods, 12);
    assert_string_equal(f.list[1].pods[2], "p-2");
    assert_string_equal(f.list[1].summary, "everywhere on p-0");

    struct hvdjob_status s = {.findings = f}, t;
    auto_json json_t *once = hvdjob_status_write(&s, "sel");
    assert_int_equal(hvdjob_status_parse(once, &t, NULL), 0);
    auto_json json_t *twice = hvdjob_status_write(&t, "sel");
    assert_true(json_equal(once, twice));
    assert_int_equal(t.findings.more, 4);
    hvdjob_status_fini(&t);
    hvdjob_status_fini(&s);
}

/* Arbitrary JSON: no crash, invalid entries are ignored. */
static void test_findings_of_others(void **state)
{
    (void)state;
    struct job_findings f;
    auto_json json_t *j = from_text("[1,{},null,{'id':'x','pods':7,'podCount':-3,'status':'fail'},"
                                    "{'pods':[1,'a'],'podCount':99999999999},{},{}]");
    assert_int_equal(job_findings_parse(j, &f, NULL), 0);
    assert_int_equal(f.n, 3); /* of the first five entries */
    assert_true(f.list[1].failure);
    assert_int_equal(f.list[1].npods, 1);
    assert_int_equal(f.list[2].npods, INT32_MAX);
    assert_string_equal(f.list[2].pods[1], "a");
    auto_json json_t *written = job_findings_write(&f);
    assert_non_null(written);
    job_findings_fini(&f);
}

static void test_waiting_for(void **state)
{
    static const char *const phases[] = {"Starting", "Running", "Waiting"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char status[80];
        snprintf(status, sizeof(status), "'phase':'%s','admittedTime':'" AGO_1 "'", phases[i]);
        struct hvdjob job = make_job(ELASTIC, status);
        struct job_facts facts = {.known = true, .epoch = 4};
        snprintf(facts.waiting_for, sizeof(facts.waiting_for), "ranks to begin with: 1 of 3 ready");
        struct actions a = ask(&job, i == 1 ? "0-0R 1-0R 2-0R" : "0-0R 1-0P 2-0P", &facts);
        has(a.status.message, "; waiting for ranks to begin with: 1 of 3 ready");
        has(a.status.conditions[CONDITION_READY].message, "waiting for ranks to begin with");
        assert_int_equal(a.status.epoch, 4);
        actions_fini(&a);
        facts.known = false; /* the roster is being rebuilt */
        a = ask(&job, "0-0R 1-0P 2-0P", &facts);
        assert_null(strstr(a.status.message, "to begin with"));
        actions_fini(&a);
        hvdjob_fini(&job);
    }
}

/* A pod as it ends when the doctor has refused it. */
static void test_refused(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC FAIL, "'phase':'Running'");
    struct job_facts facts = {.known = true};
    add(&facts.findings, true, "shm-size", "digits-2-0");
    job_findings_keep_worst(&facts.findings);
    struct actions a = ask(&job, "0-0R 1-0R 2-0F!", &facts);
    const struct action_event *say = &a.events[ACTION_EVENT_REFUSED];
    assert_string_equal(say->reason, "DoctorRefused");
    assert_true(say->warning);
    has(say->text, "worker 2 (pod digits-2-0, node n1): the doctor found shm-size on digits-2-0 "
                   "(shm-size); fix: mend shm-size");
    assert_int_equal(a.all[0].kind, ACTION_WRITE_STATUS);
    assert_int_equal(a.all[1].kind, ACTION_RECORD_EVENT);
    assert_int_equal(a.all[1].event, ACTION_EVENT_REFUSED);
    assert_string_equal(a.status.first->reason, "DoctorRefused");
    has(a.status.first->message, "fix: mend shm-size");
    assert_int_equal(a.status.attempts_left, 5);
    has(a.status.message, "the doctor refuses 1 pod (digits-2-0): shm-size on digits-2-0");
    /* A new operator knows nothing yet: the findings in the status stay. */
    hvdjob_status_fini(&job.status);
    job.status = a.status;
    a.status = (struct hvdjob_status){0};
    actions_fini(&a);
    a = ask(&job, "0-0R 1-0R 2-0F!", NULL);
    assert_int_equal(a.status.findings.n, 1);
    assert_string_equal(a.events[ACTION_EVENT_REFUSED].reason,
                        ""); /* the Event was recorded before */
    actions_fini(&a);
    /* The replacement has no findings. */
    job_findings_fini(&facts.findings);
    a = ask(&job, "0-0R 1-0R 2-1R", &facts);
    assert_int_equal(a.status.findings.n, 0);
    assert_null(strstr(a.status.message, "refuses"));
    actions_fini(&a);
    hvdjob_fini(&job);
}

/* A shell also exits with 126, and the policy "warn" refuses nothing. */
static void test_not_refused(void **state)
{
    static const char *const specs[] = {ELASTIC FAIL, ELASTIC};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hvdjob job = make_job(specs[i], "'phase':'Running'");
        struct job_facts facts = {.known = true};
        add(&facts.findings, i == 1, "shm-size", "digits-2-0");
        job_findings_keep_worst(&facts.findings);
        struct actions a = ask(&job, "0-0R 1-0R 2-0F!", &facts);
        assert_string_equal(a.events[ACTION_EVENT_REFUSED].reason, "");
        assert_string_not_equal(a.status.first->reason, "DoctorRefused");
        assert_null(strstr(a.status.message, "refuses"));
        actions_fini(&a);
        job_facts_fini(&facts);
        hvdjob_fini(&job);
    }
}

/* Three pods failed between two reconciliations: the coordinator knows which was first. */
static void test_first(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    struct job_facts facts = {.known = true};
    facts.first.known = true;
    facts.first.rank = 5;
    facts.first.worker = 2;
    snprintf(facts.first.text, sizeof(facts.first.text), "rank 5 on n1 exited with code 3");
    struct actions a = ask(&job, "0-0F 1-0F 2-0F 3-0R", &facts);
    assert_int_equal(a.status.first->worker, 2);
    assert_int_equal(a.status.first->rank, 5);
    assert_int_equal(a.status.failures, 1); /* one crash */
    assert_int_equal(a.status.restarts, 3);
    auto_json json_t *j = hvdjob_status_write(&a.status, "x");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(j, "firstFailure"), "rank")), 5);
    actions_fini(&a);
    a = ask(&job, "0-0E 1-0F 2-0F 3-0R", NULL); /* an eviction is no failure */
    assert_int_equal(a.status.first->worker, 1);
    assert_int_equal(a.status.first->rank, -1);
    actions_fini(&a);
    hvdjob_fini(&job);
}

/* The count of failures is reset ten minutes after the last loss. The job is reconciled again at
 * that time, so that its status shows the reset. */
static void test_attempts_left(void **state)
{
    (void)state;
    struct hvdjob job =
        make_job(ELASTIC, "'phase':'Running','failures':4,'losses':5,'lastLossTime':'" AGO_590 "'");
    struct actions a = ask(&job, "0-0R 1-0R 2-0R", NULL);
    assert_int_equal(a.status.attempts_left, 2);
    assert_int_equal(a.again, NOW + 10 * MOMENT_S);
    actions_fini(&a);
    hvdjob_fini(&job);
    job =
        make_job(ELASTIC, "'phase':'Running','failures':4,'losses':5,'lastLossTime':'" AGO_600 "'");
    a = ask(&job, "0-0R 1-0R 2-0R", NULL);
    assert_int_equal(a.status.attempts_left, 6);
    assert_int_equal(a.status.failures, 0);
    actions_fini(&a);
    hvdjob_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings),      cmocka_unit_test(test_findings_of_others),
        cmocka_unit_test(test_waiting_for),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_refused),   cmocka_unit_test(test_first),
        cmocka_unit_test(test_attempts_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
