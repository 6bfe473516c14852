/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_ends: which member's end decides the job's exit code.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/member/roster_ends.h"

/* The first failure of a fixed job decides. A rank that failed because another one ended decides
 * only if there is no other failure. */
static void test_fixed(void **state)
{
    struct roster_ends e;
    (void)state;
    roster_ends_init(&e);
    assert_int_equal(roster_ends_culprit(&e, false, 3), -1);
    roster_ends_record(&e, 4, END_EARLY);
    assert_int_equal(roster_ends_culprit(&e, false, 3), -1);
    roster_ends_record(&e, 1, END_FOLLOWS);
    roster_ends_record(&e, 2, END_FOLLOWS);
    assert_int_equal(roster_ends_culprit(&e, false, 1), 1);
    roster_ends_record(&e, 3, END_FAILS_JOB);
    roster_ends_record(&e, 0, END_FAILS_JOB);
    assert_int_equal(roster_ends_culprit(&e, false, 0), 3);
    assert_int_equal(e.early, 4);
}

/* A failure that was replaced decides only if no member has finished. */
static void test_elastic(void **state)
{
    struct roster_ends e;
    (void)state;
    roster_ends_init(&e);
    roster_ends_record(&e, 1, END_REPLACED);
    roster_ends_record(&e, 2, END_REPLACED);
    roster_ends_record(&e, 3, END_AS_ASKED);
    roster_ends_record(&e, 4, END_STOPPED);
    assert_int_equal(roster_ends_culprit(&e, true, 0), 2);
    e.finished = 1;
    assert_int_equal(roster_ends_culprit(&e, true, 0), -1);
    roster_ends_record(&e, 5, END_REPLACED_OR_FAILS);
    assert_int_equal(roster_ends_culprit(&e, true, 1), -1); /* other ranks train on */
    assert_int_equal(roster_ends_culprit(&e, true, 0), 5);
    e.unreplaced = -1; /* a joiner was admitted */
    assert_int_equal(roster_ends_culprit(&e, true, 0), -1);
    roster_ends_record(&e, 6, END_FAILS_AT_END);
    assert_int_equal(roster_ends_culprit(&e, true, 1), 6);
    roster_ends_record(&e, 7, END_FAILS_JOB);
    assert_int_equal(roster_ends_culprit(&e, true, 1), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_elastic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
