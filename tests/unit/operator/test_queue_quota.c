/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/queue and objects/quota: what ResourceQuotas admit, and which jobs
 * are asked about again when they change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/operator/queues.h"

/* The gang's sum against what the quota has left, before it has a pod. */
static void test_quota(void **state)
{
    struct world *w = *state;
    add_node(w, "a", 99, "", "");
    w->nodes[0].allocatable.amount[RESOURCES_PODS] = 99;
    w->nodes[0].allocatable.amount[RESOURCES_MEMORY] *= 8;
    add_quota(w, "ml", "'requests.cpu':'10','count/services':'1'", "'requests.cpu':'1500m'", "");
    add_job(w, "five", "'workers':5", QUEUED("13:00"));
    add_job(w, "elastic", "'workers':4,'minWorkers':2,'maxWorkers':4", QUEUED("13:01"));
    add_job(w, "other", "'workers':5", QUEUED("13:02"));
    move_to(w, "xx");
    decide(w, NOW);
    expect_waits(w, "five", "quota few: requests.cpu 10 asked, 8500m of 10 left");
    assert_true(verdict(w, "elastic")->go);
    assert_int_equal(verdict(w, "elastic")->workers, 4);
    assert_true(verdict(w, "other")->go);
    leave(w);

    /* A job that waits holds nothing of the quota, whatever it waits for. */
    add_quota(w, "ml", "'pods':'4'", "'pods':'0'", "");
    add_job(w, "never", "'workers':3", QUEUED("12:59"));
    w->demand[w->n - 1].spec.selector.text = (char[]){"no\0such\0"};
    add_job(w, "five", "'workers':5", QUEUED("13:00"));
    add_job(w, "two", "'workers':2", QUEUED("13:01"));
    decide(w, NOW);
    expect_waits(w, "never", "0 of 3 workers fit now");
    expect_waits(w, "five", "pods 5 asked, 4 of 4 left");
    assert_true(verdict(w, "two")->go);
}

/* Regression: a job that creates no workers, since its template was changed while workers exist,
 * kept quota for those that it had been granted. */
static void test_quota_of_frozen(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    add_node(w, "a", 99, "", "");
    w->nodes[0].allocatable.amount[RESOURCES_PODS] = 99;
    for (int frozen = 0; frozen < 2; frozen++) {
        add_quota(w, "ml", "'pods':'4'", "'pods':'1'", "");
        add_job(w, "elastic", "'workers':4,'minWorkers':1,'maxWorkers':4",
                frozen ? RUNNING("10:00") ",'shape':'old'" : RUNNING("10:00"));
        place(w, at, 1);
        last(w)->granted = 4;
        add_job(w, "two", "'workers':2", QUEUED("13:00"));
        decide(w, NOW);
        assert_int_equal(verdict(w, "two")->go, frozen);
        assert_int_equal(verdict(w, "elastic")->workers, frozen ? 1 : 4);
        leave(w);
    }
}

/* Of two quotas the one that never admits the gang is named, though the other has less left. */
static void test_quota_never(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_quota(w, "ml", "'requests.cpu':'8'", "'requests.cpu':'0'", "");
    add_quota(w, "ml", "'pods':'9'", "'pods':'9'", "");
    add_job(w, "five", "'workers':5", QUEUED("13:00"));
    add_job(w, "four", "'workers':4", QUEUED("13:01"));
    decide(w, NOW);
    expect_waits(w, "five",
                 "quota few: requests.cpu 10 asked, 8 of 8 left; the job can never start: its "
                 "minWorkers ask for 10, and the quota allows at most 8");
    expect_waits(w, "four", "quota few: pods 4 asked, 0 of 9 left");
    assert_null(strstr(verdict(w, "four")->why, "never"));
    assert_int_equal(verdict(w, "four")->wait, WAIT_QUOTA);
}

/* The last job was refused by a quota at that time. */
static void refuse(struct world *w, int64_t at)
{
    last(w)->refused = "the API server refuses a worker's pod: exceeded quota";
    last(w)->refused_for = WAIT_QUOTA;
    last(w)->refused_at = at;
    last(w)->refused_again = NOW + 100 * MOMENT_S;
    last(w)->may_ask = true;
}

static int asked(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->q[i].ret.ask;
    return n;
}

/* Regression: jobs that a quota had refused waited for their backoff. They are asked about again
 * when the quota has room for the gang, one of a namespace at a time, and hold their part of it. */
static void test_quota_asks_again(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_quota(w, "ml", "'requests.cpu':'10'", "'requests.cpu':'8'", "");
    add_job(w, "four", "'workers':4", QUEUED("13:00"));
    refuse(w, NOW - 2);
    add_job(w, "one", "'workers':1", QUEUED("13:01"));
    refuse(w, NOW - 3);
    add_job(w, "next", "'workers':1", QUEUED("13:02"));
    decide(w, NOW);
    expect_waits(w, "four", "quota few: requests.cpu 8 asked, 2 of 10 left");
    assert_true(verdict(w, "four")->again == NOW + 100 * MOMENT_S);
    expect_waits(w, "one", "exceeded quota");
    assert_int_equal(asked(w), 1);
    assert_true(verdict(w, "one")->ask);
    expect_waits(w, "next", "2 asked, 0 of 10 left");

    w->quotas[0].lines[0].used = 0;
    decide(w, NOW);
    assert_int_equal(asked(w), 1);
    assert_true(verdict(w, "one")->ask); /* it was asked about longer ago */
    w->quotas[0].lines[0].used = 0;
    w->q[1].asking = true;
    decide(w, NOW);
    assert_int_equal(asked(w), 0);
    w->quotas[0].lines[0].used = 0;
    w->q[1].asking = w->q[1].may_ask = w->q[0].may_ask = false;
    decide(w, NOW);
    assert_int_equal(asked(w), 0); /* the quota has not changed since */
    expect_waits(w, "four", "exceeded quota");
    assert_true(verdict(w, "next")->go);
}

static void test_quota_gives(void **state)
{
    static const struct {
        const char *hard, *used, *scopes;
        bool gives;
    } cases[] = {
        {"'pods':'4','requests.cpu':'9'", "'pods':'2'", "'scopes':['BestEffort']", false},
        {"'pods':'4','cpu':'9'", "'pods':'3'", "'scopes':['BestEffort']", false},
        {"'pods':'3','cpu':'8'", "'pods':'2','cpu':'1'", "'scopes':['BestEffort']", false},
        {"'pods':'4','cpu':'9','memory':'1'", "'pods':'2'", "'scopes':['BestEffort']", false},
        {"'pods':'4','cpu':'9'", "'pods':'1'", "'scopes':['BestEffort']", true},
        {"'pods':'4','cpu':'10'", "'pods':'4'", "'scopes':['BestEffort']", true},
        {"'pods':'4'", "'pods':'2'", "'scopes':['BestEffort']", true},
        {"'pods':'4','cpu':'9'", "'pods':'2'", "", true},
        {"'pods':'4','cpu':'9'", "'pods':'2'", "'scopes':['Terminating']", true},
    };
    struct quota before =
        make_quota("ml", "'pods':'4','cpu':'9'", "'pods':'2'", "'scopes':['BestEffort']");
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct quota after = make_quota("ml", cases[i].hard, cases[i].used, cases[i].scopes);
        if (quota_gives(&before, &after) != cases[i].gives)
            fail_msg("%s; %s; %s", cases[i].hard, cases[i].used, cases[i].scopes);
        quota_fini(&after);
    }
    assert_true(quota_gives(&before, NULL));
    quota_fini(&before);
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

/* A gang that was admitted and has no pods yet has its part of the quota. */
static void test_quota_of_admitted(void **state)
{
    struct world *w = *state;
    w->blind = true;
    add_quota(w, "ml", "'requests.cpu':'6'", "'requests.cpu':'0'", "");
    add_job(w, "first", "'workers':2", "'phase':'Starting','admittedTime':'2023-11-14T22:13:19Z'");
    last(w)->gates = false;
    add_job(w, "second", "'workers':2", QUEUED("13:00"));
    last(w)->gates = false;
    decide(w, NOW);
    expect_waits(w, "second", "requests.cpu 4 asked, 2 of 6 left");
}

/* The same holds for workers beyond minWorkers that an elastic gang was granted. */
static void test_quota_of_granted(void **state)
{
    static const int at[] = {0};
    struct world *w = *state;
    add_node(w, "a", 99, "", "");
    w->nodes[0].allocatable.amount[RESOURCES_MEMORY] *= 8;
    add_quota(w, "ml", "'requests.cpu':'6'", "'requests.cpu':'2'", "");
    add_job(w, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
    place(w, at, 1);
    last(w)->granted = 2;
    add_job(w, "next", "'workers':2", QUEUED("13:00"));
    decide(w, NOW);
    expect_waits(w, "next", "requests.cpu 4 asked, 2 of 6 left");
    assert_int_equal(verdict(w, "elastic")->workers, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_quota),
        WORLD_TEST(test_quota_of_frozen),
        WORLD_TEST(test_quota_never),
        WORLD_TEST(test_quota_asks_again),
        WORLD_TEST(test_quota_gives),
        WORLD_TEST(test_quota_scopes),
        WORLD_TEST(test_quota_of_admitted),
        WORLD_TEST(test_quota_of_granted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
