/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile: what a job says in its message and Events, and when that is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "tests/unit/operator/jobs.h"

#define LONG    60000 /* ms */
#define ELASTIC "'workers':3,'minWorkers':2,'maxWorkers':4"

/* One Event for each change that is not applied, not for each reconciliation. */
static void test_says_invalid_once(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *status, *reason;
        bool again; /* an Event also after another change, which does not mend it */
    } cases[] = {{"'workers':0", "", "InvalidSpec", true},
                 {ELASTIC, "'phase':'Running','shape':'old'", "TemplateChanged", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct hvdjob job = make_job(cases[i].spec, cases[i].status);
        struct pod pod = make_pod("0-0R");
        const struct pod *list[] = {&pod};
        struct admission admission = {.again = INT64_MAX};
        for (int look = 0; look < 3; look++) {
            struct reconcile_input in = input(&job, list, 1, &admission);
            struct actions a;
            job.generation += look == 2;
            assert_int_equal(reconcile(&in, &a, NULL), 0);
            const struct action_event *say = &a.events[ACTION_EVENT_SPEC];
            bool wanted = look == 0 || (look == 2 && cases[i].again);
            assert_string_equal(say->reason, wanted ? cases[i].reason : "");
            assert_int_equal(say->warning, wanted);
            auto_json json_t *written = hvdjob_status_write(&a.status, "x");
            hvdjob_status_fini(&job.status);
            assert_int_equal(hvdjob_status_parse(written, &job.status, NULL), 0);
            actions_fini(&a);
        }
        pod_fini(&pod);
        hvdjob_fini(&job);
    }
}

/* Mere counts are written a second after they change, every two seconds; other changes at once. */
static void test_words_wait(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    memcpy(job.status.template_hash, job.template_hash, sizeof(job.template_hash));
    struct pod pods[4];
    const struct pod *list[4];
    struct actions a;
    struct admission admission = {.again = INT64_MAX};
    int n = make_pods("0-0R 1-0R 2-0P", pods, list);
    struct reconcile_input in = input(&job, list, n, &admission);
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    auto_json json_t *written = hvdjob_status_write(&a.status, "x");
    hvdjob_status_fini(&job.status);
    assert_int_equal(hvdjob_status_parse(written, &job.status, NULL), 0);
    actions_fini(&a);

    static const struct {
        int64_t every, ago, seen; /* ms; ago: since the last write, seen: since the change */
        int writes;
        int64_t again;
    } rows_of_time[] = {
        {RECONCILE_STATUS_EVERY, 0, LONG, 0, NOW + RECONCILE_STATUS_EVERY},
        {RECONCILE_STATUS_EVERY, RECONCILE_STATUS_EVERY - 1, LONG, 0, NOW + 1},
        {RECONCILE_STATUS_EVERY, RECONCILE_STATUS_EVERY, LONG, 1, INT64_MAX},
        {RECONCILE_STATUS_EVERY, -5, LONG, 1, INT64_MAX},
        {RECONCILE_STATUS_EVERY, NOW, LONG, 1, INT64_MAX}, /* unknown */
        {RECONCILE_STATUS_MOST, RECONCILE_STATUS_EVERY, LONG, 0,
         NOW + RECONCILE_STATUS_MOST - RECONCILE_STATUS_EVERY},
        {RECONCILE_STATUS_MOST, RECONCILE_STATUS_MOST, LONG, 1, INT64_MAX},
        {RECONCILE_STATUS_EVERY, LONG, NOW, 0, NOW + RECONCILE_STATUS_JOIN}, /* just seen */
        {RECONCILE_STATUS_EVERY, LONG, RECONCILE_STATUS_JOIN - 1, 0, NOW + 1},
        {RECONCILE_STATUS_EVERY, LONG, RECONCILE_STATUS_JOIN, 1, INT64_MAX},
        {RECONCILE_STATUS_EVERY, LONG, -5, 1, INT64_MAX},
    };
    pods[2].phase = POD_RUNNING;
    for (size_t i = 0; i < sizeof(rows_of_time) / sizeof(rows_of_time[0]); i++) {
        in.status_every = rows_of_time[i].every;
        in.status_written = NOW - rows_of_time[i].ago;
        in.texts_since = NOW - rows_of_time[i].seen;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_int_equal(a.n, rows_of_time[i].writes);
        assert_int_equal(a.texts_wait, !rows_of_time[i].writes);
        assert_int_equal(a.again, rows_of_time[i].again);
        assert_int_equal(a.status.ready, 3);
        actions_fini(&a);
    }
    in.status_written = in.texts_since = NOW;
    struct job_facts facts = {.known = true, .epoch = 7};
    in.facts = &facts;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.n, 1);
    actions_fini(&a);
    in.facts = NULL;
    pods[1].phase = POD_FAILED;
    pods[2].phase = POD_FAILED;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.phase, JOB_WAITING);
    assert_int_equal(a.all[0].kind, ACTION_WRITE_STATUS);
    actions_fini(&a);
    for (int k = 0; k < n; k++)
        pod_fini(&pods[k]);
    hvdjob_fini(&job);
}

/* An Event says what a queued job waits for when that is of another kind, not when only numbers
 * change; none says that nothing is decided yet. */
static void test_says_what_it_waits_for(void **state)
{
    static const struct {
        enum wait wait;
        const char *why, *told, *reason;
    } rows_of_waits[] = {
        {WAIT_QUOTA, "quota few: 2 left", "Queued: status event", "QuotaExceeded"},
        {WAIT_QUOTA, "quota few: 3 left", "Queued: status", "QuotaExceeded"},
        {WAIT_ROOM, "0 of 2 workers fit now", "Queued: status event", "NoRoom"},
        {WAIT_ROOM, "0 of 2 workers fit now", "Queued:", "NoRoom"},
    };
    struct hvdjob job = make_job(ELASTIC, "'phase':'Suspended'");
    struct admission admission = {.again = INT64_MAX};
    struct reconcile_input in = input(&job, NULL, 0, &admission);
    struct actions a;
    char text[512];
    (void)state;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Queued: status");
    for (size_t i = 0; i < sizeof(rows_of_waits) / sizeof(*rows_of_waits); i++) {
        hvdjob_status_fini(&job.status);
        job.status = a.status;
        a.status = (struct hvdjob_status){0};
        actions_fini(&a);
        admission.wait = rows_of_waits[i].wait;
        snprintf(admission.why, sizeof(admission.why), "%s", rows_of_waits[i].why);
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        told(&a, text, sizeof(text));
        assert_string_equal(text, rows_of_waits[i].told);
        assert_string_equal(a.status.conditions[CONDITION_ADMITTED].reason,
                            rows_of_waits[i].reason);
        if (strstr(text, "event"))
            assert_string_equal(a.events[ACTION_EVENT_PHASE].text, rows_of_waits[i].why);
    }
    actions_fini(&a);
    /* Not more often than other messages. */
    admission.wait = WAIT_SHARE;
    in.status_written = NOW;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.again, NOW + RECONCILE_STATUS_EVERY);
    actions_fini(&a);
    in.now = a.again;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.n, 2);
    actions_fini(&a);
    hvdjob_fini(&job);
}

/* A pod that does not end after its deletionTimestamp is named, and not before. */
static void test_terminating(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Queued'");
    struct pod pod = make_pod("0-0r");
    const struct pod *list[] = {&pod};
    struct admission admission = {.wait = WAIT_ROOM, .why = "no room", .again = INT64_MAX};
    struct reconcile_input in = input(&job, list, 1, &admission);
    struct actions a;
    pod.leaves_by = NOW - POD_LEAVES_LATE + MOMENT_S;
    for (int late = 0; late < 2; late++) {
        in.now = NOW + late * MOMENT_S;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_string_equal(words(a.status.message),
                            late ? "no room; pod digits-0-0 on node n1 should have ended by "
                                   "2023-11-14T22:12:51Z and keeps its room; see whether that node "
                                   "and its kubelet run, and delete the Node if it is lost"
                                 : "no room");
        if (!late)
            assert_int_equal(a.again, NOW + MOMENT_S);
        actions_fini(&a);
    }
    pod_fini(&pod);
    hvdjob_fini(&job);
}

/* Pods of the queued job were refused before it was admitted: they are created now, and only a
 * refusal of these rolls the gang back. */
static void test_old_refusal(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Queued'");
    struct actions a;
    char text[512], api[64];
    struct admission admission = {.go = true, .again = INT64_MAX};
    struct reconcile_input in = input(&job, NULL, 0, &admission);
    in.gang = gang_choose(&job, "", api, sizeof(api), NULL);
    in.refused = "exceeded quota";
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Starting: status event +0-0 +1-0 +2-0");
    actions_fini(&a);
    job.status.phase = JOB_STARTING;
    job.status.admitted = NOW;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Queued: status");
    assert_int_equal(a.status.refusals, 1);
    actions_fini(&a);
    hvdjob_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_says_invalid_once),
        cmocka_unit_test(test_words_wait),
        cmocka_unit_test(test_says_what_it_waits_for),
        cmocka_unit_test(test_terminating),
        cmocka_unit_test(test_old_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
