/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/queue: tenants, priorities, quotas, shares, preemption, probes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/operator/queues.h"

/* The higher priority is first, though it is younger. */
static void test_priority(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "old", "'workers':2", QUEUED("13:00"));
    add_job(&l, "new", "'workers':2", QUEUED("13:10"));
    last(&l)->priority = 5;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "new")->go);
    expect_waits(&l, "old", "0 of 2 workers fit now");
    leave(&l);
    fini(&w);
}

/* Of two namespaces the one that holds less is first, however many older jobs the other one has. */
static void test_fair(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 6, "", "");
    add_job(&l, "runs", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "more1", "'workers':1", QUEUED("13:00"));
    add_job(&l, "more2", "'workers':1", QUEUED("13:01"));
    add_job(&l, "other1", "'workers':1", QUEUED("13:02"));
    move_to(&l, "xx");
    add_job(&l, "other2", "'workers':1", QUEUED("13:03"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "other1")->go);
    assert_true(verdict(&l, "more1")->go); /* now both hold one, and it is older */
    assert_false(verdict(&l, "more2")->go);
    assert_false(verdict(&l, "other2")->go);
    leave(&l);
    fini(&w);
}

/* A job that has waited long holds the nodes that it needs, and no others. */
static void test_holds_its_nodes_only(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_node(&w, "b", 4, "", "");
    add_node(&w, "c", 4, "", "");
    for (int i = 0; i < 3; i++)
        w.used[i].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "large", "'workers':4,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(&l, "s1", "'workers':1", QUEUED("13:15"));
    add_job(&l, "s2", "'workers':1", QUEUED("13:16"));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "large", "3 of 4 workers fit now");
    expect_waits(&l, "s1", "holds the nodes that it needs"); /* large holds all that is free */
    leave(&l);
    for (int more = 0; more < 2; more++) {
        memset(w.used, 0, sizeof(w.used));
        w.used[0].amount[RESOURCES_CPU] = 4000;
        add_job(&l, "large", "'workers':3,'gang':{'probeSeconds':0}", QUEUED("00:00"));
        l.demand[0].spec.requests.amount[RESOURCES_CPU] = 4000;
        add_job(&l, "s1", "'workers':1", QUEUED("13:15"));
        decide(&l, &w.c, NOW);
        expect_waits(&l, "large", "2 of 3 workers fit now");
        assert_int_equal(verdict(&l, "s1")->go, more);
        leave(&l);
        if (more == 0)
            add_node(&w, "d", 2, "", ""); /* too small for large */
    }
    fini(&w);
}

/* What the namespace's gangs may hold at most; an elastic job gets what is left of it. */
static void test_share(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.share = 50};
    (void)state;
    init(&w);
    add_node(&w, "a", 8, "", "");
    add_job(&l, "runs", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "two", "'workers':2", QUEUED("13:00"));
    add_job(&l, "grows", "'workers':3,'minWorkers':1,'maxWorkers':3", QUEUED("13:01"));
    add_job(&l, "other", "'workers':2", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    expect_waits(&l, "two", "may hold 50 % of the cluster's cpu");
    assert_true(verdict(&l, "two")->no_pods);
    assert_true(verdict(&l, "grows")->go);
    assert_int_equal(verdict(&l, "grows")->workers, 1);
    assert_true(verdict(&l, "other")->go);
    leave(&l);
    fini(&w);
}

static struct quota make_quota(const char *namespace, const char *hard, const char *used,
                               const char *more)
{
    char text[512];
    struct quota q;
    snprintf(text, sizeof(text),
             "{'metadata':{'namespace':'%s','name':'few'},'spec':{%s},'status':{'hard':{%s},"
             "'used':{%s}}}",
             namespace, more, hard, used);
    auto_json json_t *j = from_text(text);
    assert_int_equal(quota_parse(j, &q, NULL), 0);
    return q;
}

/* The gang's sum against what the quota has left, before it has a pod. */
static void test_quota(void **state)
{
    struct world w;
    struct line_of_jobs l = {.nquotas = 1};
    (void)state;
    init(&w);
    add_node(&w, "a", 99, "", "");
    w.nodes[0].allocatable.amount[RESOURCES_PODS] = 99;
    w.nodes[0].allocatable.amount[RESOURCES_MEMORY] *= 8;
    l.quotas[0] =
        make_quota("ml", "'requests.cpu':'10','count/services':'1'", "'requests.cpu':'1500m'", "");
    add_job(&l, "five", "'workers':5", QUEUED("13:00"));
    add_job(&l, "elastic", "'workers':4,'minWorkers':2,'maxWorkers':4", QUEUED("13:01"));
    add_job(&l, "other", "'workers':5", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    expect_waits(&l, "five", "quota few: requests.cpu 10 asked, 8500m of 10 left");
    assert_true(verdict(&l, "five")->no_pods);
    assert_true(verdict(&l, "elastic")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 4);
    assert_true(verdict(&l, "other")->go);
    quota_fini(&l.quotas[0]);
    leave(&l);

    /* Pods with gates count: a job that is decided later has none while an earlier one waits. */
    l.quotas[0] = make_quota("ml", "'pods':'4'", "'pods':'0'", "");
    w.nodes[0].allocatable.amount[RESOURCES_CPU] = 2000;
    memset(w.used, 0, sizeof(w.used));
    add_job(&l, "five", "'workers':5", QUEUED("13:00"));
    add_job(&l, "two", "'workers':2", QUEUED("13:01"));
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "five")->no_pods);
    expect_waits(&l, "two", "1 of 2 workers fit now");
    assert_true(verdict(&l, "two")->no_pods);
    quota_fini(&l.quotas[0]);
    leave(&l);
    fini(&w);
}

static void test_quota_scopes(void **state)
{
    struct hvdjob job = make_job("'workers':2", "");
    struct demand d = {.spec = job.podspec, .priority_class = "high"};
    static const struct {
        const char *scope;
        int admits;
    } cases[] = {
        {"", 1},
        {"'scopes':['BestEffort']", 9},
        {"'scopes':['NotBestEffort']", 1},
        {"'scopes':['Terminating']", 9},
        {"'scopes':['NotTerminating','NotBestEffort']", 1},
        {"'scopes':['CrossNamespacePodAffinity']", 9},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':'In',"
         "'values':['low','high']}]}",
         1},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':'NotIn',"
         "'values':['high']}]}",
         9},
        {"'scopes':['PriorityClass']", 1},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':"
         "'DoesNotExist'}]}",
         9},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct quota_line *line = NULL;
        struct quota q = make_quota("ml", "'memory':'3Gi'", "'memory':'2Gi'", cases[i].scope);
        int n = quota_admits(&q, &d, 9, &line);
        if (n != cases[i].admits)
            fail_msg("%s: admits %d instead of %d", cases[i].scope, n, cases[i].admits);
        quota_take(&q, &d, 1);
        assert_int_equal(quota_admits(&q, &d, 9, &line), cases[i].admits == 1 ? 0 : 9);
        quota_fini(&q);
    }
    hvdjob_fini(&job);
}

/* Elastic gangs shrink first, then whole gangs go: of the lowest priority, the last admitted. */
static void test_preemption(void **state)
{
    static const int two[] = {0, 0}, one[] = {1}, other[] = {1};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_node(&w, "b", 4, "", "");
    add_job(&l, "elastic", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(&l, &w, two, 2);
    last(&l)->priority = 1;
    add_job(&l, "first", "'workers':1", RUNNING("10:00"));
    place(&l, &w, one, 1);
    add_job(&l, "second", "'workers':1", RUNNING("11:00"));
    place(&l, &w, other, 1);
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    last(&l)->priority = 9;
    struct world fresh = w;
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "preempts job ml/elastic (priority 1, this one has 9)");
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    assert_false(verdict(&l, "elastic")->preempted);
    assert_false(verdict(&l, "second")->preempted);

    l.jobs[3].min = l.jobs[3].workers = 2;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    assert_true(verdict(&l, "second")->preempted);
    assert_string_equal(verdict(&l, "second")->why, "ml/high");
    assert_false(verdict(&l, "first")->preempted);
    assert_non_null(strstr(verdict(&l, "high")->why, "and 1 more"));

    /* Nothing is taken that would not help. */
    l.jobs[3].min = l.jobs[3].workers = 5;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 5 workers fit now");
    assert_int_equal(verdict(&l, "elastic")->workers, 2);
    assert_false(verdict(&l, "first")->preempted || verdict(&l, "second")->preempted);

    /* The same priority, or preemptionPolicy: Never. */
    l.jobs[3].min = l.jobs[3].workers = 1;
    l.q[3].priority = 0;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 1 workers fit now");
    l.q[3].priority = 9;
    l.demand[3].preempts = false;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 1 workers fit now");
    assert_int_equal(verdict(&l, "elastic")->workers, 2);
    leave(&l);
    fini(&w);
}

/* While workers end, no further ones are taken, and a lower job does not take their room. */
static void test_freeing(void **state)
{
    struct world w;
    struct resources freeing[NODES] = {{.n = 0}};
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    w.used[0].amount[RESOURCES_CPU] = 4000;
    freeing[0].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    last(&l)->priority = 9;
    struct queue_input in = {.jobs = l.q,
                             .n = l.n,
                             .cluster = &w.c,
                             .freeing = freeing,
                             .policy = {.share = 100, .probes = 8},
                             .now = NOW};
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "high", "waits for workers of other jobs to end");
    assert_int_equal(w.used[0].amount[RESOURCES_CPU], 6000);

    /* A victim of an earlier run stays one, and no other is taken. */
    static const int at[] = {0};
    w.used[0].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "victim", "'workers':1", RUNNING("10:00"));
    last(&l)->preempted_by = "ml/high";
    add_job(&l, "runs", "'workers':1", RUNNING("11:00"));
    place(&l, &w, at, 1);
    in.n = l.n;
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "high", "waits for workers of other jobs to end");
    assert_true(verdict(&l, "victim")->preempted);
    assert_string_equal(verdict(&l, "victim")->why, "ml/high");
    assert_false(verdict(&l, "runs")->preempted);
    leave(&l);
    fini(&w);
}

/* Regression: a preempted job fitted elsewhere and was admitted at once, but the scheduler placed
 * its workers on the nodes that had been made free, so it was preempted again, and so on. */
static void test_claimed_nodes(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 2, ",'labels':{'pool':'x'}", "");
    add_node(&w, "b", 4, "", "");
    add_job(&l, "victim", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    l.jobs[1].podspec.selector.text = calloc(1, 8);
    memcpy(l.jobs[1].podspec.selector.text, "pool\0x\0", 8);
    l.demand[1].spec = l.jobs[1].podspec;
    last(&l)->priority = 9;
    add_job(&l, "low", "'workers':1", QUEUED("13:01"));
    struct world fresh = w;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "victim")->preempted);
    expect_waits(&l, "low",
                 "could take the nodes on which other jobs are preempted for job ml/high");

    /* Also the victim, and also until the other one's workers have their nodes. */
    l.jobs[0].status.phase = JOB_QUEUED;
    l.jobs[0].status.preempted_by = strdup("ml/high");
    l.jobs[0].status.last_preemption = NOW - MOMENT_S;
    l.q[0].alive = l.q[0].bound = l.q[0].nat = 0;
    l.jobs[1].status.phase = JOB_STARTING;
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "victim", "could take the nodes");
    assert_false(verdict(&l, "low")->go);
    l.jobs[1].status.phase = JOB_RUNNING;
    l.q[1].alive = l.q[1].bound = 1;
    w.used[0] = fresh.used[0];
    memset(&w.used[1], 0, sizeof(w.used[1]));
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "victim")->go && verdict(&l, "low")->go);

    /* Not for ever, should the workers never end. */
    l.jobs[1].status.phase = JOB_STARTING;
    l.q[1].alive = l.q[1].bound = 0;
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW + 300 * MOMENT_S);
    assert_true(verdict(&l, "low")->go);
    leave(&l);
    fini(&w);
}

/* An elastic job grows only into free room while a job of its priority or a higher one waits. */
static void test_growth(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
    place(&l, &w, at, 1);
    decide(&l, &w.c, NOW);
    assert_int_equal(verdict(&l, "elastic")->workers, 3);
    add_job(&l, "waits", "'workers':2", QUEUED("13:00"));
    memset(w.used, 0, sizeof(w.used));
    w.used[0].amount[RESOURCES_CPU] = 2000;
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "waits")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 2);

    /* Its pending workers take no room from the waiting job. */
    l.q[0].alive = 3;
    l.q[0].unbound = 2;
    l.jobs[1].workers = l.jobs[1].min = 1;
    w.used[0].amount[RESOURCES_CPU] = 2000;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "waits")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    leave(&l);
    fini(&w);
}

/* One gang in probe for each namespace and node pool, and not more in all than the administrator
 * allows. */
static void test_probes(void **state)
{
    struct line_of_jobs l = {.n = 0};
    (void)state;
    add_job(&l, "a1", "'workers':1", QUEUED("13:00"));
    add_job(&l, "a2", "'workers':1", QUEUED("13:01"));
    add_job(&l, "b1", "'workers':1", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, NULL, NOW);
    assert_true(verdict(&l, "a1")->go);
    expect_waits(&l, "a2", "job ml/a1 is being tried");
    assert_true(verdict(&l, "b1")->go);
    struct queue_input in = {
        .jobs = l.q, .n = l.n, .policy = {.share = 100, .probes = 1}, .now = NOW};
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "b1", "at most 1 such jobs are tried at a time");

    /* Another pool is tried, too, but a namespace gets half of the probes at most. */
    char pool[] = "x\0y\0";
    l.demand[1].spec.selector.text = pool;
    in.policy.probes = 4;
    assert_int_equal(queue_decide(&in), 0);
    assert_true(verdict(&l, "a1")->go && verdict(&l, "a2")->go && verdict(&l, "b1")->go);
    in.policy.probes = 2;
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "a2", "at most 2 such jobs are tried at a time");
    assert_true(verdict(&l, "b1")->go);
    leave(&l);
}

/* A job that no pod of any job keeps from its nodes, but pods of others such as DaemonSets do,
 * holds no nodes: it may wait for ever. */
static void test_holds_no_impossible_nodes(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    struct resources foreign = {.amount = {[RESOURCES_CPU] = 1000}};
    add_job(&l, "never", "'workers':2,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(&l, "small", "'workers':1", QUEUED("13:15"));
    w.used[0] = foreign;
    struct queue_input in = {.jobs = l.q,
                             .n = l.n,
                             .cluster = &w.c,
                             .foreign = &foreign,
                             .policy = {.share = 100, .probes = 8},
                             .now = NOW};
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "never", "1 of 2 workers fit now");
    assert_true(verdict(&l, "small")->go);
    leave(&l);
    fini(&w);
}

/* The room of a lost worker of a job that waits below minWorkers is not given away in the pause
 * before its replacement. */
static void test_keeps_room_of_lost_workers(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "elastic", "'workers':2,'minWorkers':2,'maxWorkers':3",
            "'phase':'Waiting','admittedTime':'2023-11-14T22:10:00Z'");
    place(&l, &w, at, 1);
    add_job(&l, "small", "'workers':1", QUEUED("13:00"));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "small", "0 of 1 workers fit now");
    leave(&l);
    fini(&w);
}

/* A gang that was admitted and has no pods yet has its part of the quota. */
static void test_quota_of_admitted(void **state)
{
    struct line_of_jobs l = {.nquotas = 1};
    (void)state;
    l.quotas[0] = make_quota("ml", "'requests.cpu':'6'", "'requests.cpu':'0'", "");
    add_job(&l, "first", "'workers':2", "'phase':'Starting','admittedTime':'2023-11-14T22:13:19Z'");
    last(&l)->gates = false;
    add_job(&l, "second", "'workers':2", QUEUED("13:00"));
    last(&l)->gates = false;
    decide(&l, NULL, NOW);
    expect_waits(&l, "second", "requests.cpu 4 asked, 2 of 6 left");
    leave(&l);
    quota_fini(&l.quotas[0]);
}

/* A job whose back end the cluster does not serve takes no quota from others. */
static void test_unserved(void **state)
{
    struct line_of_jobs l = {.nquotas = 1};
    (void)state;
    l.quotas[0] = make_quota("ml", "'requests.cpu':'4'", "'requests.cpu':'0'", "");
    add_job(&l, "unserved", "'workers':2", QUEUED("13:00"));
    last(&l)->gates = false;
    last(&l)->unserved = true;
    add_job(&l, "good", "'workers':2", QUEUED("13:01"));
    decide(&l, NULL, NOW);
    assert_false(verdict(&l, "unserved")->go);
    assert_true(verdict(&l, "good")->go);
    leave(&l);
    quota_fini(&l.quotas[0]);
}

/* The API server refuses the dry run, or has refused pods: no pods, and no reservation. */
static void test_refused(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "bad", "'workers':2", QUEUED("13:00"));
    last(&l)->refused = "the API server refuses a worker's pod: privileged containers";
    last(&l)->refused_again = NOW + 7000;
    add_job(
        &l, "again", "'workers':2",
        QUEUED("13:00") ",'refusals':1,'refusal':'no','lastRefusalTime':'2023-11-14T22:13:19Z'");
    add_job(&l, "good", "'workers':2", QUEUED("13:10"));
    add_job(&l, "unasked", "'workers':1", QUEUED("13:00"));
    last(&l)->pending = true;
    decide(&l, &w.c, NOW);
    expect_waits(&l, "bad", "refuses a worker's pod: privileged containers");
    assert_true(verdict(&l, "bad")->no_pods && verdict(&l, "again")->no_pods);
    assert_true(verdict(&l, "bad")->again == NOW + 7000);
    expect_waits(&l, "again", "refuses a worker's pod: no");
    assert_true(verdict(&l, "again")->again == NOW + 4000);
    assert_true(verdict(&l, "good")->go);
    expect_waits(&l, "unasked", "");
    leave(&l);
    fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_fair),
        cmocka_unit_test(test_holds_its_nodes_only),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_quota_scopes),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_claimed_nodes),
        cmocka_unit_test(test_freeing),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_holds_no_impossible_nodes),
        cmocka_unit_test(test_keeps_room_of_lost_workers),
        cmocka_unit_test(test_quota_of_admitted),
        cmocka_unit_test(test_unserved),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
