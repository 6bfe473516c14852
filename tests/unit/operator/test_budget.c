/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/budget and operator/objects/budget: which PodDisruptionBudget a job
 * has, and when it is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/reconcile/budget.h"
#include "tests/unit/operator/jobs.h"

#define META                                                                                       \
    "'metadata':{'uid':'b1','ownerReferences':[{'uid':'x'},{'uid':'u1','controller':true}]}"
#define ALWAYS  "'unhealthyPodEvictionPolicy':'AlwaysAllow'"
#define DIGITS  "'selector':{'matchLabels':{'hvd.dev/job':'digits'}}"
#define ELASTIC "'workers':3,'minWorkers':2,'maxWorkers':4"

static struct budget read_budget(const char *text)
{
    struct budget b;
    struct err err = {0};
    auto_json json_t *j = from_text(text);
    if (budget_parse(j, &b, &err) < 0)
        fail_msg("%s", err.msg);
    return b;
}

static void test_limits(void **state)
{
    static const struct {
        const char *spec;
        int min, max;
    } rows[] = {
        {ELASTIC, 2, -1},
        {"'workers':4,'maxWorkers':5", 4, -1},
        {"'workers':3,'minWorkers':1", 1, -1}, /* maxWorkers defaults to workers */
        {"'workers':4", -1, 1},
        {"'workers':1", -1, 1},
        {"'workers':2,'minWorkers':2,'maxWorkers':2", -1, 1},
        {"'minWorkers':3,'maxWorkers':3", 2, -1}, /* no spec.workers for the scale subresource */
        {"", 0, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hvdjob job = make_job(rows[i].spec, "'phase':'Running'");
        auto_json json_t *j = budget_object(&job, (struct budget_drain){0});
        assert_non_null(j);
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, NULL), BUDGET_CREATE);
        json_object_set_new(json_object_get(j, "metadata"), "uid", json_string("b1"));
        struct budget b;
        assert_int_equal(budget_parse(j, &b, NULL), 0);
        if (b.min_available != rows[i].min || b.max_unavailable != rows[i].max)
            fail_msg("%s: minAvailable %d, maxUnavailable %d", rows[i].spec, b.min_available,
                     b.max_unavailable);
        assert_string_equal(b.owner, "u1");
        assert_true(b.always);
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, &b),
                         BUDGET_LEAVE); /* already correct */
        hvdjob_fini(&job);
    }
}

/* The drain policy, and an operator that does not see nodes. */
static void test_drains(void **state)
{
#define POLICY(p) ",'runPolicy':{'drainPolicy':'" p "'}"
    static const struct {
        const char *spec;
        struct budget_drain drain;
        int min, max;
    } rows[] = {
        {ELASTIC POLICY("Wait"), {.blind = true}, 1, -1},
        {"'workers':4" POLICY("Wait"), {.blind = true}, -1, 1},
        {ELASTIC POLICY("Shrink"), {0}, 0, -1},
        {"'workers':4" POLICY("Restart"), {0}, 0, -1},
        {ELASTIC POLICY("Block"), {0}, 3, -1},
        {"'workers':4" POLICY("Block"), {0}, 4, -1},
        {ELASTIC POLICY("Block"), {.blind = true}, 1, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hvdjob job = make_job(rows[i].spec, "'phase':'Running'");
        auto_json json_t *j = budget_object(&job, rows[i].drain);
        struct budget b;
        json_object_set_new(json_object_get(j, "metadata"), "uid", json_string("b1"));
        assert_int_equal(budget_parse(j, &b, NULL), 0);
        if (b.min_available != rows[i].min || b.max_unavailable != rows[i].max)
            fail_msg("row %zu: minAvailable %d, maxUnavailable %d", i, b.min_available,
                     b.max_unavailable);
        assert_int_equal(budget_decide(&job, rows[i].drain, &b), BUDGET_LEAVE);
        hvdjob_fini(&job);
    }
}

/* Workers on nodes whose drain is over its limit are not in the budget; all others stay limited. */
static void test_over(void **state)
{
    const int over[] = {1, 10};
    const struct budget_drain drain = {.over = over, .nover = 2};
    struct hvdjob job = make_job("'workers':20", "'phase':'Running'");
    struct budget before =
        read_budget("{" META ",'spec':{'maxUnavailable':1," ALWAYS "," DIGITS "}}");
    auto_json json_t *change = budget_change(&job, drain, &before);
    auto_json json_t *want =
        from_text("{'metadata':{'uid':'b1'},'spec':{'minAvailable':null,'maxUnavailable':1," ALWAYS
                  ",'selector':{'matchLabels':{'hvd.dev/job':'digits'},'matchExpressions':[{'key':"
                  "'hvd.dev/worker','operator':'NotIn','values':['1','10']}]}}}");
    (void)state;
    assert_true(json_equal(change, want));
    assert_int_equal(budget_decide(&job, drain, &before), BUDGET_CHANGE);
    struct budget after;
    assert_int_equal(budget_parse(change, &after, NULL), 0);
    snprintf(after.owner, sizeof(after.owner), "u1");
    assert_int_equal(budget_decide(&job, drain, &after), BUDGET_LEAVE);
    assert_int_equal(budget_decide(&job, (struct budget_drain){0}, &after), BUDGET_CHANGE);
    hvdjob_fini(&job);
}

/* Manual changes of the budget are reverted. */
static void test_kept(void **state)
{
    static const struct {
        const char *spec;
        enum budget_step want;
    } rows[] = {
        {"'minAvailable':2," ALWAYS "," DIGITS, BUDGET_LEAVE},
        {"'minAvailable':1," ALWAYS "," DIGITS, BUDGET_CHANGE},
        {"'minAvailable':'50%'," ALWAYS "," DIGITS, BUDGET_CHANGE},
        {"'maxUnavailable':1," ALWAYS "," DIGITS, BUDGET_CHANGE},
        {"'minAvailable':2," DIGITS, BUDGET_CHANGE},
        {"'minAvailable':2," ALWAYS, BUDGET_CHANGE},
        {"'minAvailable':2," ALWAYS ",'selector':{'matchLabels':{'hvd.dev/job':'others'}}",
         BUDGET_CHANGE},
        {"'minAvailable':2," ALWAYS
         ",'selector':{'matchLabels':{'hvd.dev/job':'digits','more':'x'}}",
         BUDGET_CHANGE},
    };
    (void)state;
    struct hvdjob job = make_job(ELASTIC, "'phase':'Running'");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), "{" META ",'spec':{%s}}", rows[i].spec);
        struct budget b = read_budget(text);
        if (budget_decide(&job, (struct budget_drain){0}, &b) != rows[i].want)
            fail_msg("%s", rows[i].spec);
    }
    struct budget b = read_budget("{" META ",'spec':{'maxUnavailable':1}}");
    auto_json json_t *change = budget_change(&job, (struct budget_drain){0}, &b);
    auto_json json_t *want =
        from_text("{'metadata':{'uid':'b1'},'spec':{'minAvailable':2,'maxUnavailable':null," ALWAYS
                  ",'selector':{'matchLabels':{'hvd.dev/job':'digits'},'matchExpressions':null}}}");
    assert_true(json_equal(change, want));
    hvdjob_fini(&job);
}

/* Created once the job runs; left alone if the job has finished, belongs to another controller, or
 * is being deleted. */
static void test_when(void **state)
{
    (void)state;
    struct budget wrong = read_budget("{" META ",'spec':{}}");
    for (int phase = 0; phase < JOB_PHASES; phase++) {
        struct hvdjob job = make_job(ELASTIC, "");
        job.status.phase = (enum job_phase)phase;
        bool runs = phase == JOB_RUNNING || phase == JOB_WAITING;
        bool over = phase == JOB_SUCCEEDED || phase == JOB_FAILED;
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, NULL),
                         runs ? BUDGET_CREATE : BUDGET_LEAVE);
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, &wrong),
                         over ? BUDGET_LEAVE : BUDGET_CHANGE);
        job.deleting = true;
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, &wrong), BUDGET_LEAVE);
        job.deleting = false;
        job.ours = false;
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, &wrong), BUDGET_LEAVE);
        assert_int_equal(budget_decide(&job, (struct budget_drain){0}, NULL), BUDGET_LEAVE);
        hvdjob_fini(&job);
    }
}

/* Budgets with arbitrary contents. */
static void test_of_others(void **state)
{
    static const char *const rows[] = {
        "{'metadata':{'uid':'b'}}", "{'metadata':{'uid':'b'},'spec':7}",
        ("{'metadata':{'uid':'b','ownerReferences':'x'},'spec':{'minAvailable':-1,"
         "'maxUnavailable':99999999999,'selector':[]}}")};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct budget b = read_budget(rows[i]);
        assert_int_equal(b.min_available, -1);
        assert_int_equal(b.max_unavailable, -1);
        assert_string_equal(b.owner, "");
    }
    struct budget b;
    auto_json json_t *j = from_text("{'metadata':{'name':'x'}}");
    assert_int_equal(budget_parse(j, &b, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_drains),
        cmocka_unit_test(test_kept),      cmocka_unit_test(test_when),
        cmocka_unit_test(test_of_others), cmocka_unit_test(test_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
