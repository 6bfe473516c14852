/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster for elastic jobs: which members are in which epoch after losses, planned
 * changes and replacements, and how such a job ends.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/member/roster.h"
#include "tests/unit/member/elastic.h"

static void test_loss_is_repaired(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    world_is(&r, 1, "0 1 2");
    now += 5 * CLOCK_MS;
    assert_int_equal(tell(&r, REPORT_DEAD, 1, 0), 0);
    assert_int_equal(next_note(&r, NOTE_LOST)->member, 1);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 1, "0 1 2"); /* epoch 2 begins only when all survivors have answered */
    now += 3 * CLOCK_MS;
    hello(&r, 0, CARD_REVOKED);
    world_is(&r, 2, "0 2");
    assert_int_equal(r.last.took, 3 * CLOCK_MS);
    assert_string_equal(r.last.cause, "rank 1 on h0 (pid 101) died");
    assert_int_equal(tell(&r, REPORT_EXITED, 1, -9), 0); /* waitpid() reports the death as well */
    assert_string_equal(r.last.cause, "rank 1 on h0 (pid 101) was ended by signal 9 (SIGKILL)");
    assert_int_equal(tell(&r, REPORT_EXITED, 1, -9), -EPROTO);
    assert_int_equal(r.ends.ended, 1);
    assert_int_equal(r.ends.first, -1);
    roster_fini(&r);
}

/* A card that a survivor sends for epoch 3 must not get into the roster of epoch 2. */
static void test_later_cards_do_not_change_a_roster(void **state)
{
    struct roster r;
    struct card c = {.member = 0, .why = CARD_REVOKED};
    struct cards_body body = {.agent = "a0", .n = 1, .cards = &c};
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    buf_put_str(&c.bytes, "another");
    body.seq = ++seq;
    body.epoch = 2;
    assert_int_equal(roster_cards(&r, &body, now, NULL), 0);
    buf_fini(&c.bytes);
    assert_int_equal(r.world.cards[0].bytes.len, 4);
    roster_fini(&r);
}

static void test_death_before_the_answer(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 0, -9);
    hello(&r, 1, CARD_REVOKED);
    tell(&r, REPORT_EXITED, 2, -11); /* the last rank for which the roster waited */
    world_is(&r, 2, "1");
    roster_fini(&r);
}

/* The death of a rank was reported before its exit with code 0: it is not replaced. */
static void test_dead_and_then_well(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_DEAD, 1, 0);
    assert_int_equal(r.starts.n, 1);
    tell(&r, REPORT_EXITED, 1, 0);
    assert_int_equal(r.starts.n, 0);
    assert_int_equal(r.restarts, 0);
    assert_int_equal(r.ends.finished, 1);
    assert_int_equal(r.members.list[1].state, RANK_FINISHED);
    roster_fini(&r);
}

/* A rank that has called hvd_shutdown() has not left early, whichever of the two reports comes
 * first. */
static void test_left_dead_and_then_well(void **state)
{
    struct roster r;
    char text[256];
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell_bye(&r, 1, 0, 3);
    tell(&r, REPORT_DEAD, 1, 0);
    tell(&r, REPORT_EXITED, 1, 0);
    roster_describe_end(&r, 1, text, sizeof(text));
    assert_string_equal(text, "rank 1 on h0 (pid 101) exited with code 0");
    assert_int_equal(r.members.list[1].end, END_FINISHED);
    assert_int_equal(r.ends.finished, 1);
    roster_fini(&r);
}

/* Ranks revoke the epoch though no rank has died. */
static void test_revoked_without_a_death(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_REVOKED);
    world_is(&r, 2, "0 1 2");
    assert_string_equal(r.last.cause, "the ranks of epoch 1 have lost each other, none has ended");
    roster_fini(&r);
}

/* The cause of an epoch that no rank completed is also the cause of the next one. */
static void test_epoch_in_vain(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 1, -9);
    for (int i = 0; i < 2; i++) {
        hello(&r, 0, CARD_REVOKED);
        hello(&r, 2, CARD_REVOKED);
        world_is(&r, 2 + (uint32_t)i, "0 2");
        assert_non_null(strstr(r.last.cause, "SIGKILL"));
        assert_true(i == !!strstr(r.last.cause, "; epoch 2 did not come to be"));
    }
    roster_fini(&r);
}

/* Below min nothing is published until enough ranks are there. Then the survivors form an epoch,
 * and the joiners enter at its first boundary. */
static void test_below_min(void **state)
{
    struct roster r;
    char text[256];
    (void)state;
    make(&r, 3, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 1, "0 1 2");
    assert_string_equal(roster_state(&r), "waiting");
    roster_waiting_for(&r, now, text, sizeof(text));
    assert_string_equal(text,
                        "at least 3 ranks: 2 have the state in memory, 0 new ones are ready; 1 to "
                        "be started, the next in 1 s");
    after(&r, 1500);
    start(&r, 3);
    world_is(&r, 2, "0 2");
    assert_int_equal(r.next.waiting_since, 0);
    /* The roster tells the survivors that a joiner waits for their next boundary. */
    assert_int_equal(r.world.change, 0);
    assert_int_equal(r.world.announced, 1);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "0 2 3*");
    roster_fini(&r);
}

/* All ranks are lost: new members start from what their program has saved. */
static void test_total_loss(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 2, 4, 0);
    form(&r);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_EXITED, i, -9);
    assert_false(roster_done(&r));
    assert_string_equal(roster_state(&r), "waiting");
    after(&r, 1100);
    for (int i = 3; i < 6; i++) {
        assert_int_equal(r.epoch, 1);
        start(&r, i);
    }
    world_is(&r, 2, "3* 4* 5*");
    roster_fini(&r);
}

/* A program that fails on every rank each time is not restarted for ever. */
static void test_program_at_fault(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    for (int world = 0; world < 3; world++) {
        assert_int_equal(r.ends.first, -1);
        for (int i = 0; i < 3; i++)
            tell(&r, REPORT_EXITED, 3 * world + i, 1 + i);
        after(&r, 5000);
        if (world < 2)
            for (int i = 3 * world + 3; i < 3 * world + 6; i++)
                start(&r, i);
    }
    assert_int_equal(r.ends.first, 8);
    assert_int_equal(roster_exit_code(&r), 3);
    roster_fini(&r);
}

/* A rank that has finished is not replaced. A lost rank is replaced. */
static void test_ends(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 2, 3, 0);
    form(&r);
    tell(&r, REPORT_BYE, 2, 0);
    tell(&r, REPORT_EXITED, 2, 0);
    after(&r, 2000);
    assert_null(next_note(&r, NOTE_START));
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    world_is(&r, 2, "0"); /* member 2, which has finished, counts for min */
    after(&r, 2000);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    start(&r, 3);
    tell(&r, REPORT_BYE, 0, 0); /* before member 3 is admitted */
    assert_int_equal(next_note(&r, NOTE_LEAVE)->member, 3);
    tell(&r, REPORT_EXITED, 0, 0);
    tell(&r, REPORT_EXITED, 3, -15);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    assert_int_equal(r.epoch, 2);
    roster_fini(&r);
}

/* Once a rank has departed, all rosters contain how many operations it had finished. */
static void test_left_done(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    assert_int_equal(r.world.departed_done, 0);
    tell_bye(&r, 2, 0, 41);
    tell_bye(&r, 1, -12, 40);
    hello(&r, 0, CARD_REVOKED);
    world_is(&r, 2, "0");
    assert_int_equal(r.world.departed_done, 41);
    hello(&r, 0, CARD_REVOKED);
    world_is(&r, 3, "0");
    assert_int_equal(r.world.departed_done, 41);
    roster_fini(&r);
}

/* A rank that fails after all have called hvd_shutdown() fails the job. */
static void test_fails_after_shutdown(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 2, 3, 0);
    form(&r);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_BYE, i, 0);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_EXITED, i, i == 1 ? 4 : 0);
    after(&r, 5000);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 4);
    roster_fini(&r);
}

/* Rank 1 calls hvd_shutdown() and exits with 4 while the others train. */
static void fail_between(struct roster *r, int max)
{
    make(r, 1, max, 0);
    form(r);
    tell(r, REPORT_BYE, 1, 0);
    hello(r, 2, CARD_REVOKED);
    hello(r, 0, CARD_REVOKED);
    world_is(r, 2, "0 2");
    assert_string_equal(r->last.cause, "rank 1 on h0 (pid 101) called hvd_shutdown()");
    tell(r, REPORT_EXITED, 1, 4);
    assert_string_equal(r->last.cause, "rank 1 on h0 (pid 101) exited with code 4");
    assert_int_equal(r->starts.n, 1);
}

static void test_fails_between_is_replaced(void **state)
{
    struct roster r;
    (void)state;
    fail_between(&r, 3);
    after(&r, 2000);
    start(&r, 3);
    after(&r, 600);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "0 2 3*");
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            continue;
        tell(&r, REPORT_BYE, i, 0);
        tell(&r, REPORT_EXITED, i, 0);
    }
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    roster_fini(&r);
}

/* The other ranks finish before a replacement is admitted: the exit code of the failed rank is
 * the job's. */
static void test_fails_between_and_all_end(void **state)
{
    struct roster r;
    (void)state;
    fail_between(&r, 3);
    for (int i = 0; i < 3; i += 2) {
        tell(&r, REPORT_BYE, i, 0);
        tell(&r, REPORT_EXITED, i, 0);
    }
    after(&r, 5000);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 4);
    roster_fini(&r);
}

/* All ranks call hvd_shutdown() and hvd_init() again. */
static void test_again(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    for (int i = 0; i < 3; i++)
        tell(&r, REPORT_BYE, i, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.epoch, 1);
        hello(&r, i, CARD_JOIN);
    }
    world_is(&r, 2, "0 1 2");
    assert_string_equal(r.last.cause, "3 ranks began anew");
    roster_fini(&r);
}

/* Before the first epoch a rank that exits with an error fails the job. A rank that was killed
 * is replaced. */
static void test_before_the_first_epoch(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 0);
    tell(&r, REPORT_STARTED, 1, 0);
    tell(&r, REPORT_EXITED, 1, 2);
    assert_int_equal(r.ends.first, 1);
    roster_fini(&r);

    make(&r, 1, 3, 0);
    tell(&r, REPORT_STARTED, 1, 0);
    tell(&r, REPORT_EXITED, 1, -9);
    assert_int_equal(r.ends.first, -1);
    start(&r, 0);
    start(&r, 2);
    assert_int_equal(r.epoch, 0);
    after(&r, 1500);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    start(&r, 3);
    world_is(&r, 1, "0 2 3");
    roster_fini(&r);
}

/* One rank is never ready: after start_limit the job begins with the ready ranks, if there are
 * at least min. */
static void test_start_limit(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 2, 3, 0);
    start(&r, 0);
    after(&r, 31000);
    assert_int_equal(r.epoch, 0);
    start(&r, 2);
    world_is(&r, 1, "0 2");
    roster_fini(&r);
}

static void test_agent_lost(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    roster_agent_lost(&r, 0, "ssh ended with code 255", now);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 2, "2");
    after(&r, 1500); /* both are replaced on the other host, which has room */
    assert_int_equal(r.members.n, 5);
    assert_int_equal(r.members.list[3].agent, 1);
    assert_int_equal(r.members.list[4].agent, 1);
    roster_fini(&r);
}

/* A rank reports BYE with an error: the others go on without it, before its process has exited. */
static void test_out_of_the_world(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_BYE, 1, -5);
    assert_int_equal(next_note(&r, NOTE_LOST)->member, 1);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    world_is(&r, 2, "0 2");
    assert_string_equal(r.last.cause, "rank 1 on h0 (pid 101) cannot go on: Input/output error");
    tell(&r, REPORT_EXITED, 1, 1);
    after(&r, 1500);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    roster_fini(&r);
}

static void test_silent_survivor_is_evicted(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 0, -9);
    hello(&r, 1, CARD_REVOKED);
    after(&r, 29000);
    assert_null(next_note(&r, NOTE_EVICT));
    after(&r, 2000);
    assert_int_equal(next_note(&r, NOTE_EVICT)->member, 2);
    tell(&r, REPORT_EXITED, 2, -9);
    world_is(&r, 2, "1");
    roster_fini(&r);
}

/* A report that a rank's state does not allow changes nothing: the rank keeps its slot and its
 * exit code. */
static void test_refused_reports(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 4, 0);
    assert_int_equal(tell(&r, REPORT_EXITED, 1, 0), -EPROTO); /* this member was not started */
    assert_int_equal(roster_agents_free_slots(&r.agents, &r.members), 3);
    form(&r);
    assert_int_equal(tell(&r, REPORT_DEAD, 1, -9), 0);
    assert_int_equal(tell(&r, REPORT_BYE, 1, -5), -EPROTO);
    assert_int_equal(r.members.list[1].code, -9);
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_is_repaired),
        cmocka_unit_test(test_later_cards_do_not_change_a_roster),
        cmocka_unit_test(test_death_before_the_answer),
        cmocka_unit_test(test_dead_and_then_well),
        cmocka_unit_test(test_left_dead_and_then_well),
        cmocka_unit_test(test_revoked_without_a_death),
        cmocka_unit_test(test_epoch_in_vain),
        cmocka_unit_test(test_below_min),
        cmocka_unit_test(test_total_loss),
        cmocka_unit_test(test_program_at_fault),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_left_done),
        cmocka_unit_test(test_fails_after_shutdown),
        cmocka_unit_test(test_fails_between_is_replaced),
        cmocka_unit_test(test_fails_between_and_all_end),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_before_the_first_epoch),
        cmocka_unit_test(test_start_limit),
        cmocka_unit_test(test_agent_lost),
        cmocka_unit_test(test_out_of_the_world),
        cmocka_unit_test(test_silent_survivor_is_evicted),
        cmocka_unit_test(test_refused_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
