/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/rank_end: the table of what the end of a rank means for its job.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/member/rank_end.h"

/* Whether a job of this kind can have such an end. */
static bool end_exists(enum end_job job, enum end_way way, enum end_time time)
{
    bool elastic = job != END_FIXED;
    switch (time) {
    case END_DISTURBED:
        return !elastic;
    case END_LEFT_EARLY:
    case END_LEAVING:
        return elastic;
    case END_CLOSING:
        return elastic && way != END_ZERO;
    case END_STOPPING:
        return way != END_ZERO;
    case END_UNBORN:
    case END_WAITING:
    case END_OUTSIDE:
    case END_INSIDE:
    case END_LEFT:
    case END_TIMES:
        break;
    }
    return true;
}

/* There is a row for every way and time that a job has; a fixed job replaces no rank, and exit 0 is
 * never a failure. */
static void test_ends_are_complete(void **state)
{
    (void)state;
    for (int job = END_FIXED; job < END_JOBS; job++)
        for (int way = END_ZERO; way < END_FAILURE; way++)
            for (int time = END_UNBORN; time < END_TIMES; time++) {
                const struct end_row *row = rank_end_row(job, way, time);
                assert_int_equal(row != NULL, end_exists(job, way, time));
                if (!row)
                    continue;
                assert_int_equal(rank_end_of(job, way, time), row->end);
                assert_int_equal(row->end == END_FINISHED || row->end == END_EARLY,
                                 way == END_ZERO);
                if (job == END_FIXED)
                    assert_true(row->end != END_REPLACED && row->end != END_REPLACED_OR_FAILS &&
                                row->end != END_FAILS_AT_END);
            }
    assert_int_equal(rank_end_of(END_FIXED, END_CODE, END_LEFT_EARLY),
                     END_FAILS_JOB); /* there is no such row */
}

/* Each row holds for some end, and each value has a name. */
static void test_ends_have_names(void **state)
{
    size_t n;
    const struct end_row *rows = rank_end_rows(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        enum end_job job = rows[i].job == END_ANY_JOB ? END_FIXED : rows[i].job;
        enum end_way way = rows[i].way == END_FAILURE ? END_SIGNAL : rows[i].way;
        assert_ptr_equal(rank_end_row(job, way, rows[i].time), &rows[i]);
        assert_non_null(end_job_name(rows[i].job));
        assert_non_null(end_way_name(rows[i].way));
        assert_non_null(end_time_name(rows[i].time));
        assert_non_null(rank_end_name(rows[i].end));
    }
}

/* A lost host before the first epoch fails an elastic job only where the rest has no room; in a
 * cluster it never does. */
static void test_ends_before_a_world(void **state)
{
    (void)state;
    for (int time = END_UNBORN; time <= END_WAITING; time++) {
        assert_int_equal(rank_end_of(END_ELASTIC, END_HOST, time), END_REPLACED);
        assert_int_equal(rank_end_of(END_ELASTIC, END_LAST_HOST, time), END_FAILS_JOB);
        assert_int_equal(rank_end_of(END_CLUSTER, END_LAST_HOST, time), END_REPLACED);
        assert_int_equal(rank_end_of(END_ELASTIC, END_CODE, time), END_FAILS_JOB);
        assert_int_equal(rank_end_of(END_CLUSTER, END_CODE, time), END_REPLACED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_are_complete),
        cmocka_unit_test(test_ends_have_names),
        cmocka_unit_test(test_ends_before_a_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
