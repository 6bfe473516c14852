/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_places: a job that keeps places. Survivors keep theirs, and a joiner takes
 * the lowest free one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/member/roster_places.h"
#include "tests/unit/member/elastic.h"

/* Epoch 1 with members 0, 1, 2. */
static void make_kept(struct roster *r, int max)
{
    make(r, 1, max, 0);
    r->elastic.keep_places = true;
    form(r);
    places_are(r, "0 1 2");
}

/* All members of the present epoch; the last one's word publishes the next epoch. */
static void all_say(struct roster *r, enum card_why why)
{
    uint32_t epoch = r->epoch;
    for (int i = 0; i < r->members.n && r->epoch == epoch; i++)
        if (r->members.list[i].rank >= 0 && r->members.list[i].state == RANK_ACTIVE)
            hello(r, i, why);
}

static void lose(struct roster *r, int member)
{
    tell(r, REPORT_EXITED, member, -9);
    all_say(r, CARD_REVOKED);
}

static void admit(struct roster *r, int member)
{
    start(r, member);
    all_say(r, CARD_BOUNDARY);
}

static void given_are(const struct roster_placed *list, int n, const char *want)
{
    char text[128] = "";
    for (int i = 0; i < n; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof(text) - len, "%s%d:%d", len ? " " : "", list[i].place,
                 list[i].member);
    }
    assert_string_equal(text, want);
}

/* "place:member" by rank. */
static void test_give(void **state)
{
    struct roster_placed list[] = {{7, 4, 0}, {3, 1, 0}, {8, -1, 2}, {9, -1, 1}, {10, -1, 1}};
    struct roster_placed same[5];
    (void)state;
    memcpy(same, list, sizeof(list));
    roster_places_give(list, 2, 5, true);
    given_are(list, 5, "0:9 1:3 2:10 3:8 4:7");
    roster_places_give(same, 2, 5, false);
    given_are(same, 5, "0:3 1:7 2:8 3:9 4:10");
    roster_places_give(same, 1, 1, true);
    given_are(same, 1, "0:3");
    roster_places_give(same, 0, 0, true);
}

static void test_replaced(void **state)
{
    struct roster r;
    (void)state;
    make_kept(&r, 4);
    lose(&r, 1);
    world_is(&r, 2, "0 2");
    places_are(&r, "0 2");
    after(&r, 1100);
    admit(&r, 3);
    world_is(&r, 3, "0 3* 2");
    places_are(&r, "0 1 2");
    /* The rank without which nobody would have numbered the others: place 0. */
    lose(&r, 0);
    world_is(&r, 4, "3 2");
    places_are(&r, "1 2");
    after(&r, 1100);
    admit(&r, 4);
    world_is(&r, 5, "4* 3 2");
    roster_fini(&r);
}

/* Two are lost, one after the other, and both are replaced at one boundary. */
static void test_two_replaced(void **state)
{
    struct roster r;
    (void)state;
    make_kept(&r, 3);
    lose(&r, 0);
    lose(&r, 1);
    world_is(&r, 3, "2");
    places_are(&r, "2");
    after(&r, 1100);
    start(&r, 4); /* it is ready first, but the lower number comes first */
    start(&r, 3);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 4, "3* 4* 2");
    places_are(&r, "0 1 2");
    roster_fini(&r);
}

/* A loss comes between an announcement and its boundary: places stay, the joiner waits. */
static void test_loss_before_admission(void **state)
{
    struct roster r;
    (void)state;
    make_kept(&r, 3);
    lose(&r, 0);
    after(&r, 1100);
    start(&r, 3);
    tell(&r, REPORT_EXITED, 2, -9);
    hello(&r, 1, CARD_REVOKED);
    world_is(&r, 3, "1");
    places_are(&r, "1");
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 4, "3* 1");
    places_are(&r, "0 1");
    roster_fini(&r);
}

/* Without the state nothing is left to keep. */
static void test_restart(void **state)
{
    struct roster r;
    (void)state;
    make_kept(&r, 3);
    lose(&r, 0);
    places_are(&r, "1 2");
    tell(&r, REPORT_EXITED, 1, -9);
    tell(&r, REPORT_EXITED, 2, -9);
    after(&r, 5000);
    for (int i = 3; i < 6; i++)
        start(&r, i);
    world_is(&r, 3, "3* 4* 5*");
    places_are(&r, "0 1 2");
    roster_fini(&r);
}

static void test_scale(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make_kept(&r, 6);
    lose(&r, 0);
    after(&r, 1100);
    admit(&r, 3);
    world_is(&r, 3, "3* 1 2");
    assert_int_equal(roster_scale(&r, 5, now, &change, NULL), 0);
    start(&r, 4);
    admit(&r, 5);
    world_is(&r, 4, "3 1 2 4* 5*");
    /* The highest places leave, not the newest members. */
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 5, "3 1");
    places_are(&r, "0 1");
    roster_fini(&r);
}

/* What is left has the lowest places, also while a replacement is on its way. */
static void test_scale_with_a_gap(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make_kept(&r, 4);
    lose(&r, 1);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    assert_true(r.members.list[2].leaving);
    assert_int_equal(r.starts.n, 1);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 3, "0");
    after(&r, 1100);
    admit(&r, 3);
    world_is(&r, 4, "0 3*");
    places_are(&r, "0 1");
    roster_fini(&r);
    /* Where the lower places are taken, the start is cancelled. */
    make_kept(&r, 4);
    lose(&r, 2);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    assert_int_equal(r.starts.n, 0);
    assert_false(r.members.list[0].leaving || r.members.list[1].leaving);
    roster_fini(&r);
}

/* A drained place is free for the next member. */
static void test_drain(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make_kept(&r, 4);
    assert_int_equal(roster_drain_rank(&r, 1, now, &change, NULL), 0);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 2, "0 2");
    places_are(&r, "0 2");
    assert_int_equal(roster_drain_rank(&r, 2, now, &change, NULL), -ENOENT);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    start(&r, 3);
    admit(&r, 4);
    world_is(&r, 3, "0 3* 2 4*");
    places_are(&r, "0 1 2 3");
    /* By its host: members 0 and 4 are on h0. */
    assert_int_equal(r.members.list[4].agent, 0);
    assert_int_equal(roster_drain_host(&r, "h0", now, &change, NULL), 0);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 4, "3 2");
    places_are(&r, "1 2");
    roster_fini(&r);
}

/* A rank that calls hvd_shutdown() and hvd_init() is a joiner like others. */
static void test_came_back(void **state)
{
    struct roster r;
    (void)state;
    make_kept(&r, 3);
    tell(&r, REPORT_BYE, 0, -5);
    all_say(&r, CARD_REVOKED);
    world_is(&r, 2, "1 2");
    places_are(&r, "1 2");
    hello(&r, 0, CARD_JOIN);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 3, "0* 1 2");
    roster_fini(&r);
}

/* All members leave, and hand their state over to the same number of joiners: these have the places
 * below the target, though there is room for more ranks. */
static void test_handover(void **state)
{
    const struct roster_host more = {"a2", "h2", 0, 3};
    struct roster r;
    struct join_body body = {.agent = "a2", .slots = 3, .pid = 12};
    (void)state;
    make_kept(&r, 9);
    r.hosted = true;
    assert_int_equal(roster_add_host(&r, &more, NULL), 0);
    assert_int_equal(roster_join(&r, &body, now, NULL), 0);
    roster_leave(&r, 0, "its pod is being deleted", now);
    roster_leave(&r, 1, "its pod is being deleted", now);
    /* Member 4 was started on the second host, and was asked to leave before it was ready. */
    start(&r, 3);
    start(&r, 5);
    start(&r, 6);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 2, "0 3* 5*");
    places_are(&r, "0 1 2");
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 3, "6* 3 5");
    places_are(&r, "0 1 2");
    roster_fini(&r);
}

/* The numbers that a joiner gets before it is admitted are those that it has afterwards. */
static void test_numbers(void **state)
{
    struct roster r;
    const struct note *n;
    uint32_t change;
    (void)state;
    make_kept(&r, 4);
    lose(&r, 0);
    assert_int_equal(roster_drain_rank(&r, 1, now, &change, NULL), 0); /* member 2 */
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    after(&r, 1100);
    const int places[] = {0, 2, 3}, ranks[] = {0, 1, 2};
    for (int i = 0; i < 3; i++) {
        arrive(&r, 3 + i);
        n = next_note(&r, NOTE_NUMBERS);
        assert_int_equal(n->member, 3 + i);
        assert_int_equal(n->numbers.place, places[i]);
        assert_int_equal(n->numbers.rank, ranks[i]);
        assert_int_equal(n->numbers.size, 3);
    }
    for (int i = 3; i < 6; i++)
        hello(&r, i, CARD_ENTER);
    all_say(&r, CARD_BOUNDARY);
    world_is(&r, 3, "3* 1 4* 5*");
    places_are(&r, "0 1 2 3");
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_give),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_two_replaced),
        cmocka_unit_test(test_loss_before_admission),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_scale_with_a_gap),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_came_back),
        cmocka_unit_test(test_handover),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
