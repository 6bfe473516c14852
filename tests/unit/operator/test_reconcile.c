/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile: a table of jobs and pods with the expected actions, for each phase
 * and its events.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "operator/reconcile/phases.h"
#include "tests/unit/operator/jobs.h"

/* Times in a status, in seconds from NOW. */
#define AGO_1   "2023-11-14T22:13:19Z"
#define AGO_100 "2023-11-14T22:11:40Z"
#define AGO_700 "2023-11-14T22:01:40Z"

#define ELASTIC "'workers':3,'minWorkers':2,'maxWorkers':4"
#define FIXED   "'workers':2"
/* Its Event has said that there is no room. */
#define QUEUED                                                                                     \
    "'phase':'Queued','conditions':[{'type':'Admitted','status':'False','reason':'NoRoom'}]"
#define SUSPEND ",'runPolicy':{'suspend':true}"

struct row {
    const char *what, *spec, *status, *pods;
    int go;            /* the queue's decision: 1 admitted, 0 waits */
    const char *want;  /* "Phase: actions" as told() writes them */
    const char *words; /* part of the message; NULL: any */
};

static const struct row rows[] = {
    {"new, fits", ELASTIC, "", "", 1, "Starting: status event +0-0 +1-0 +2-0", NULL},
    {"new, does not fit", ELASTIC, "", "", 0, "Queued: status event", "no room"},
    {"new and suspended", ELASTIC SUSPEND, "", "", 1, "Suspended: status event", NULL},
    {"new and impossible", "'workers':1,'minWorkers':2", "", "", 1, "New: status event",
     "less than minW"},

    {"queued", ELASTIC, QUEUED, "", 0, "Queued: status", "no room"},
    {"queued, suspended", ELASTIC SUSPEND, "'phase':'Queued'", "", 0, "Suspended: status event",
     NULL},
    {"queued, let go", ELASTIC, "'phase':'Queued'", "", 1, "Starting: status event +0-0 +1-0 +2-0",
     NULL},
    {"queued by an earlier version", ELASTIC, QUEUED ",'shape':'old'", "0-0G 1-0g 2-0G", 0,
     "Queued: status -0-0 -2-0", "no room"},
    {"let go, with pods of an earlier version", ELASTIC, "'phase':'Queued','shape':'old'",
     "0-0G 1-0G 2-0G", 1, "Starting: status event -0-0 -1-0 -2-0", NULL},
    {"starting, and those pods end", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_1 "'",
     "0-0g 1-0g", 0, "Starting: status +0-1 +1-1 +2-0", NULL},
    {"starting, an earlier version removed one gate", ELASTIC,
     "'phase':'Starting','admittedTime':'" AGO_1 "'", "0-0P 1-0G 2-0G", 0,
     "Starting: status -1-0 -2-0", NULL},
    {"starting, enough run", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_1 "'",
     "0-0R 1-0R 2-0P", 0, "Running: status event", "2 of 3 workers run"},
    {"starting, surplus never blocks", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_700 "'",
     "0-0R 1-0B 2-0P", 0, "Starting: status",
     "; worker 1 (pod digits-1-0) is on node n1, whose kubelet has not started it yet"},
    {"starting, without a scheduler", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_1 "'",
     "0-0R 1-0P 2-0P", 0, "Starting: status",
     "; worker 1 (pod digits-1-0) waits for the scheduler"},
    {"starting, time is over", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_700 "'",
     "0-0R 1-0P 2-0P", 0, "Restarting: status event -0-0 -1-0 -2-0",
     "fewer than 2 workers got a node"},
    {"starting, one failed", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_1 "'",
     "0-0F 1-0B 2-0P", 0, "Starting: status event", NULL},
    {"starting, one failed and the pause is over", ELASTIC,
     "'phase':'Starting','admittedTime':'" AGO_1
     "','losses':1,'failures':1,'lastLossTime':'" AGO_100 "','attempts':{'0':1}",
     "0-0F 1-0B 2-0P", 0, "Starting: status +0-1", NULL},
    {"starting, suspended", ELASTIC SUSPEND, "'phase':'Starting'", "0-0R 1-0P", 0,
     "Suspended: status event -0-0 -1-0", NULL},

    {"running", ELASTIC, "'phase':'Running'", "0-0R 1-0R 2-0R", 0, "Running: status", NULL},
    {"running, one failed", ELASTIC, "'phase':'Running'", "0-0R 1-0R 2-0F", 0,
     "Running: status event", NULL},
    {"running, one evicted long after a loss", ELASTIC,
     "'phase':'Running','losses':5,'failures':5,'lastLossTime':'" AGO_700 "'", "0-0R 1-0R 2-0E", 0,
     "Running: status event", NULL},
    {"running, one deleted by somebody", ELASTIC, "'phase':'Running'", "0-0R 1-0R 2-0r", 0,
     "Running: status +2-1", NULL},
    {"running, one vanished", ELASTIC, "'phase':'Running'", "0-0R 1-0R", 0, "Running: status +2-0",
     NULL},
    {"running, scaled up", "'workers':4,'minWorkers':2,'maxWorkers':4", "'phase':'Running'",
     "0-0R 1-0R 2-0R", 0, "Running: status +3-0", NULL},
    {"running, scaled down: who does not run goes", "'workers':2,'minWorkers':2,'maxWorkers':4",
     "'phase':'Running'", "0-0R 1-0P 2-0R 3-0B", 0, "Running: status -1-0 -3-0", NULL},
    {"running, scaled down: the last goes", "'workers':2,'minWorkers':2,'maxWorkers':4",
     "'phase':'Running'", "0-0R 1-0R 2-0R", 0, "Running: status -2-0", NULL},
    {"running, below min", ELASTIC, "'phase':'Running'", "0-0R 1-0r 2-0r", 0,
     "Waiting: status event +1-1 +2-1", "1 workers run, minWorkers is 2"},
    {"running, nobody left", ELASTIC, "'phase':'Running'", "0-0F 1-0F 2-0F", 0,
     "Restarting: status event event", "state in memory"},
    {"running, not elastic, one lost", FIXED, "'phase':'Running'", "0-0R 1-0F", 0,
     "Restarting: status event event -0-0", "not elastic"},
    {"running, too many failures", FIXED ",'runPolicy':{'backoffLimit':0}", "'phase':'Running'",
     "0-0R 1-0F", 0, "Failed: status event event -0-0", "1 failure of workers, backoffLimit is 0"},
    {"running, an eviction is no failure", ELASTIC ",'runPolicy':{'backoffLimit':0}",
     "'phase':'Running'", "0-0R 1-0R 2-0E", 0, "Running: status event", NULL},
    {"running, too long", ELASTIC ",'runPolicy':{'activeDeadlineSeconds':60}",
     "'phase':'Running','startTime':'" AGO_100 "'", "0-0R 1-0R 2-0P", 0,
     "Failed: status event -0-0 -1-0 -2-0", "activeDeadlineSeconds (60 s)"},
    {"running, suspended", ELASTIC SUSPEND, "'phase':'Running'", "0-0R 1-0R", 0,
     "Suspended: status event -0-0 -1-0", NULL},
    {"running, another template: none is made", ELASTIC, "'phase':'Running','shape':'old'",
     "0-0R 1-0R", 0, "Running: status event",
     "2 of 3 workers run; the change of spec.template, slotsPerWorker or gang.backend is not"},
    {"running, became invalid", "'workers':1,'minWorkers':2", "'phase':'Running'", "0-0R 1-0R", 0,
     "Running: status event", "; the changed spec is invalid and not applied: spec.workers: 1 is"},
    {"running, a former one is still there", ELASTIC, "'phase':'Running','attempts':{'1':1}",
     "0-0R 1-0R 1-1R 2-0R", 0, "Running: status -1-0", NULL},
    {"running, logs of the last one stay", ELASTIC, "'phase':'Running','attempts':{'1':2}",
     "0-0R 1-0F 1-1F 1-2R 2-0R", 0, "Running: status -1-0", NULL},
    {"running, another's pod has the name", ELASTIC, "'phase':'Running'", "0-0R 1-0R 2-0X", 0,
     "Running: status +2-1", NULL},
    {"starting, others' pods have names", ELASTIC, "'phase':'Starting','admittedTime':'" AGO_1 "'",
     "0-0X 0-1X 1-0X", 0, "Starting: status +0-2 +1-1 +2-0", NULL},

    {"running, labels of one were changed", ELASTIC, "'phase':'Running'", "0-0R 1-0L 2-0R", 0,
     "Running: status event -1-0",
     "2 of 3 workers run; worker 1 (pod digits-1-0): somebody has changed or removed its label "
     "hvd.dev/job, hvd.dev/worker or hvd.dev/attempt; such pods are deleted"},
    {"running, labels of one were changed, it is going", ELASTIC, "'phase':'Running'",
     "0-0R 1-0l 2-0R", 0, "Running: status event", NULL},
    {"running, not elastic, labels of one were changed", FIXED, "'phase':'Running'", "0-0R 1-0L", 0,
     "Restarting: status event event -1-0 -0-0", NULL},
    {"restarting, labels of one were changed", FIXED, "'phase':'Restarting'", "1-0L", 0,
     "Restarting: status event -1-0", NULL},

    {"waiting, enough again", ELASTIC, "'phase':'Waiting'", "0-0R 1-0R 2-0P", 0,
     "Running: status event", NULL},
    {"waiting, nobody left", ELASTIC, "'phase':'Waiting'", "0-0P 1-0P 2-0P", 0,
     "Restarting: status event -0-0 -1-0 -2-0", NULL},
    {"waiting, suspended", ELASTIC SUSPEND, "'phase':'Waiting'", "0-0R", 0,
     "Suspended: status event -0-0", NULL},

    {"restarting, some are there", FIXED, "'phase':'Restarting'", "0-0R 1-0F", 0,
     "Restarting: status event -0-0", NULL},
    {"restarting, the pause", FIXED, "'phase':'Restarting','losses':3,'lastLossTime':'" AGO_1 "'",
     "0-0r 1-0F", 0, "Restarting: status event", NULL},
    {"restarting, over", FIXED,
     "'phase':'Restarting','attempts':{'1':1},'losses':3,'lastLossTime':'" AGO_100 "'", "0-0r 1-0F",
     0, "Queued: status", "the queue has not decided on it yet"},
    {"restarting, suspended", FIXED SUSPEND, "'phase':'Restarting'", "0-0R", 0,
     "Suspended: status event -0-0", NULL},

    {"suspended, workers go", ELASTIC SUSPEND, "'phase':'Suspended'", "0-0R 1-0r 2-0S", 0,
     "Suspended: status -0-0", NULL},
    {"resumed: new names", ELASTIC, "'phase':'Suspended'", "0-2R 1-0r 2-0S", 0,
     "Queued: status -0-2", "the queue has not decided on it yet"},

    {"one ended well", ELASTIC, "'phase':'Running'", "0-0S 1-0R 2-0P", 0,
     "Completing: status event -2-0", "1 workers have succeeded, 2 have not finished yet"},
    {"one left by a scale-down is no end", ELASTIC, "'phase':'Running'", "0-0s 1-0R 2-0R", 0,
     "Running: status +0-1", NULL},
    {"completing, no new ones", ELASTIC, "'phase':'Completing'", "0-0S 1-0R 2-0r", 0,
     "Completing: status", NULL},
    {"completing, all done", ELASTIC, "'phase':'Completing'", "0-0S 1-0S 2-0S", 0,
     "Succeeded: status event", NULL},
    {"completing, one fails", ELASTIC, "'phase':'Completing'", "0-0S 1-0R 2-0F", 0,
     "Completing: status", NULL},
    {"all ended, one failed", ELASTIC, "'phase':'Running'", "0-0S 1-0S 2-0F", 0,
     "Failed: status event", "after another had succeeded"},
    {"completing, one evicted", ELASTIC, "'phase':'Completing'", "0-0S 1-0S 2-0E", 0,
     "Succeeded: status event", NULL},
    {"completing, resumed or suspended is the same", ELASTIC SUSPEND, "'phase':'Completing'",
     "0-0S 1-0R", 0, "Completing: status", NULL},

    {"succeeded, all is kept", ELASTIC, "'phase':'Succeeded','observedGeneration':3,'message':'x'",
     "0-0S 1-0S", 0, "Succeeded: status", NULL},
    {"succeeded, nothing is kept", ELASTIC ",'runPolicy':{'cleanPodPolicy':'All'}",
     "'phase':'Succeeded'", "0-0S 1-0S", 0, "Succeeded: status -0-0 -1-0", NULL},
    {"succeeded, scaled: nothing", "'workers':4,'minWorkers':2,'maxWorkers':4",
     "'phase':'Succeeded'", "", 1, "Succeeded: status", NULL},
    {"succeeded, suspended and resumed: nothing", ELASTIC SUSPEND, "'phase':'Succeeded'", "", 1,
     "Succeeded: status", NULL},
    {"failed, who still runs goes", ELASTIC, "'phase':'Failed'", "0-0R 1-0F", 0,
     "Failed: status -0-0", NULL},
    {"failed, all is to stay", ELASTIC ",'runPolicy':{'cleanPodPolicy':'None'}", "'phase':'Failed'",
     "0-0R 1-0F", 0, "Failed: status", NULL},
    {"failed, its time is over", ELASTIC ",'runPolicy':{'ttlSecondsAfterFinished':50}",
     "'phase':'Failed','completionTime':'" AGO_100 "'", "", 0, "Failed: status delete", NULL},
    {"failed, its time is not over", ELASTIC ",'runPolicy':{'ttlSecondsAfterFinished':200}",
     "'phase':'Failed','completionTime':'" AGO_100 "'", "", 0, "Failed: status", NULL},
};

static void test_table(void **state)
{
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct hvdjob job = make_job(row->spec, row->status);
        struct pod pods[8];
        const struct pod *list[8];
        struct admission admission = {.go = row->go, .wait = WAIT_ROOM, .again = INT64_MAX};
        struct actions a;
        char text[512];
        int n = make_pods(row->pods, pods, list);
        snprintf(admission.why, sizeof(admission.why), "%s", row->go ? "" : "no room");
        struct reconcile_input in = input(&job, list, n, &admission);
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        told(&a, text, sizeof(text));
        if (strcmp(text, row->want) != 0 ||
            (row->words && !strstr(words(a.status.message), row->words))) {
            print_message("%s:\n  want %s (%s)\n  have %s (%s)\n", row->what, row->want,
                          row->words ? row->words : "", text, words(a.status.message));
            failed++;
        }
        actions_fini(&a);
        for (int k = 0; k < n; k++)
            pod_fini(&pods[k]);
        hvdjob_fini(&job);
    }
    assert_int_equal(failed, 0);
}

/* In each phase: no actions for a job that is being deleted or belongs to another controller. */
static void test_hands_off(void **state)
{
    (void)state;
    for (int phase = 0; phase < JOB_PHASES; phase++)
        for (int deleting = 0; deleting < 2; deleting++) {
            struct hvdjob job =
                make_job(deleting ? ELASTIC : ELASTIC ",'runPolicy':{'managedBy':'kueue'}", "");
            struct pod pod = make_pod("0-0F");
            const struct pod *list[] = {&pod};
            struct admission admission = {.go = true};
            struct actions a;
            job.deleting = deleting;
            job.status.phase = (enum job_phase)phase;
            struct reconcile_input in = input(&job, list, 1, &admission);
            assert_int_equal(reconcile(&in, &a, NULL), 0);
            assert_int_equal(a.n, 0);
            actions_fini(&a);
            pod_fini(&pod);
            hvdjob_fini(&job);
        }
}

/* Two calls in a row: the second has nothing to write. */
static void test_settles(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    memcpy(job.status.template_hash, job.template_hash, sizeof(job.template_hash));
    struct pod pods[4];
    const struct pod *list[4];
    struct actions a;
    struct admission admission = {.again = INT64_MAX};
    int n = make_pods("0-0R 1-0R 2-0F", pods, list);
    struct reconcile_input in = input(&job, list, n, &admission);
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.failures, 1);
    assert_int_equal(a.status.restarts, 1);
    assert_int_equal(a.status.attempts_left, 5);
    assert_int_equal(a.status.first->exit_code, 1);
    assert_int_equal(a.again, NOW + 1000);
    auto_json json_t *written = hvdjob_status_write(&a.status, "x");
    hvdjob_status_fini(&job.status);
    assert_int_equal(hvdjob_status_parse(written, &job.status, NULL), 0);
    actions_fini(&a);
    in.now += 500;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.n, 0);
    actions_fini(&a);
    in.now += 500;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.all[0].kind, ACTION_CREATE_POD);
    assert_int_equal(a.all[0].attempt, 1);
    actions_fini(&a);
    for (int k = 0; k < n; k++)
        pod_fini(&pods[k]);
    hvdjob_fini(&job);
}

/* Each admission after the first is a restart of the gang. */
static void test_gang_restarts(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct hvdjob job = make_job(
            ELASTIC, again ? "'phase':'Queued','gangRestarts':2,'admittedTime':'" AGO_700 "'"
                           : "'phase':'Queued'");
        struct admission admission = {.go = true, .again = INT64_MAX};
        struct reconcile_input in = input(&job, NULL, 0, &admission);
        struct actions a;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_int_equal(a.status.phase, JOB_STARTING);
        assert_int_equal(a.status.gang_restarts, again ? 3 : 0);
        auto_json json_t *written = hvdjob_status_write(&a.status, "x");
        assert_int_equal(json_integer_value(json_object_get(written, "gangRestarts")),
                         again ? 3 : 0);
        actions_fini(&a);
        hvdjob_fini(&job);
    }
}

/* An elastic gang that has to give up workers gives up those that the queue names, after those
 * without a node. */
static void test_gives_up_named(void **state)
{
    (void)state;
    struct hvdjob job = make_job("'workers':5,'minWorkers':1,'maxWorkers':5", "'phase':'Running'");
    struct pod pods[5];
    const struct pod *list[5];
    struct actions a;
    char text[512];
    int taken[] = {1};
    struct admission admission = {.workers = 3,
                                  .taken = taken,
                                  .ntaken = 1,
                                  .by = "ml/high",
                                  .why = "it gives up 1 worker to job ml/high",
                                  .again = INT64_MAX};
    int n = make_pods("0-0R 1-0R 2-0R 3-0R 4-0P", pods, list);
    struct reconcile_input in = input(&job, list, n, &admission);
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_non_null(strstr(text, " -4-0 -1-0"));
    assert_null(strstr(text, "-3-0"));
    assert_string_equal(a.status.message, "4 of 5 workers run; worker 4 (pod digits-4-0) waits for "
                                          "the scheduler; 2 are not created: it gives up 1 worker "
                                          "to job ml/high");
    assert_string_equal(a.events[ACTION_EVENT_TAKEN].reason, "Preempted");
    assert_string_equal(a.events[ACTION_EVENT_TAKEN].text,
                        "gives up 1 worker to job ml/high, which has a higher priority");
    actions_fini(&a);
    for (int k = 0; k < n; k++)
        pod_fini(&pods[k]);
    hvdjob_fini(&job);
}

/* A raised minWorkers counts once the queue grants so many workers. */
static void test_raised_min(void **state)
{
    (void)state;
    static const struct {
        int workers, granted;
        const char *told;
    } cases[] = {{2, 1, "Waiting: status event +1-0"}, {3, 3, "Waiting: status event +1-0 +2-0"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct hvdjob job = make_job("'workers':3,'minWorkers':3,'maxWorkers':3",
                                     "'phase':'Running','minGranted':1");
        struct pod pod = make_pod("0-0R");
        const struct pod *list[] = {&pod};
        struct admission admission = {.workers = cases[i].workers, .again = INT64_MAX};
        struct reconcile_input in = input(&job, list, 1, &admission);
        struct actions a;
        char text[512];
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        told(&a, text, sizeof(text));
        assert_string_equal(text, cases[i].told);
        assert_int_equal(a.status.min_granted, cases[i].granted);
        actions_fini(&a);
        pod_fini(&pod);
        hvdjob_fini(&job);
    }
}

/* A gang for which others are preempted notes that until it runs. */
static void test_claims(void **state)
{
    (void)state;
    static const struct {
        const char *status, *pods;
        int64_t claimed, expected;
    } cases[] = {
        {"'phase':'Queued'", "", NOW, NOW},
        {"", "", NOW, NOW}, /* its first decision */
        {"'phase':'Queued','claimTime':'2023-11-14T22:13:20Z'", "", MOMENT_NONE, NOW},
        {"'phase':'Starting','claimTime':'2023-11-14T22:13:20Z'", "0-0P", NOW, NOW},
        {"'phase':'Starting','claimTime':'2023-11-14T22:13:20Z'", "0-0R 1-0R", NOW, MOMENT_NONE},
        {"'phase':'Running'", "0-0R 1-0R", NOW, MOMENT_NONE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct hvdjob job = make_job(ELASTIC, cases[i].status);
        struct pod pods[2];
        const struct pod *list[2];
        struct actions a;
        struct admission admission = {.claimed = cases[i].claimed, .again = INT64_MAX};
        int n = make_pods(cases[i].pods, pods, list);
        struct reconcile_input in = input(&job, list, n, &admission);
        job.status.admitted = NOW;
        assert_int_equal(reconcile(&in, &a, NULL), 0);
        assert_int_equal(a.status.claimed, cases[i].expected);
        actions_fini(&a);
        for (int k = 0; k < n; k++)
            pod_fini(&pods[k]);
        hvdjob_fini(&job);
    }
}

/* With a PodGroup: it is created first, and there is no time-out. */
static void test_group(void **state)
{
    (void)state;
    struct hvdjob job = make_job(ELASTIC ",'gang':{'backend':'volcano'}",
                                 "'phase':'Starting','admittedTime':'" AGO_700 "'");
    struct actions a;
    char text[512], api[64];
    struct admission admission = {.go = true, .again = INT64_MAX};
    struct reconcile_input in = input(&job, NULL, 0, &admission);
    in.gang = gang_choose(&job, "scheduling.volcano.sh/v1beta1", api, sizeof(api), NULL);
    in.group_pending = "2/3 tasks in gang unschedulable";
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Starting: status group +0-0 +1-0 +2-0");
    assert_non_null(strstr(a.status.message, "2/3 tasks in gang unschedulable"));
    actions_fini(&a);
    /* Its quota is given back while the API server refuses its PodGroup or its pods. */
    in.refused = "PodGroup digits exists and is not this job's";
    in.group_taken = true;
    job.status.admitted = NOW - 9 * MOMENT_S; /* the garbage collector has a second left */
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    assert_int_equal(a.status.phase, JOB_STARTING);
    assert_int_equal(a.again, NOW + MOMENT_S);
    actions_fini(&a);
    job.status.admitted = NOW - 10 * MOMENT_S;
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Queued: status");
    assert_int_equal(a.status.refusals, 1);
    actions_fini(&a);
    in.refused = NULL;
    in.group_taken = false;
    /* The cluster does not serve the back end: the job waits and says so. */
    job.status.phase = JOB_QUEUED;
    in.gang = NULL;
    in.gang_missing = "gang backend volcano: this cluster does not serve scheduling.volcano.sh";
    assert_int_equal(reconcile(&in, &a, NULL), 0);
    told(&a, text, sizeof(text));
    assert_string_equal(text, "Queued: status");
    assert_non_null(strstr(a.status.message, "does not serve"));
    actions_fini(&a);
    hvdjob_fini(&job);
}

/* Each phase but the final ones has a way out, each can be reached, each event has a text. */
static void test_phases(void **state)
{
    size_t n;
    const struct phase_row *all = phase_rows(&n);
    bool from[JOB_PHASES] = {0}, to[JOB_PHASES] = {0}, used[JOB_EVENTS] = {0};
    (void)state;
    for (size_t i = 0; i < n; i++) {
        from[all[i].phase] = to[all[i].next] = used[all[i].event] = true;
        assert_non_null(job_action_name(all[i].action));
        for (size_t k = 0; k < i; k++)
            assert_false(all[k].phase == all[i].phase && all[k].event == all[i].event);
    }
    for (int p = 0; p < JOB_PHASES; p++) {
        assert_int_equal(from[p], !job_phase_finished((enum job_phase)p));
        assert_true(to[p] || p == JOB_NEW);
    }
    for (int e = 0; e < JOB_EVENTS; e++)
        assert_true(used[e] && job_event_name((enum job_event)e) &&
                    *job_event_text((enum job_event)e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_hands_off),
        cmocka_unit_test(test_settles),

        cmocka_unit_test(test_gives_up_named),

        cmocka_unit_test(test_raised_min),     cmocka_unit_test(test_claims),
        cmocka_unit_test(test_group),

        cmocka_unit_test(test_phases),

        cmocka_unit_test(test_gang_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
