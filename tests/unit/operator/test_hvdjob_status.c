/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects/hvdjob_status: a status as JSON, with the fields of other programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/objects/parts.h"
#include "tests/unit/operator/jobs.h"

/* A status survives writing and parsing; manual edits do no harm. */
static void test_status(void **state)
{
    struct hvdjob_status s = {.phase = JOB_WAITING,
                              .attempt = 2,
                              .failures = 3,
                              .failed_late = true},
                         t;
    (void)state;
    assert_int_equal(hvdjob_status_raise(&s, 7, 5, NULL), 0);
    assert_int_equal(hvdjob_status_raise(&s, 1, 3, NULL), 0);
    assert_int_equal(hvdjob_status_raise(&s, 7, 4, NULL), 0);
    assert_int_equal(hvdjob_status_raise(&s, 9, 1, NULL),
                     0); /* all workers have a higher attempt */
    condition_set(&s.conditions[CONDITION_READY], true, "Running", "so it is", 3, NOW + 999);
    condition_set(&s.conditions[CONDITION_READY], true, "Other", "still", 4, NOW + 5000);
    assert_true(s.conditions[CONDITION_READY].since == NOW);
    condition_set(&s.conditions[CONDITION_READY], false, "Other", "no", 4, NOW + 5000);
    assert_true(s.conditions[CONDITION_READY].since == NOW + 5000);
    auto_json json_t *once = hvdjob_status_write(&s, "sel");
    assert_int_equal(hvdjob_status_parse(once, &t, NULL), 0);
    auto_json json_t *twice = hvdjob_status_write(&t, "sel");
    assert_true(json_equal(once, twice));
    assert_int_equal(hvdjob_status_attempt(&t, 7), 5);
    assert_int_equal(hvdjob_status_attempt(&t, 1), 3);
    assert_int_equal(hvdjob_status_attempt(&t, 9), 2);
    hvdjob_status_new_round(&t, 4);
    assert_int_equal(hvdjob_status_attempt(&t, 7), 6);
    assert_int_equal(hvdjob_status_attempt(&t, 0), 6);
    hvdjob_status_fini(&s);
    hvdjob_status_fini(&t);
    auto_json json_t *bad = from_text("{'phase':7,'failures':-3,'attempts':{'x':1,'2':-1,'3':'y',"
                                      "'99999999':1},'conditions':[3,{'type':'Ready'}],"
                                      "'startTime':'soon','firstFailure':'no'}");
    assert_int_equal(hvdjob_status_parse(bad, &t, NULL), 0);
    assert_int_equal(t.phase, JOB_NEW);
    assert_int_equal(t.failures, 0);
    assert_int_equal(t.nretries, 0);
    assert_true(t.started == MOMENT_NONE);
    hvdjob_status_fini(&t);
}

/* Conditions of other types and unknown fields are written back as they were. The operator knows
 * all fields that it writes itself. */
static void test_status_of_others(void **state)
{
    struct hvdjob_status s, copy;
    struct job_first_failure first = {.rank = 0};
    struct job_failure_rule rule = {.name = "r", .cause = "exit code 3 of container w"};
    struct job_finding finding = {.failure = true};
    (void)state;
    auto_json json_t *j = from_text(
        "{'phase':'Running','conditions':[{'type':'Ready','status':'True','reason':'Old'},"
        "{'type':'example.com/Paid','status':'Unknown','message':'m'}],'bill':{'c':[7]}}");
    assert_int_equal(hvdjob_status_parse(j, &s, NULL), 0);
    assert_int_equal(hvdjob_status_copy(&s, &copy, NULL), 0);
    hvdjob_status_fini(&s);
    condition_set(&copy.conditions[CONDITION_READY], true, "New", "n", 1, NOW);
    auto_json json_t *out = hvdjob_status_write(&copy, "sel");
    auto_json json_t *paid =
        from_text("{'type':'example.com/Paid','status':'Unknown','message':'m'}");
    auto_json json_t *bill = from_text("{'c':[7]}");
    json_t *list = json_object_get(out, "conditions");
    assert_int_equal(json_array_size(list), 2);
    assert_true(json_equal(parts_find(list, "type", "example.com/Paid"), paid));
    assert_string_equal(parts_text(parts_find(list, "type", "Ready"), "reason"), "New");
    assert_true(json_equal(json_object_get(out, "bill"), bill));
    json_object_clear(json_array_get(list, 1)); /* the written list is the caller's */
    auto_json json_t *again = hvdjob_status_write(&copy, "sel");
    assert_true(json_equal(json_array_get(json_object_get(again, "conditions"), 1), paid));
    hvdjob_status_fini(&copy);

    s = (struct hvdjob_status){.failed_late = true, .first = &first, .rule = &rule};
    s.template_hash[0] = 'x';
    s.last_loss = s.last_rollback = s.queued = s.admitted = s.started = s.completed =
        s.drain_since = s.claimed = NOW;
    s.message = (char *)"m";
    s.findings.more = s.min_granted = 1;
    assert_int_equal(hvdjob_status_raise(&s, 1, 3, NULL), 0);
    assert_int_equal(job_findings_add(&s.findings, &finding), 0);
    assert_int_equal(job_drains_add(&s.drains, "n1", NOW), 0);
    assert_int_equal(job_drains_add(&s.drains, "n2", NOW + 1000), 0);
    s.drains.all[1].over = true;
    condition_set(&s.conditions[CONDITION_READY], true, "Running", "so it is", 3, NOW);
    auto_json json_t *all = hvdjob_status_write(&s, "sel");
    assert_int_equal(hvdjob_status_parse(all, &copy, NULL), 0);
    assert_null(copy.others);
    assert_int_equal(copy.drains.n, 2);
    assert_memory_equal(copy.drains.all, s.drains.all, 2 * sizeof(*s.drains.all));
    assert_int_equal(copy.claimed, NOW);
    assert_int_equal(copy.min_granted, 1);
    assert_string_equal(copy.rule->cause, rule.cause);
    hvdjob_status_fini(&copy);
    s.first = NULL;
    s.rule = NULL;
    s.message = NULL;
    hvdjob_status_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
