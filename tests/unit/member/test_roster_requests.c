/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_requests and member/roster_leave: planned changes, and which members
 * leave.
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

/* After a loss, a joiner that waits is not in the next epoch, because it has no state. */
static void test_loss_while_a_joiner_waits(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    start(&r, 3);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    hello(&r, 0, CARD_BOUNDARY);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 1, CARD_REVOKED); /* one rank was at the boundary, one was not: this is no boundary */
    world_is(&r, 2, "0 1");
    assert_int_equal(r.world.change, 0);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 1, CARD_BOUNDARY);
    world_is(&r, 3, "0 1 3*");
    assert_int_equal(r.world.change, 1);
    roster_fini(&r);
}

static void test_scale_up(void **state)
{
    struct roster r;
    uint32_t change = 0;
    const struct note *n;
    (void)state;
    make(&r, 1, 6, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 6, now, &change, NULL), 0);
    assert_int_equal(change, 1);
    /* The host with the most room comes first. */
    for (int i = 0; i < 3; i++) {
        n = next_note(&r, NOTE_START);
        assert_int_equal(n->member, 3 + i);
    }
    assert_int_equal(r.members.list[3].agent, 1);
    assert_int_equal(r.members.list[4].agent, 0);
    assert_int_equal(r.members.list[5].agent, 1);
    start(&r, 4);
    start(&r, 3);
    assert_null(next_note(&r, NOTE_CHANGE)); /* member 5 is not ready yet */
    after(&r, 400);
    assert_null(next_note(&r, NOTE_CHANGE));
    after(&r, 200); /* ready joiners do not wait longer for the last one */
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    tell(&r, REPORT_EXITED, 4, -9); /* a ready joiner dies before the boundary */
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 2, "0 1 2 3*");
    assert_string_equal(r.last.cause, "scaled from 3 to 6 ranks; 1 rank joined");
    start(&r, 5);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 2);
    after(&r, 2000);
    assert_int_equal(next_note(&r, NOTE_START)->member, 6); /* for 4 */
    start(&r, 6);
    for (int i = 0; i < 4; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 3, "0 1 2 3 5* 6*");
    assert_int_equal(r.world.change, 2);
    roster_fini(&r);
}

static void test_scale_down(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 1, now, &change, NULL), 0);
    assert_int_equal(change, 1);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    for (int i = 2; i >= 0; i--)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 2, "0");
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 1);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 2);
    assert_string_equal(r.last.cause, "scaled from 3 to 1 ranks; 2 ranks left as asked");
    /* The ends of leaving ranks do not matter, and they are not replaced. */
    tell(&r, REPORT_EXITED, 1, 3);
    tell(&r, REPORT_EXITED, 2, -15);
    after(&r, 5000);
    assert_null(next_note(&r, NOTE_START));
    tell(&r, REPORT_BYE, 0, 0);
    tell(&r, REPORT_EXITED, 0, 0);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    roster_fini(&r);
}

static void test_drain(void **state)
{
    struct roster r;
    struct err err;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_drain_rank(&r, 3, now, &change, &err), -ENOENT);
    assert_string_equal(err.msg, "no rank 3: the job has ranks 0 to 2");
    assert_int_equal(roster_drain_host(&r, "h7", now, &change, &err), -ENOENT);
    assert_string_equal(err.msg, "no host \"h7\": the job's hosts are h0, h1");
    assert_int_equal(roster_drain_rank(&r, 0, now, &change, NULL), 0);
    assert_int_equal(change, 1);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 2, "1 2");
    assert_int_equal(roster_drain_host(&r, "h1", now, &change, NULL), 0);
    assert_int_equal(change, 2);
    hello(&r, 1, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "1");
    assert_int_equal(r.world.change, 2);
    /* No rank is started on a drained host. */
    assert_int_equal(roster_scale(&r, 4, now, &change, &err), -ERANGE);
    assert_string_equal(err.msg, "4 ranks: the hosts have room for 3");
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    assert_int_equal(r.members.list[3].agent, 0);
    roster_fini(&r);
}

/* A leaving rank is a member until the boundary: its death is a loss, but it is not replaced. */
static void test_death_before_leaving(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    tell(&r, REPORT_EXITED, 2, -9);
    assert_int_equal(next_note(&r, NOTE_LOST)->member, 2);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    world_is(&r, 2, "0 1");
    assert_int_equal(r.starts.n, 0);
    /* The ranks know of a change: the next boundary applies it, though nothing is left to do. */
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 1, CARD_BOUNDARY);
    world_is(&r, 3, "0 1");
    assert_int_equal(r.world.change, 1);
    roster_fini(&r);
}

/* A joiner that was asked to leave before its admission has not left early. */
static void test_joiner_sent_away(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    start(&r, 3);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 3);
    tell(&r, REPORT_EXITED, 3, 0);
    assert_int_equal(next_note(&r, NOTE_ENDED)->member, 3);
    assert_int_equal(r.ends.finished, 0);
    roster_fini(&r);
}

/* A joiner is in the world, has no state yet and has to leave again; then another rank dies. The
 * joiner asks for admission again, is in no epoch from then on, and is told to leave. */
static void test_loss_before_a_joiner_leaves(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    start(&r, 3);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 2, "0 1 2 3*");
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_null(next_note(&r, NOTE_LEAVE)); /* only at the boundary */
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 3, CARD_JOIN);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 3);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 3, "0 2");
    assert_null(next_note(&r, NOTE_LEAVE)); /* only once */
    roster_fini(&r);
}

/* All ranks with the state are to leave, and their replacements have none: no rank leaves before
 * the state is handed over. */
static void test_the_last_with_the_state_leave(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 1, now, &change, NULL), 0);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    tell(&r, REPORT_EXITED, 0, -9);
    hello(&r, 1, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 2, "1 2");
    /* The change was announced before the loss: no joiner is ready yet. */
    hello(&r, 1, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "1 2");
    while (next_note(&r, NOTE_CHANGE))
        ;
    after(&r, 100);
    assert_null(next_note(&r, NOTE_CHANGE)); /* no rank can leave yet */
    seen = 0;
    assert_null(next_note(&r, NOTE_LEAVE));
    start(&r, 3);
    assert_int_equal(r.changes.announced, r.changes.applied + 1);
    hello(&r, 1, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 4, "1 2 3*");
    assert_int_equal(r.changes.announced,
                     r.changes.applied + 1); /* joiners have the state: the others can leave */
    for (int i = 1; i <= 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 5, "3");
    assert_string_equal(r.last.cause, "2 ranks left as asked");
    roster_fini(&r);
}

/* The world has max ranks, all are to leave, and joiners wait: all but one leave at the
 * boundary, and that one hands the state over and leaves at the next. */
static void test_a_full_world_leaves(void **state)
{
    struct roster r;
    uint32_t change = 0;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 1, now, &change, NULL), 0);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_int_equal(roster_drain_rank(&r, 0, now, &change, NULL), 0);
    start(&r, 3);
    start(&r, 4);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, 2, "0 3* 4*");
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 1);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 2);
    assert_int_equal(r.changes.announced, r.changes.applied + 1);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 3, CARD_BOUNDARY);
    hello(&r, 4, CARD_BOUNDARY);
    world_is(&r, 3, "3 4");
    roster_fini(&r);
}

static void test_refused_changes(void **state)
{
    struct roster r, before;
    struct err err;
    uint32_t change = 77;
    (void)state;
    make(&r, 2, 5, 0);
    form(&r);
    before = r;
    assert_int_equal(roster_scale(&r, 1, now, &change, &err), -ERANGE);
    assert_string_equal(err.msg, "1 ranks would be less than the job's minimum of 2");
    assert_int_equal(roster_scale(&r, 6, now, &change, &err), -ERANGE);
    assert_string_equal(err.msg, "6 ranks would be more than the job's maximum of 5");
    assert_int_equal(roster_drain_host(&r, "h0", now, &change, &err), -ERANGE);
    assert_memory_equal(&before, &r, sizeof(r));
    assert_int_equal(change, 77);
    roster_fini(&r);
}

/* A change that needs no action counts as applied, so that a caller that waits for it returns. */
static void test_scale_there_and_back(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    tell(&r, REPORT_STARTED, 3, 0);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_int_equal(change, 2);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 3);
    assert_int_equal(r.changes.applied, 2);
    roster_fini(&r);
}

/* A change was announced, and its only joiner dies before the boundary. */
static void test_a_change_that_came_to_nothing(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    after(&r, 1100);
    start(&r, 3);
    world_is(&r, 2, "0 2");
    assert_non_null(next_note(&r, NOTE_CHANGE));
    tell(&r, REPORT_EXITED, 3, -9);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "0 2");
    assert_string_equal(r.last.cause, "nobody has joined or left after all");
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_while_a_joiner_waits),
        cmocka_unit_test(test_scale_up),
        cmocka_unit_test(test_scale_down),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_death_before_leaving),
        cmocka_unit_test(test_joiner_sent_away),
        cmocka_unit_test(test_loss_before_a_joiner_leaves),
        cmocka_unit_test(test_the_last_with_the_state_leave),
        cmocka_unit_test(test_a_full_world_leaves),
        cmocka_unit_test(test_refused_changes),
        cmocka_unit_test(test_scale_there_and_back),
        cmocka_unit_test(test_a_change_that_came_to_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
