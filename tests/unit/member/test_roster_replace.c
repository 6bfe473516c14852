/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_replace: replacements, their pauses and limits, and lost agents.
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

static void test_backoff(void **state)
{
    struct roster r;
    uint64_t wait = 1000;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    for (int i = 3; i < 10; i++) {
        after(&r, wait - 1);
        assert_null(next_note(&r, NOTE_START));
        after(&r, 1);
        assert_int_equal(next_note(&r, NOTE_START)->member, i);
        tell(&r, REPORT_STARTED, i, 0);
        tell(&r, REPORT_EXITED, i, 1);
        wait = wait * 2 < 60000 ? wait * 2 : 60000;
    }
    after(&r, 60000);
    assert_int_equal(next_note(&r, NOTE_START)->member, 10);
    tell(&r, REPORT_STARTED, 10, 0);
    after(&r, 61000); /* a minute without a failure */
    tell(&r, REPORT_EXITED, 10, 1);
    after(&r, 1000);
    assert_int_equal(next_note(&r, NOTE_START)->member, 11);
    roster_fini(&r);
}

/* --blacklist-cooldown-range 10 25 */
static void test_cooldown(void **state)
{
    struct roster r;
    const uint64_t waits[] = {10000, 20000, 25000, 25000};
    (void)state;
    make(&r, 1, 3, 0);
    r.elastic.backoff_first = 10 * CLOCK_S;
    r.elastic.backoff_max = 25 * CLOCK_S;
    form(&r);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    for (int i = 0; i < 4; i++) {
        after(&r, waits[i] - 1);
        assert_null(next_note(&r, NOTE_START));
        after(&r, 1);
        assert_int_equal(next_note(&r, NOTE_START)->member, 3 + i);
        tell(&r, REPORT_STARTED, 3 + i, 0);
        tell(&r, REPORT_EXITED, 3 + i, 1);
    }
    roster_fini(&r);
}

/* All agents are lost: the job does not end, and its ranks wait until a host is added, as long
 * as --reset-limit allows. */
static void test_all_agents_lost(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 4);
    form(&r);
    assert_true(roster_state_is_there(&r));
    roster_agent_lost(&r, 0, "hvd-agent was ended by signal 9", now);
    assert_true(roster_state_is_there(&r));
    roster_agent_lost(&r, 1, "hvd-agent was ended by signal 9", now);
    assert_false(roster_state_is_there(&r));
    assert_false(roster_done(&r));
    after(&r, 5000);
    assert_null(next_note(&r, NOTE_START));
    assert_int_equal(roster_add_host(&r, &(struct roster_host){"a2", "h0", 0, 3}, NULL), 0);
    struct join_body body = {.agent = "a2", .slots = 3, .pid = 12};
    assert_int_equal(roster_join(&r, &body, now, NULL), 0);
    seq = 0;
    after(&r, 1);
    for (int i = 3; i < 6; i++)
        start(&r, i);
    world_is(&r, 2, "3* 4* 5*");
    assert_false(roster_limit_reached(&r));
    roster_agent_lost(&r, 2, "hvd-agent was ended by signal 9", now);
    assert_true(roster_limit_reached(&r));
    assert_false(roster_done(&r)); /* a rank may still be started */
    roster_fini(&r);
}

/* A note says for which epoch it is. */
static void test_note_epoch(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 0);
    form(&r);
    tell(&r, REPORT_BYE, 2, -EIO);
    assert_int_equal(next_note(&r, NOTE_LOST)->epoch, 1);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    world_is(&r, 2, "0 1");
    hello(&r, 2, CARD_JOIN);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->epoch, 2);
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 1, CARD_BOUNDARY);
    world_is(&r, 3, "0 1 2*");
    tell(&r, REPORT_EXITED, 2, -9);
    assert_int_equal(next_note(&r, NOTE_LOST)->epoch, 3);
    roster_fini(&r);
}

static void test_reset_limit(void **state)
{
    struct roster r;
    (void)state;
    make(&r, 1, 3, 1);
    form(&r);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 1, CARD_REVOKED);
    after(&r, 1500);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    tell(&r, REPORT_STARTED, 3, 0);
    tell(&r, REPORT_EXITED, 3, 5);
    after(&r, 100000);
    assert_null(next_note(&r, NOTE_START));
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    world_is(&r, 3, "0");
    tell(&r, REPORT_EXITED, 0, 9);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 9);
    roster_fini(&r);
}

static void test_replacement(void **state)
{
    struct roster r;
    const struct note *n;
    (void)state;
    make(&r, 1, 4, 0);
    form(&r);
    tell(&r, REPORT_EXITED, 1, -9);
    hello(&r, 0, CARD_REVOKED);
    hello(&r, 2, CARD_REVOKED);
    after(&r, 900);
    assert_null(next_note(&r, NOTE_START));
    after(&r, 200);
    n = next_note(&r, NOTE_START);
    assert_int_equal(n->member, 3);
    assert_int_equal(n->code, 1); /* the local rank that has become free */
    assert_int_equal(r.members.list[3].agent, 0);
    assert_int_equal(r.restarts, 1);
    start(&r, 3);
    world_is(&r, 2, "0 2"); /* before a boundary */
    n = next_note(&r, NOTE_CHANGE);
    assert_int_equal(n->code, 1);
    assert_string_equal(roster_state(&r), "changing");
    hello(&r, 0, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, 3, "0 2 3*");
    assert_int_equal(r.world.change, 1);
    assert_string_equal(r.last.cause, "1 rank joined");
    assert_string_equal(roster_state(&r), "running");
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backoff),         cmocka_unit_test(test_cooldown),
        cmocka_unit_test(test_all_agents_lost), cmocka_unit_test(test_note_epoch),
        cmocka_unit_test(test_reset_limit),     cmocka_unit_test(test_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
