/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/queue: tenants, priorities, shares, growth, probes.
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
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_job(w, "old", "'workers':2", QUEUED("13:00"));
    add_job(w, "new", "'workers':2", QUEUED("13:10"));
    last(w)->priority = 5;
    decide(w, NOW);
    assert_true(verdict(w, "new")->go);
    expect_waits(w, "old", "0 of 2 workers fit now");
}

/* Of two namespaces the one that holds less is first, however many older jobs the other one has. */
static void test_fair(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    add_node(w, "a", 6, "", "");
    add_job(w, "runs", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    add_job(w, "more1", "'workers':1", QUEUED("13:00"));
    add_job(w, "more2", "'workers':1", QUEUED("13:01"));
    add_job(w, "other1", "'workers':1", QUEUED("13:02"));
    move_to(w, "xx");
    add_job(w, "other2", "'workers':1", QUEUED("13:03"));
    move_to(w, "xx");
    decide(w, NOW);
    assert_true(verdict(w, "other1")->go);
    assert_true(verdict(w, "more1")->go); /* now both hold one, and it is older */
    assert_false(verdict(w, "more2")->go);
    assert_false(verdict(w, "other2")->go);
}

/* A job that has waited long holds the nodes that it needs, and no others. */
static void test_holds_its_nodes_only(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 4, "", "");
    add_node(w, "c", 4, "", "");
    for (int i = 0; i < 3; i++)
        w->used[i].amount[RESOURCES_CPU] = 2000;
    add_job(w, "large", "'workers':4,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(w, "s1", "'workers':1", QUEUED("13:15"));
    add_job(w, "s2", "'workers':1", QUEUED("13:16"));
    decide(w, NOW);
    expect_waits(w, "large", "3 of 4 workers fit now");
    expect_waits(w, "s1", "holds the nodes that it needs"); /* large holds all that is free */
    leave(w);
    for (int more = 0; more < 2; more++) {
        w->used[0].amount[RESOURCES_CPU] = 4000;
        add_job(w, "large", "'workers':3,'gang':{'probeSeconds':0}", QUEUED("00:00"));
        w->demand[0].spec.requests.amount[RESOURCES_CPU] = 4000;
        add_job(w, "s1", "'workers':1", QUEUED("13:15"));
        decide(w, NOW);
        expect_waits(w, "large", "2 of 3 workers fit now");
        assert_int_equal(verdict(w, "s1")->go, more);
        leave(w);
        if (more == 0)
            add_node(w, "d", 2, "", ""); /* too small for large */
    }
}

/* What the namespace's gangs may hold at most; an elastic job gets what is left of it. */
static void test_share(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    w->policy.share = 50;
    add_node(w, "a", 8, "", "");
    add_job(w, "runs", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    add_job(w, "two", "'workers':2", QUEUED("13:00"));
    add_job(w, "grows", "'workers':3,'minWorkers':1,'maxWorkers':3", QUEUED("13:01"));
    add_job(w, "other", "'workers':2", QUEUED("13:02"));
    move_to(w, "xx");
    decide(w, NOW);
    expect_waits(w, "two", "may hold 50 % of the cluster's cpu");
    assert_true(verdict(w, "grows")->go);
    assert_int_equal(verdict(w, "grows")->workers, 1);
    assert_true(verdict(w, "other")->go);
}

/* Regression: "pods" did not count, so that many small workers took most pod slots. */
static void test_share_of_pods(void **state)
{
    struct world *w = *state;
    w->policy.share = 50;
    add_node(w, "a", 99, "", "");
    w->nodes[0].allocatable.amount[RESOURCES_MEMORY] *= 8;
    add_job(w, "first", "'workers':4", QUEUED("13:00"));
    add_job(w, "second", "'workers':2", QUEUED("13:01"));
    decide(w, NOW);
    assert_true(verdict(w, "first")->go);
    expect_waits(w, "second",
                 "the jobs of a namespace may hold 50 % of the cluster's pods, and with this job "
                 "those of ml would hold more: 2 asked, 4 held, 5 allowed");
    assert_int_equal(verdict(w, "second")->wait, WAIT_SHARE);
}

/* The message has the numbers, and says what never passes; the worse cause is first. */
static void test_share_says(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    w->policy.share = 50;
    add_node(w, "a", 8, "", "");
    add_node(w, "b", 2, "", "");
    add_job(w, "runs", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    add_job(w, "waits", "'workers':2", QUEUED("13:00"));
    add_job(w, "never", "'workers':3", QUEUED("13:01"));
    add_job(w, "large", "'workers':1", QUEUED("13:02"));
    last(w)->demand = &w->demand[3];
    w->demand[3].spec.requests.amount[RESOURCES_CPU] = 9000;
    decide(w, NOW);
    expect_waits(w, "waits", "would hold more: 4 asked, 2 held, 5 allowed");
    assert_null(strstr(verdict(w, "waits")->why, "never"));
    expect_waits(w, "never", ": 6 asked, 2 held, 5 allowed; the job can never start");
    assert_true(strncmp(verdict(w, "large")->why,
                        "0 of 1 workers fit now; a worker asks for cpu 9, memory 1Gi; no node for "
                        "it has that much cpu even when empty (the largest has 8); the jobs of a "
                        "namespace may hold 50 %",
                        140) == 0);
}

/* The last job has further workers without a node that exist, or are being created. */
static void loosen(struct world *w, int exist, int granted)
{
    last(w)->alive += exist;
    last(w)->granted = granted;
}

/* Regression: an elastic gang's workers that had no node yet did not count, so that the scheduler
 * placed them while another gang was admitted. They count until they are deleted; the gang that
 * waits for that is next. */
static void test_share_of_loose_workers(void **state)
{
    static const int at[] = {0};
    static const struct {
        int exist, granted;
    } cases[] = {{1, 0}, {0, 2}};
    struct world *w = *state;
    add_node(w, "a", 8, "", "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        w->policy.share = 50;
        add_job(w, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
        place(w, at, 1);
        loosen(w, cases[i].exist, cases[i].granted);
        add_job(w, "next", "'workers':1", QUEUED("13:00"));
        add_job(w, "later", "'workers':1", QUEUED("13:01"));
        decide(w, NOW);
        expect_waits(w, "next", "may hold 50 % of the cluster's cpu");
        expect_waits(w, "next", "workers of its other jobs are deleted first");
        expect_waits(w, "later", "may hold 50 % of the cluster's cpu");
        assert_true(verdict(w, "next")->again == NOW + MOMENT_S);
        assert_int_equal(verdict(w, "elastic")->workers, 1);
        w->q[0].alive = 1;
        w->q[0].granted = 0;
        decide(w, NOW);
        assert_true(verdict(w, "next")->go);
        expect_waits(w, "later", "may hold 50 % of the cluster's cpu");
        leave(w);
    }
}

/* No gang grows into what another one's loose workers hold, though these are to be deleted. */
static void test_growth_beside_loose_workers(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    w->policy.share = 75;
    add_node(w, "a", 8, "", "");
    add_job(w, "first", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(w, at, 1);
    add_job(w, "second", "'workers':1,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    loosen(w, 2, 0);
    decide(w, NOW);
    assert_int_equal(verdict(w, "first")->workers, 1);
    assert_int_equal(verdict(w, "second")->workers, 1);
    w->q[1].alive = 1;
    decide(w, NOW);
    assert_int_equal(verdict(w, "first")->workers, 2);
}

/* Raising minWorkers of a running job is no way round the share. */
static void test_share_of_raised_min(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    w->policy.share = 50;
    add_node(w, "a", 8, "", "");
    add_job(w, "raised", "'workers':4,'minWorkers':4,'maxWorkers':4", RUNNING("10:00"));
    place(w, at, 1);
    w->jobs[0].status.min_granted = 1;
    decide(w, NOW);
    assert_int_equal(verdict(w, "raised")->workers, 2);
    w->policy.share = 100;
    decide(w, NOW);
    assert_int_equal(verdict(w, "raised")->workers, 4);
}

/* Without gates, a gang that is admitted and has no pods yet has its part of the share. */
static void test_share_of_admitted(void **state)
{
    struct world *w = *state;
    w->policy.share = 50;
    add_node(w, "a", 8, "", "");
    add_job(w, "first", "'workers':2", "'phase':'Starting','admittedTime':'2023-11-14T22:13:19Z'");
    last(w)->gates = false;
    add_job(w, "second", "'workers':1", QUEUED("13:00"));
    last(w)->gates = false;
    decide(w, NOW);
    expect_waits(w, "second", "may hold 50 % of the cluster's cpu");
}

/* The workers of a preempted gang hold their share until they are deleted. */
static void test_share_of_preempted(void **state)
{
    static const int at[] = {0, 0};
    struct world *w = *state;
    w->policy.share = 50;
    add_node(w, "a", 8, "", "");
    add_job(w, "victim", "'workers':2", RUNNING("10:00"));
    place(w, at, 2);
    last(w)->preempted_by = "xx/high";
    add_job(w, "next", "'workers':1", QUEUED("13:00"));
    decide(w, NOW);
    expect_waits(w, "next", "may hold 50 % of the cluster's cpu");
}

/* An elastic job grows only into free room while a job of its priority or a higher one waits. */
static void test_growth(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    add_node(w, "a", 4, "", "");
    add_job(w, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
    place(w, at, 1);
    decide(w, NOW);
    assert_int_equal(verdict(w, "elastic")->workers, 3);
    add_job(w, "waits", "'workers':2", QUEUED("13:00"));
    w->used[0].amount[RESOURCES_CPU] = 2000;
    decide(w, NOW);
    assert_false(verdict(w, "waits")->go);
    assert_int_equal(verdict(w, "elastic")->workers, 2);

    /* Its pending workers take no room from the waiting job. */
    w->q[0].alive = 3;
    w->jobs[1].workers = w->jobs[1].min = 1;
    w->used[0].amount[RESOURCES_CPU] = 2000;
    decide(w, NOW);
    assert_true(verdict(w, "waits")->go);
    assert_int_equal(verdict(w, "elastic")->workers, 1);
}

static void expect_grows(struct world *w, int workers, const char *why)
{
    decide(w, NOW);
    assert_int_equal(verdict(w, "elastic")->workers, workers);
    expect_waits(w, "elastic", why);
}

/* An elastic job with fewer workers than it wants says what it has no more for. */
static void test_growth_says(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    add_node(w, "a", 8, "", "");
    add_job(w, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
    place(w, at, 1);
    decide(w, NOW);
    assert_int_equal(verdict(w, "elastic")->workers, 3);
    assert_string_equal(verdict(w, "elastic")->why, "");
    add_quota(w, "ml", "'requests.cpu':'4'", "'requests.cpu':'2'", "");
    expect_grows(w, 2, "quota few: requests.cpu 4 asked, 2 of 4 left");
    w->quotas[0].lines[0].hard = 40000;
    w->policy.share = 50;
    expect_grows(w, 2,
                 "may hold 50 % of the cluster's cpu, and with more of its workers those of ml "
                 "would hold more: 4 asked, 2 held, 4 allowed");
    w->policy.share = 100;
    add_job(w, "waits", "'workers':4", QUEUED("13:00"));
    w->used[0].amount[RESOURCES_CPU] = 6000;
    w->quotas[0].lines[0].used = 2000;
    expect_grows(w, 2, "1 of 2 fit now, and while other jobs wait");
}

/* One gang in probe for each namespace and node pool, and not more in all than the administrator
 * allows. */
static void test_probes(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_job(w, "a1", "'workers':1", QUEUED("13:00"));
    add_job(w, "a2", "'workers':1", QUEUED("13:01"));
    add_job(w, "b1", "'workers':1", QUEUED("13:02"));
    move_to(w, "xx");
    decide(w, NOW);
    assert_true(verdict(w, "a1")->go);
    expect_waits(w, "a2", "job ml/a1 is being tried");
    assert_true(verdict(w, "b1")->go);
    w->policy.probes = 1;
    decide(w, NOW);
    expect_waits(w, "b1", "at most 1 such jobs are tried at a time");

    /* Another pool is tried, too, but a namespace gets half of the probes at most. */
    char pool[] = "x\0y\0";
    w->demand[1].spec.selector.text = pool;
    w->policy.probes = 4;
    decide(w, NOW);
    assert_true(verdict(w, "a1")->go && verdict(w, "a2")->go && verdict(w, "b1")->go);
    w->policy.probes = 2;
    decide(w, NOW);
    expect_waits(w, "a2", "at most 2 such jobs are tried at a time");
    assert_true(verdict(w, "b1")->go);
}

/* A job that no pod of any job keeps from its nodes, but pods of others such as DaemonSets do,
 * holds no nodes: it may wait for ever. */
static void test_holds_no_impossible_nodes(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    w->used[0].amount[RESOURCES_CPU] = w->foreign[0].amount[RESOURCES_CPU] = 1000;
    add_job(w, "never", "'workers':2,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(w, "small", "'workers':1", QUEUED("13:15"));
    decide(w, NOW);
    expect_waits(w, "never", "1 of 2 workers fit now");
    assert_true(verdict(w, "small")->go);
}

/* The room of a lost worker of a job that waits below minWorkers is not given away in the pause
 * before its replacement. */
static void test_keeps_room_of_lost_workers(void **state)
{
    struct world *w = *state;
    static const int at[] = {0};
    add_node(w, "a", 4, "", "");
    add_job(w, "elastic", "'workers':2,'minWorkers':2,'maxWorkers':3",
            "'phase':'Waiting','admittedTime':'2023-11-14T22:10:00Z'");
    place(w, at, 1);
    add_job(w, "small", "'workers':1", QUEUED("13:00"));
    decide(w, NOW);
    expect_waits(w, "small", "0 of 1 workers fit now");
}

/* A job whose back end the cluster does not serve takes no quota from others. */
static void test_unserved(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_quota(w, "ml", "'requests.cpu':'4'", "'requests.cpu':'0'", "");
    add_job(w, "unserved", "'workers':2", QUEUED("13:00"));
    last(w)->gates = false;
    last(w)->unserved = true;
    add_job(w, "good", "'workers':2", QUEUED("13:01"));
    decide(w, NOW);
    assert_false(verdict(w, "unserved")->go);
    assert_true(verdict(w, "good")->go);
}

/* The API server refuses the dry run, or has refused pods: no pods, and no reservation. */
static void test_refused(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_job(w, "bad", "'workers':2", QUEUED("13:00"));
    last(w)->refused = "the API server refuses a worker's pod: privileged containers";
    last(w)->refused_again = NOW + 7000;
    add_job(
        w, "again", "'workers':2",
        QUEUED("13:00") ",'refusals':1,'refusal':'no','lastRefusalTime':'2023-11-14T22:13:19Z'");
    add_job(w, "good", "'workers':2", QUEUED("13:10"));
    add_job(w, "unasked", "'workers':1", QUEUED("13:00"));
    last(w)->pending = true;
    decide(w, NOW);
    expect_waits(w, "bad", "refuses a worker's pod: privileged containers");
    assert_true(verdict(w, "bad")->again == NOW + 7000);
    expect_waits(w, "again", "refuses a worker's pod: no");
    assert_true(verdict(w, "again")->again == NOW + 4000);
    assert_true(verdict(w, "good")->go);
    expect_waits(w, "unasked", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_priority),
        WORLD_TEST(test_fair),
        WORLD_TEST(test_holds_its_nodes_only),
        WORLD_TEST(test_share),
        WORLD_TEST(test_share_of_pods),
        WORLD_TEST(test_share_says),
        WORLD_TEST(test_share_of_loose_workers),
        WORLD_TEST(test_growth_beside_loose_workers),
        WORLD_TEST(test_share_of_raised_min),
        WORLD_TEST(test_share_of_admitted),
        WORLD_TEST(test_share_of_preempted),
        WORLD_TEST(test_growth),
        WORLD_TEST(test_growth_says),
        WORLD_TEST(test_probes),
        WORLD_TEST(test_holds_no_impossible_nodes),
        WORLD_TEST(test_keeps_room_of_lost_workers),
        WORLD_TEST(test_unserved),
        WORLD_TEST(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
