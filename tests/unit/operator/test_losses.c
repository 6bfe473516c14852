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

#include "tests/unit/operator/jobs.h"

#define ELASTIC "'workers':4,'minWorkers':1,'maxWorkers':4,'runPolicy':{'backoffLimit':1}"

static char event[1024]; /* of the last look: an agent has ended */

/* Reconciles the job with these pods, all created at this time, and keeps the status that results,
 * as the API server would. Times are in seconds from NOW. */
static void look(struct hvdjob *job, const char *pods, int created, int now)
{
    static char api[64];
    struct pod all[4];
    const struct pod *list[4];
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
    look(&job, "0-0F 1-1P 2-1P 3-0R", -50, 90);
    expect(&job, 1, 1, 3);
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
    look(&job, "0-0R 1-1F 2-0R 3-0R", 0, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_crash),      cmocka_unit_test(test_crash_loop),
        cmocka_unit_test(test_two_crashes),    cmocka_unit_test(test_disruption_first),
        cmocka_unit_test(test_agents_gave_up),
    };
    return cmocka_run_group_tests_name("operator/losses", tests, NULL, NULL);
}
