/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/queue_preempt: who gives up how many workers, how long the nodes are
 * claimed that become free by that, and workers that do not end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "tests/unit/operator/queues.h"

/* The last job runs only on nodes with the label label=value. */
static void only_on(struct world *w, const char *label, const char *value)
{
    struct hvdjob *job = &w->jobs[w->n - 1];
    size_t key = strlen(label) + 1;
    job->podspec.selector.text = calloc(1, key + strlen(value) + 2);
    memcpy(job->podspec.selector.text, label, key);
    memcpy(job->podspec.selector.text + key, value, strlen(value));
    w->demand[w->n - 1].spec = job->podspec;
}

static void expect_workers(const struct world *w, const char *name, int workers)
{
    assert_false(verdict(w, name)->preempted);
    assert_int_equal(verdict(w, name)->workers, workers);
}

/* Elastic gangs shrink first, then whole gangs go: of the lowest priority, the last admitted. */
static void test_order(void **state)
{
    static const int two[] = {0, 0}, one[] = {1}, other[] = {1};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "elastic", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(w, two, 2);
    last(w)->priority = 1;
    add_job(w, "first", "'workers':1", RUNNING("10:00"));
    place(w, one, 1);
    add_job(w, "second", "'workers':1", RUNNING("11:00"));
    place(w, other, 1);
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    decide(w, NOW);
    expect_waits(w, "high", "preempts job ml/elastic (priority 1, this one has 9)");
    assert_int_equal(verdict(w, "high")->wait, WAIT_PREEMPTING);
    expect_workers(w, "elastic", 1);
    assert_string_equal(verdict(w, "elastic")->by, "ml/high");
    assert_string_equal(verdict(w, "elastic")->why,
                        "it gives up 1 worker to job ml/high, which has a higher priority");
    assert_false(verdict(w, "second")->preempted);

    w->jobs[3].min = w->jobs[3].workers = 2;
    decide(w, NOW);
    expect_workers(w, "elastic", 1);
    assert_true(verdict(w, "second")->preempted);
    assert_string_equal(verdict(w, "second")->by, "ml/high");
    assert_false(verdict(w, "first")->preempted);
    assert_non_null(strstr(verdict(w, "high")->why, "and 1 more"));

    /* Nothing is taken that would not help. */
    w->jobs[3].min = w->jobs[3].workers = 5;
    decide(w, NOW);
    expect_waits(w, "high", "0 of 5 workers fit now");
    expect_workers(w, "elastic", 2);
    assert_false(verdict(w, "first")->preempted || verdict(w, "second")->preempted);

    /* The same priority, or preemptionPolicy: Never. */
    w->jobs[3].min = w->jobs[3].workers = 1;
    w->q[3].priority = 0;
    decide(w, NOW);
    expect_waits(w, "high", "0 of 1 workers fit now");
    w->q[3].priority = 9;
    w->demand[3].preempts = false;
    decide(w, NOW);
    expect_waits(w, "high", "0 of 1 workers fit now");
    expect_workers(w, "elastic", 2);
}

/* An elastic gang gives up as many workers as the new gang needs, its last ones. */
static void test_as_many_as_needed(void **state)
{
    static const int at[] = {0, 0, 1, 1}, numbers[] = {0, 1, 2, 3};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "elastic", "'workers':4,'minWorkers':1,'maxWorkers':4", RUNNING("10:00"));
    place(w, at, 4);
    last(w)->numbers = numbers;
    add_job(w, "high", "'workers':3", QUEUED("13:00"));
    last(w)->priority = 9;
    for (int n = 1; n <= 3; n++) {
        w->jobs[1].min = w->jobs[1].workers = n;
        decide(w, NOW);
        expect_waits(w, "high", "preempts job ml/elastic");
        expect_workers(w, "elastic", 4 - n);
        assert_int_equal(verdict(w, "elastic")->ntaken, n);
        assert_true(admission_takes(verdict(w, "elastic"), 3));
        assert_int_equal(admission_takes(verdict(w, "elastic"), 1), n == 3);
        assert_false(admission_takes(verdict(w, "elastic"), 0));
    }
    w->jobs[1].min = w->jobs[1].workers = 4;
    decide(w, NOW);
    assert_true(verdict(w, "elastic")->preempted);
}

/* Regression: in one run two gangs took workers of the same one, and the second the same workers as
 * the first; the list of them was written beyond its end. */
static void test_one_at_a_time(void **state)
{
    static const int at[] = {0, 0, 1, 1}, numbers[] = {0, 1, 2, 3};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "elastic", "'workers':4,'minWorkers':1,'maxWorkers':4", RUNNING("10:00"));
    place(w, at, 4);
    last(w)->numbers = numbers;
    add_job(w, "first", "'workers':2", QUEUED("13:00"));
    last(w)->priority = 9;
    add_job(w, "second", "'workers':1", QUEUED("13:01"));
    last(w)->priority = 9;
    decide(w, NOW);
    expect_waits(w, "first", "preempts job ml/elastic");
    expect_waits(w, "second", "0 of 1 workers fit now");
    expect_workers(w, "elastic", 2);
    assert_int_equal(verdict(w, "elastic")->ntaken, 2);
}

/* It gives up the workers on the nodes that the new gang can use, and no others. */
static void test_where_needed(void **state)
{
    static const int at[] = {1, 0, 1, 1}, more[] = {0}, numbers[] = {0, 1, 2, 3}, first[] = {0};
    struct world *w = *state;
    add_node(w, "a", 4, ",'labels':{'pool':'x'}", "");
    add_node(w, "b", 8, "", "");
    add_job(w, "elastic", "'workers':4,'minWorkers':1,'maxWorkers':4", RUNNING("10:00"));
    place(w, at, 4);
    last(w)->numbers = numbers;
    last(w)->priority = 1;
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    only_on(w, "pool", "x");
    last(w)->priority = 9;
    add_job(w, "whole", "'workers':1", RUNNING("10:00"));
    place(w, more, 1);
    last(w)->numbers = first;
    add_job(w, "other", "'workers':1", RUNNING("11:00"));
    place(w, at, 1);
    decide(w, NOW);
    expect_waits(w, "high", "preempts job ml/elastic");
    expect_workers(w, "elastic", 3);
    assert_int_equal(verdict(w, "elastic")->ntaken, 1);
    assert_true(admission_takes(verdict(w, "elastic"), 1));
    assert_false(verdict(w, "whole")->preempted);

    /* A whole gang has to go: those elsewhere would be given up in vain. */
    w->jobs[1].min = w->jobs[1].workers = 2;
    decide(w, NOW);
    expect_workers(w, "elastic", 3);
    assert_true(verdict(w, "whole")->preempted);
    assert_false(verdict(w, "other")->preempted);
}

/* Of gangs of one priority those give up workers that lose the fewest. */
static void test_fewest(void **state)
{
    static const int small[] = {1, 0, 0, 0, 0}, large[] = {1, 2};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 5, "", "");
    add_node(w, "c", 4, "", "");
    add_job(w, "small", "'workers':5,'minWorkers':1,'maxWorkers':5", RUNNING("11:00"));
    w->demand[0].spec.requests.amount[RESOURCES_CPU] = 1000;
    place(w, small, 5);
    add_job(w, "large", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    w->demand[1].spec.requests.amount[RESOURCES_CPU] = 4000;
    place(w, large, 2);
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    w->demand[2].spec.requests.amount[RESOURCES_CPU] = 4000;
    last(w)->priority = 9;
    decide(w, NOW);
    expect_workers(w, "small", 5);
    expect_workers(w, "large", 1);
    w->q[1].priority = 1; /* the lower priority is first, however many workers that costs */
    decide(w, NOW);
    expect_workers(w, "small", 1);
    expect_workers(w, "large", 2);
}

/* Regression: a job with an invalid spec deletes no workers, so a gang waited for ever for those
 * that it was to give up. It is preempted as a whole. */
static void test_invalid_victim(void **state)
{
    static const int at[] = {0, 0};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_job(w, "elastic", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(w, at, 2);
    assert_int_equal(words_set(&w->jobs[0].refused, "spec.template: no"), 0);
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    decide(w, NOW);
    assert_true(verdict(w, "elastic")->preempted);
}

/* While workers end, no further ones are taken, and a lower job does not take their room. */
static void test_freeing(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    w->used[0].amount[RESOURCES_CPU] = 4000;
    w->freeing[0].amount[RESOURCES_CPU] = 2000;
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    decide(w, NOW);
    expect_waits(w, "high", "waits for workers of other jobs to end");
    assert_int_equal(w->reserved[0].amount[RESOURCES_CPU], 6000);

    /* A victim of an earlier run stays one, and no other is taken. */
    w->used[0].amount[RESOURCES_CPU] = 2000;
    add_job(w, "victim", "'workers':1", RUNNING("10:00"));
    last(w)->preempted_by = "ml/high";
    add_job(w, "runs", "'workers':1", RUNNING("11:00"));
    place(w, at, 1);
    decide(w, NOW);
    expect_waits(w, "high", "waits for workers of other jobs to end");
    assert_true(verdict(w, "victim")->preempted);
    assert_string_equal(verdict(w, "victim")->by, "ml/high");
    assert_false(verdict(w, "runs")->preempted);
}

/* A pod that does not end is named, and the gang gets room elsewhere. */
static void test_stuck(void **state)
{
    static const int at[] = {1};
    struct world *w = *state;
    add_node(w, "a", 2, "", "");
    w->used[0].amount[RESOURCES_CPU] = 2000;
    w->stuck[w->nstuck++] = (struct queue_stuck){.pod = "ml/gone-0-0",
                                                 .leaves_by = NOW - 40 * MOMENT_S,
                                                 .requests = {.amount = {[RESOURCES_CPU] = 2000}}};
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    decide(w, NOW);
    expect_waits(w, "high", "0 of 1 workers fit now");
    expect_waits(
        w, "high",
        "pod ml/gone-0-0 on node a should have ended by 2023-11-14T22:12:40Z and keeps its "
        "room");
    add_node(w, "b", 2, "", "");
    add_job(w, "low", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    decide(w, NOW);
    assert_true(verdict(w, "low")->preempted);
}

/* Regression: a preempted job fitted elsewhere and was admitted at once, but the scheduler placed
 * its workers on the nodes that had been made free, so it was preempted again, and so on. */
static void test_claimed_nodes(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    add_node(w, "a", 2, ",'labels':{'pool':'x'}", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "victim", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    only_on(w, "pool", "x");
    last(w)->priority = 9;
    add_job(w, "low", "'workers':1", QUEUED("13:01"));
    decide(w, NOW);
    assert_true(verdict(w, "victim")->preempted);
    expect_waits(w, "low",
                 "could take the nodes on which other jobs are preempted for job ml/high");
    assert_int_equal(verdict(w, "high")->claimed, NOW);

    /* Also the victim, also in the run that admits the other one, and until that has its nodes. */
    w->jobs[0].status.phase = JOB_QUEUED;
    w->q[0].alive = w->q[0].bound = w->q[0].nat = 0;
    w->q[1].claimed = NOW;
    memset(w->used, 0, sizeof(w->used));
    for (int starting = 0; starting < 2; starting++) {
        decide(w, NOW + MOMENT_S);
        assert_int_equal(verdict(w, "high")->go, !starting);
        expect_waits(w, "victim", "could take the nodes");
        assert_false(verdict(w, "low")->go);
        w->jobs[1].status.phase = JOB_STARTING;
    }

    /* Not for ever, should the workers never end. */
    decide(w, NOW + 300 * MOMENT_S);
    assert_true(verdict(w, "low")->go);

    w->jobs[1].status.phase = JOB_RUNNING;
    w->q[1].alive = w->q[1].bound = 1;
    w->used[0].amount[RESOURCES_CPU] = 2000;
    decide(w, NOW);
    assert_true(verdict(w, "victim")->go && verdict(w, "low")->go);
}

/* The same where workers beyond minWorkers gave way: their gang has nothing in its status. */
static void test_claims_of_surplus(void **state)
{
    static const int at[] = {1, 0};
    struct world *w = *state;
    add_node(w, "a", 2, ",'labels':{'pool':'x'}", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "elastic", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(w, at, 2);
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    only_on(w, "pool", "x");
    last(w)->priority = 9;
    decide(w, NOW);
    expect_workers(w, "elastic", 1);
    w->q[1].claimed = verdict(w, "high")->claimed;

    /* The worker is being deleted: node b has room for another, but its gang does not get one, as
     * the scheduler could place it on node a. */
    w->q[0].alive = w->q[0].bound = w->q[0].nat = 1;
    w->freeing[0].amount[RESOURCES_CPU] = 2000;
    decide(w, NOW + MOMENT_S);
    expect_waits(w, "high", "its room is being made free");
    expect_workers(w, "elastic", 1);
    decide(w, NOW + 300 * MOMENT_S);
    expect_workers(w, "elastic", 2);
}

/* Regression: a gang that had preempted others waited for its quota for a moment, since its own
 * pods were just deleted. Its victim got the nodes back, and was preempted again. */
static void test_claims_while_over_quota(void **state)
{
    struct world *w = *state;
    struct quota_line *line = calloc(1, sizeof(*line));
    *line = (struct quota_line){.key = "pods", .hard = 1, .used = 1};
    add_node(w, "a", 2, "", "");
    w->quotas[w->nquotas++] = (struct quota){.namespace = "ml", .name = "q", .n = 1, .lines = line};
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    last(w)->claimed = NOW - MOMENT_S;
    add_job(w, "victim", "'workers':1", QUEUED("13:10"));
    move_to(w, "xx");
    decide(w, NOW);
    expect_waits(w, "high", "quota q: pods 1 asked, 0 of 1 left");
    expect_waits(w, "victim", "0 of 1 workers fit now");
    w->q[0].claimed = MOMENT_NONE;
    decide(w, NOW);
    assert_true(verdict(w, "victim")->go);
}

/* Two nodes, of which somebody has taken one: high, which has preempted for both, does not fit, and
 * victim would. */
static void break_claim(struct world *w)
{
    add_node(w, "a", 2, "", "");
    add_node(w, "b", 2, "", "");
    w->used[1].amount[RESOURCES_CPU] = 2000;
    add_job(w, "high", "'workers':2", QUEUED("13:00"));
    last(w)->priority = 9;
    last(w)->claimed = NOW - MOMENT_S;
    add_job(w, "victim", "'workers':1", QUEUED("13:10"));
    move_to(w, "xx");
}

/* Regression: a worker of a third gang was placed on one of the nodes that were made free. The
 * victims got all the others back, and were preempted again once the third gang had ended. */
static void test_claims_of_a_part(void **state)
{
    struct world *w = *state;
    break_claim(w);
    decide(w, NOW);
    expect_waits(w, "high", "1 of 2 workers fit now");
    expect_waits(w, "victim", "0 of 1 workers fit now");
    add_node(w, "c", 1, "", "");
    w->demand[1].spec.requests.amount[RESOURCES_CPU] = 1000;
    decide(w, NOW);
    expect_waits(w, "victim", "could take the nodes on which other jobs are preempted for job");
    decide(w, NOW + 300 * MOMENT_S);
    assert_true(verdict(w, "victim")->go);
}

/* After a change of the leader no dry run is answered, also not that of a gang that has preempted
 * others. */
static void test_claims_while_undecided(void **state)
{
    struct world *w = *state;
    break_claim(w);
    w->used[1].amount[RESOURCES_CPU] = 0;
    last(w)->claimed = MOMENT_NONE;
    w->q[0].pending = true;
    decide(w, NOW);
    assert_false(verdict(w, "high")->go);
    expect_waits(w, "victim", "0 of 1 workers fit now");
    w->q[0].claimed = MOMENT_NONE;
    decide(w, NOW);
    assert_true(verdict(w, "victim")->go);
}

/* The same if the leader was killed before it wrote the claim: the victim knows for whom it was
 * preempted. It does not run elsewhere either before that gang is admitted. */
static void test_victim_waits(void **state)
{
    struct world *w = *state;
    break_claim(w);
    w->freeing[1].amount[RESOURCES_CPU] = 2000;
    only_on(w, "pool", "x");
    w->demand[1].spec.requests.amount[RESOURCES_CPU] = 1000;
    add_node(w, "c", 1, ",'labels':{'pool':'x'}", "");
    w->q[0].claimed = MOMENT_NONE;
    assert_int_equal(words_set(&w->jobs[1].status.preempted_by, "ml/high"), 0);
    w->jobs[1].status.last_preemption = NOW - MOMENT_S;
    for (int pending = 1; pending >= 0; pending--) {
        w->q[0].pending = pending;
        decide(w, NOW);
        expect_waits(w, "victim", "preempted for job ml/high, which is admitted first");
        assert_int_equal(verdict(w, "victim")->wait, WAIT_HELD);
        decide(w, NOW + 300 * MOMENT_S);
        assert_true(verdict(w, "victim")->go);
    }
    expect_waits(w, "high", "its room is being made free");
    decide(w, NOW);
    assert_int_equal(verdict(w, "high")->claimed, NOW - MOMENT_S);
    w->used[1].amount[RESOURCES_CPU] = 0;
    w->freeing[1].amount[RESOURCES_CPU] = 0;
    decide(w, NOW);
    assert_true(verdict(w, "high")->go && verdict(w, "victim")->go);

    /* Not for an earlier wait of that job, nor for another one of its name. */
    w->q[0].pending = true;
    w->jobs[0].status.queued = NOW;
    decide(w, NOW);
    assert_true(verdict(w, "victim")->go);
}

/* Another job of the same priority does not get the nodes either, though its namespace holds less.
 */
static void test_claimers_are_first(void **state)
{
    static const int at[] = {1};
    struct world *w = *state;
    add_node(w, "a", 2, "", "");
    add_node(w, "b", 2, "", "");
    add_job(w, "holds", "'workers':1", RUNNING("10:00"));
    place(w, at, 1);
    last(w)->priority = 9;
    add_job(w, "high", "'workers':1", QUEUED("13:00"));
    last(w)->priority = 9;
    last(w)->claimed = NOW - MOMENT_S;
    add_job(w, "other", "'workers':1", QUEUED("12:00"));
    last(w)->priority = 9;
    move_to(w, "xx");
    decide(w, NOW);
    assert_true(verdict(w, "high")->go);
    assert_false(verdict(w, "other")->go);
    w->q[1].claimed = MOMENT_NONE;
    decide(w, NOW);
    assert_true(verdict(w, "other")->go);
    assert_false(verdict(w, "high")->go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_order),
        WORLD_TEST(test_as_many_as_needed),
        WORLD_TEST(test_where_needed),
        WORLD_TEST(test_one_at_a_time),
        WORLD_TEST(test_fewest),
        WORLD_TEST(test_freeing),
        WORLD_TEST(test_stuck),
        WORLD_TEST(test_invalid_victim),
        WORLD_TEST(test_claimed_nodes),
        WORLD_TEST(test_claims_of_surplus),
        WORLD_TEST(test_claims_while_over_quota),
        WORLD_TEST(test_claims_of_a_part),
        WORLD_TEST(test_claims_while_undecided),
        WORLD_TEST(test_victim_waits),
        WORLD_TEST(test_claimers_are_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
