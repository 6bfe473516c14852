/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_arrivals: joiners while other ranks train, and joiners that are never
 * admitted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/member/elastic.h"

static void numbers_are(const struct note *n, int member, int rank, int local_size, int cross_rank,
                        int cross_size)
{
    assert_non_null(n);
    assert_int_equal(n->member, member);
    assert_int_equal(n->numbers.rank, rank);
    assert_int_equal(n->numbers.size, rank + 1);
    assert_int_equal(n->numbers.local_size, local_size);
    assert_int_equal(n->numbers.cross_rank, cross_rank);
    assert_int_equal(n->numbers.cross_size, cross_size);
}

/* Members 0 and 1 run on h0, 2 on h1. The joiners are 3 on h1, 4 on h0 and 5 on h1. */
static void grow(struct roster *r, int np)
{
    uint32_t change;
    make(r, 1, 6, 0);
    form(r);
    assert_int_equal(roster_scale(r, np, now, &change, NULL), 0);
}

static void boundary(struct roster *r)
{
    for (int i = 0, n = r->members.n; i < n; i++)
        if (r->members.list[i].rank >= 0 && r->members.list[i].state == RANK_ACTIVE)
            hello(r, i, CARD_BOUNDARY);
}

static void test_places(void **state)
{
    struct roster r;
    (void)state;
    grow(&r, 6);
    arrive(&r, 3);
    numbers_are(next_note(&r, NOTE_NUMBERS), 3, 3, 2, 1, 2);
    arrive(&r, 4);
    numbers_are(next_note(&r, NOTE_NUMBERS), 4, 3, 3, 0, 1);
    assert_int_equal(r.members.list[3].state, RANK_ARRIVED);
    assert_string_equal(roster_state(&r), "changing");
    /* A joiner that is not ready asks for no boundary, however long it takes. */
    after(&r, 100000);
    assert_null(next_note(&r, NOTE_CHANGE));
    boundary(&r);
    world_is(&r, 2, "0 1 2");
    roster_fini(&r);
}

/* Before the first epoch joiners get no numbers in advance. */
static void test_no_place_at_the_beginning(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 6, 0);
    arrive(&r, 0);
    arrive(&r, 1);
    assert_null(next_note(&r, NOTE_NUMBERS));
    arrive(&r, 2);
    world_is(&r, 1, "0 1 2");
    /* Nor does a rank that was in an epoch and calls hvd_init() again, because its program has
     * long started up. */
    tell(&r, REPORT_BYE, 1, -5);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 2, "0 2");
    hello(&r, 1, CARD_JOIN);
    assert_null(next_note(&r, NOTE_NUMBERS));
    boundary(&r);
    world_is(&r, 3, "0 2 1*");
    roster_fini(&r);
}

/* Joiners that are ready are admitted. A joiner that is not ready delays nobody. */
static void test_ready_one_by_one(void **state)
{
    struct roster r;
    (void)state;
    grow(&r, 6);
    for (int i = 3; i < 6; i++)
        arrive(&r, i);
    hello(&r, 4, CARD_ENTER);
    assert_null(next_note(&r, NOTE_CHANGE));
    after(&r, 600);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    boundary(&r);
    world_is(&r, 2, "0 1 2 4*");
    hello(&r, 3, CARD_ENTER);
    hello(&r, 5, CARD_ENTER);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 2); /* no further joiner is expected */
    boundary(&r);
    world_is(&r, 3, "0 1 2 4 3* 5*");
    roster_fini(&r);
}

/* However a joiner ends before its admission, the epoch stays. */
static void test_gone_before(void **state)
{
    static const int ends[] = {0, 3, -9};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct roster r;
        uint32_t change;
        grow(&r, 4);
        arrive(&r, 3);
        if (ends[i] == 0)
            tell(&r, REPORT_BYE, 3, 0);
        tell(&r, REPORT_EXITED, 3, ends[i]);
        world_is(&r, 1, "0 1 2");
        assert_string_equal(r.next.cause, "");
        assert_int_equal(r.ends.finished, 0); /* no rank has finished: the job may still change */
        assert_int_equal(roster_scale(&r, 5, now, &change, NULL), 0);
        assert_null(next_note(&r, NOTE_CHANGE));
        after(&r, 1100);
        /* A joiner that fails is replaced. */
        assert_int_equal(r.members.n, 6);
        roster_fini(&r);
    }
}

/* The joiner's death is reported before its exit with code 0. */
static void test_gone_in_silence(void **state)
{
    struct roster r;
    char text[512];
    (void)state;
    grow(&r, 4);
    arrive(&r, 3);
    tell(&r, REPORT_DEAD, 3, 0);
    tell(&r, REPORT_EXITED, 3, 0);
    assert_int_equal(r.ends.finished, 0);
    roster_describe_end(&r, 3, text, sizeof(text));
    assert_null(strstr(text, "left early"));
    after(&r, 100000);
    assert_int_equal(r.members.n, 4);
    roster_fini(&r);
}

/* The job is scaled down again: the joiner is asked to leave first, and its end is no loss. */
static void test_not_wanted_any_more(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    grow(&r, 4);
    arrive(&r, 3);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 3);
    assert_int_equal(r.changes.applied, change);
    hello(&r, 3, CARD_ENTER); /* the joiner has not read the note yet */
    assert_null(next_note(&r, NOTE_CHANGE));
    tell(&r, REPORT_EXITED, 3, 0);
    assert_int_equal(next_note(&r, NOTE_ENDED)->member, 3);
    assert_string_equal(roster_state(&r), "running");
    roster_fini(&r);
}

/* Below min only joiners that are ready count. */
static void test_below_min(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 3, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    after(&r, 1100);
    arrive(&r, 3);
    assert_int_equal(next_note(&r, NOTE_NUMBERS)->member, 3);
    after(&r, 1000);
    assert_int_equal(r.epoch, 1);
    assert_string_equal(roster_state(&r), "waiting");
    hello(&r, 3, CARD_ENTER);
    world_is(&r, 2, "0 1");
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    boundary(&r);
    world_is(&r, 3, "0 1 3*");
    roster_fini(&r);
}

/* All ranks with the state are lost: a joiner that still starts up is part of the next epoch. */
static void test_nobody_is_left(void **state)
{
    struct roster r;
    (void)state;
    grow(&r, 4);
    arrive(&r, 3);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_EXITED, i, -9);
    after(&r, 5000);
    int fresh = r.members.n - 1;
    assert_int_equal(fresh, 6); /* 4, 5, 6 are started for 0, 1, 2 */
    for (int i = 4; i <= fresh; i++) {
        arrive(&r, i);
        assert_int_equal(r.members.list[i].state,
                         RANK_READY); /* no rank trains: a joiner is ready at once */
    }
    assert_int_equal(r.epoch, 1);
    hello(&r, 3, CARD_ENTER);
    world_is(&r, 2, "3* 4* 5* 6*");
    roster_fini(&r);
}

static const char *leave_text(struct roster *r)
{
    const struct note *n = next_note(r, NOTE_LEAVE);
    assert_non_null(n);
    return n->text;
}

/* The program ends on each rank of the world. */
static void finish(struct roster *r)
{
    char text[512];
    for (int i = 0; i < 3; i++)
        tell(r, REPORT_BYE, i, 0);
    after(r, 100000); /* the ranks may run for long before they exit: no new epoch begins */
    roster_waiting_for(r, now, text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(r->epoch, 1);
    for (int i = 0; i < 3; i++)
        tell(r, REPORT_EXITED, i, 0);
    roster_waiting_for(r, now, text, sizeof(text));
    assert_string_equal(text, "");
}

static void test_the_job_ends(void **state)
{
    struct roster r;
    (void)state;
    grow(&r, 4);
    arrive(&r, 3);
    finish(&r);
    assert_string_equal(leave_text(&r), "the job ends before it was ready for admission");
    tell(&r, REPORT_EXITED, 3, -15);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    roster_fini(&r);
}

/* A loss while a joiner enters its first epoch: the joiner asks for admission again, and then
 * the other ranks finish. The joiner starts no new epoch. */
static void test_ends_before_it_is_in(void **state)
{
    struct roster r;
    char text[512];
    (void)state;
    grow(&r, 4);
    start(&r, 3);
    boundary(&r);
    world_is(&r, 2, "0 1 2 3*");
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 3, CARD_ENTER);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 3, "0 2");
    tell(&r, REPORT_BYE, 0, 0);
    tell(&r, REPORT_BYE, 2, 0);
    after(&r, 5000);
    roster_waiting_for(&r, now, text, sizeof(text));
    assert_string_equal(text, "");
    tell(&r, REPORT_EXITED, 0, 0);
    tell(&r, REPORT_EXITED, 2, 0);
    assert_int_equal(r.epoch, 3);
    /* Member 3, and member 4 that was started for the lost member 1. */
    for (int m = 4; m >= 3; m--) {
        const struct note *n = next_note(&r, NOTE_LEAVE);
        assert_non_null(n);
        assert_null(strstr(n->text, "no step boundary"));
        tell(&r, REPORT_EXITED, n->member, -15);
    }
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    roster_fini(&r);
}

/* The program never reaches a step boundary. */
static void test_never_let_in(void **state)
{
    struct roster r;
    (void)state;
    grow(&r, 4);
    start(&r, 3);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 1);
    finish(&r);
    const char *text = leave_text(&r);
    assert_non_null(strstr(text, "it was ready for admission for 100.0 s"));
    assert_non_null(strstr(text, "no step boundary"));
    assert_non_null(strstr(text, "hvd_commit()"));
    tell(&r, REPORT_EXITED, 3, 1);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),           cmocka_unit_test(test_no_place_at_the_beginning),
        cmocka_unit_test(test_ready_one_by_one), cmocka_unit_test(test_gone_before),
        cmocka_unit_test(test_gone_in_silence),  cmocka_unit_test(test_not_wanted_any_more),
        cmocka_unit_test(test_below_min),        cmocka_unit_test(test_nobody_is_left),
        cmocka_unit_test(test_the_job_ends),     cmocka_unit_test(test_ends_before_it_is_in),
        cmocka_unit_test(test_never_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
