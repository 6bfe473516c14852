/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/fit and queue: what fits, messages about what does not, admission.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/reconcile/backoff.h"
#include "tests/unit/operator/queues.h"

static void test_fit(void **state)
{
    struct world *w = *state;
    struct hvdjob job = make_job("'workers':4", "");
    char text[1024];
    fit_explain(&w->c, &job.podspec, 4, text, sizeof(text));
    assert_non_null(strstr(text,
                           "0 of 4 workers fit now; a worker asks for cpu 2, memory 1Gi; there "
                           "are no nodes"));
    add_node(w, "a", 5, "", "");
    add_node(w, "b", 4, "", "'unschedulable':true");
    add_node(w, "c", 4, "", "'taints':[{'key':'ml','value':'x','effect':'NoSchedule'}]");
    add_node(w, "d", 3, "", "");
    assert_int_equal(fit_count(&w->c, &job.podspec, 9), 3); /* 2 on a, 1 on d */
    w->used[0].amount[RESOURCES_CPU] = 2000;
    assert_int_equal(fit_count(&w->c, &job.podspec, 9), 2);
    assert_int_equal(fit_count_empty(&w->c, &job.podspec, 9), 3);
    reserve(&w->c, &job.podspec, 1);
    assert_int_equal(w->used[0].amount[RESOURCES_CPU], 4000);
    fit_explain(&w->c, &job.podspec, 4, text, sizeof(text));
    static const char *const words[] = {
        "1 of 4 workers fit now; a worker asks for cpu 2, memory 1Gi",
        "the whole cluster, empty, has room for 3",
        "node a: cpu 2 asked, 1 of 5 free",
        "node b: cordoned",
        "node c: taint ml=x:NoSchedule is not tolerated",
        "node d: room for 1",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strstr(text, words[i]))
            fail_msg("\"%s\" is not in \"%s\"", words[i], text);
    /* A message that does not fit is cut. */
    char small[40];
    fit_explain(&w->c, &job.podspec, 4, small, sizeof(small));
    assert_int_equal(strlen(small), sizeof(small) - 1);
    hvdjob_fini(&job);
}

static void test_never(void **state)
{
    struct world *w = *state;
    struct hvdjob job = make_job("'workers':2", "");
    char text[1024];
    add_node(w, "a", 1, "", "");
    add_node(w, "b", 1, ",'labels':{'x':'y'}", "");
    fit_explain(&w->c, &job.podspec, 2, text, sizeof(text));
    assert_non_null(
        strstr(text, "no node for it has that much cpu even when empty (the largest has 1)"));
    job.podspec.selector.text = malloc(5);
    memcpy(job.podspec.selector.text, "x\0z\0", 5);
    fit_explain(&w->c, &job.podspec, 2, text, sizeof(text));
    assert_non_null(strstr(text, "node a: without the label x=z"));
    /* Regression: where labels, taints or cordons exclude all nodes, none is too small. */
    assert_non_null(strstr(text, "; no node takes it; "));
    assert_null(strstr(text, "even when empty"));
    assert_null(strstr(text, "the whole cluster, empty"));
    assert_true(fit_never(&w->c, &job.podspec, 2, text, sizeof(text)));
    assert_string_equal(text, "0 of 2 workers fit now; a worker asks for cpu 2, memory 1Gi; no "
                              "node takes it");
    w->nodes[0].allocatable.amount[RESOURCES_CPU] = 4000;
    job.podspec.selector.text[2] = 'y';
    assert_true(fit_never(&w->c, &job.podspec, 2, text, sizeof(text)));
    assert_non_null(strstr(text, "that much cpu even when empty (the largest has 1)"));
    w->nodes[1].allocatable.amount[RESOURCES_CPU] = 2000;
    assert_true(fit_never(&w->c, &job.podspec, 2, text, sizeof(text)));
    assert_non_null(strstr(text, "the whole cluster, empty, has room for 1"));
    assert_false(fit_never(&w->c, &job.podspec, 1, text, sizeof(text)));
    hvdjob_fini(&job);
}

/* ---- the queue ------------------------------------------------------------------------------ */

/* Two gangs of which only one fits: the first is admitted, the second waits with a reason. */
static void test_promises(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_node(w, "b", 4, "", "");
    add_job(w, "late", "'workers':3", QUEUED("13:10"));
    add_job(w, "early", "'workers':3", QUEUED("13:05"));
    add_job(w, "small", "'workers':1", QUEUED("13:15"));
    decide(w, NOW);
    assert_true(verdict(w, "early")->go);
    assert_false(verdict(w, "late")->go);
    assert_non_null(strstr(verdict(w, "late")->why, "1 of 3 workers fit now"));
    assert_true(verdict(w, "small")->go); /* fits beside the first */
    /* The same if the first was admitted and has no pods yet. */
    w->jobs[1].status.phase = JOB_STARTING;
    w->jobs[2].status.phase = JOB_STARTING;
    memset(w->used, 0, sizeof(w->used));
    decide(w, NOW);
    assert_false(verdict(w, "late")->go);
}

/* No younger job overtakes a job that has waited QUEUE_PATIENCE, unless the older job would not
 * even fit the empty cluster. */
static void test_patience(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    w->used[0].amount[RESOURCES_CPU] = 2000;
    add_job(w, "large", "'workers':2,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(w, "small", "'workers':1", QUEUED("13:15"));
    decide(w, NOW);
    assert_false(verdict(w, "large")->go);
    assert_false(verdict(w, "small")->go);
    assert_non_null(strstr(verdict(w, "small")->why,
                           "job ml/large has waited longer than 300 s and holds the nodes"));
    leave(w);
    add_job(w, "never", "'workers':9,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(w, "small", "'workers':1", QUEUED("13:15"));
    memset(w->used, 0, sizeof(w->used));
    decide(w, NOW);
    assert_false(verdict(w, "never")->go);
    assert_true(verdict(w, "small")->go);
    leave(w);
    add_job(w, "large", "'workers':2", QUEUED("13:00"));
    w->used[0].amount[RESOURCES_CPU] = 2000;
    decide(w, NOW);
    assert_true(verdict(w, "large")->again == NOW - 20000 + QUEUE_PATIENCE);
}

/* Where fitting is unknown: one gang at a time, oldest first. */
static void test_tries(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_job(w, "b", "'workers':2", QUEUED("13:10"));
    add_job(w, "a", "'workers':2", QUEUED("13:05"));
    decide(w, NOW);
    assert_true(verdict(w, "a")->go);
    assert_false(verdict(w, "b")->go);
    assert_non_null(strstr(verdict(w, "b")->why, "may not list nodes"));
    w->jobs[1].status.phase = JOB_STARTING;
    decide(w, NOW);
    assert_false(verdict(w, "b")->go);
    for (int i = 0; i < w->n; i++)
        if (w->q[i].job == &w->jobs[1])
            w->q[i].bound = 2; /* it has its nodes: the next is admitted */
    decide(w, NOW);
    assert_true(verdict(w, "b")->go);
}

/* A gang waits longer after each rollback; one that fits nowhere is admitted for an autoscaler
 * after probeSeconds. */
static void test_back(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 4, "", "");
    add_job(w, "a", "'workers':1",
            QUEUED("13:10") ",'rollbacks':2,'lastRollbackTime':'2023-11-14T22:13:15Z'");
    decide(w, NOW);
    assert_false(verdict(w, "a")->go);
    assert_non_null(strstr(verdict(w, "a")->why, "tried again 10 s after that"));
    assert_true(verdict(w, "a")->again == NOW + 5000);
    decide(w, NOW + 5000);
    assert_true(verdict(w, "a")->go);
    leave(w);
    memset(w->used, 0, sizeof(w->used));
    add_job(w, "a", "'workers':9,'gang':{'probeSeconds':30}", QUEUED("13:00"));
    decide(w, NOW);
    assert_false(verdict(w, "a")->go);
    assert_true(verdict(w, "a")->again == NOW + 10000);
    decide(w, NOW + 10000);
    assert_true(verdict(w, "a")->go);
    leave(w);
    assert_int_equal(backoff(0, 1, 60), 0);
    assert_int_equal(backoff(1, 1, 60), 1);
    assert_int_equal(backoff(4, 1, 60), 8);
    assert_int_equal(backoff(1000000, 1, 60), 60);
}

/* Many jobs, a few at a time: the same decisions as at once. */
static void test_slices(void **state)
{
    struct world *w = *state;
    struct queue *q;
    int turns = 1;
    add_node(w, "a", 4, "", "");
    for (int i = 0; i < JOBS; i++)
        add_job(w, i == 0 ? "0" : i == 1 ? "1" : "more", "'workers':1", QUEUED("13:00"));
    struct queue_input in = {.jobs = w->q,
                             .n = w->n,
                             .cluster = &w->c,
                             .policy = {.share = 100, .probes = 1},
                             .now = NOW};
    assert_int_equal(queue_begin(&q, &in), 0);
    while (!queue_step(q, 1))
        turns++;
    queue_end(q);
    assert_true(turns > JOBS);
    assert_true(verdict(w, "0")->go && verdict(w, "1")->go);
    assert_false(verdict(w, "more")->go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_fit),      WORLD_TEST(test_never), WORLD_TEST(test_promises),
        WORLD_TEST(test_patience), WORLD_TEST(test_tries), WORLD_TEST(test_back),
        WORLD_TEST(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
