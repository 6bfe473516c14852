/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster for ranks that left the world of an elastic job, with or without an error,
 * and call hvd_init() again.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/member/elastic.h"

/* Rank 2 cannot go on and calls hvd_init() again before the first epoch. It is one of the job's
 * ranks: scaled to 4 ranks, the job starts one more rank, not two, and has at most max ranks. */
static void test_scale_while_a_rank_is_back(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r, 1, 4, 0);
    arrive(&r, 2);
    tell(&r, REPORT_BYE, 2, -EIO);
    hello(&r, 2, CARD_JOIN);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    assert_null(next_note(&r, NOTE_START));
    for (int i = 0; i < 4; i++)
        if (i != 2)
            arrive(&r, i);
    world_is(&r, 1, "0 1 2 3");
    roster_fini(&r);
}

/* Rank 2 leaves the world of three ranks, and the others train on without it. */
static void leave_the_world(struct roster *r, int max, int code)
{
    make(r, 1, max, 0);
    form(r);
    tell(r, REPORT_BYE, 2, code);
    hello(r, 0, CARD_REVOKED);
    hello(r, 1, CARD_REVOKED);
    world_is(r, 2, "0 1");
}

/* Member 3 and member 4 are started while rank 2 cannot go on. When rank 2 calls hvd_init() again,
 * the newest member is asked to leave. */
static void test_back_after_its_place_was_taken(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    leave_the_world(&r, 4, -EIO);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    start(&r, 3);
    assert_int_equal(r.members.n, 5);
    hello(&r, 2, CARD_JOIN);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 4);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 1, CARD_BOUNDARY);
    world_is(&r, 3, "0 1 2* 3*");
    assert_null(next_note(&r, NOTE_LEAVE));
    roster_fini(&r);
}

/* All ranks call hvd_shutdown(), the job is made smaller, and all call hvd_init() again. The first
 * rank that is back stays, the others are too many. */
static void test_back_in_a_smaller_job(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_BYE, i, 0);
    assert_int_equal(roster_scale(&r, 1, now, &change, NULL), 0);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_JOIN);
    world_is(&r, 2, "0");
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 1);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 2);
    roster_fini(&r);
}

/* Rank 1 has lost the state when it is back and the job has become smaller: it is asked to leave,
 * and not rank 2, which has the state and the higher rank. */
static void test_back_without_the_state(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_BYE, 1, -EIO);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    hello(&r, 1, CARD_JOIN);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 1);
    assert_null(next_note(&r, NOTE_LEAVE));
    assert_false(r.members.list[2].leaving);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 2, "0 2");
    roster_fini(&r);
}

/* A rank that calls hvd_init() again belongs to its host as before, and leaves when the host is
 * drained. */
static void test_drain_of_a_rank_that_is_back(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    leave_the_world(&r, 4, -EIO);
    hello(&r, 2, CARD_JOIN);
    assert_int_equal(roster_drain_host(&r, "h1", now, &change, NULL), 0);
    assert_int_equal(r.target, 2);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 2);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 1, CARD_BOUNDARY);
    world_is(&r, 3, "0 1");
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale_while_a_rank_is_back),
        cmocka_unit_test(test_back_after_its_place_was_taken),
        cmocka_unit_test(test_back_in_a_smaller_job),
        cmocka_unit_test(test_back_without_the_state),
        cmocka_unit_test(test_drain_of_a_rank_that_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
