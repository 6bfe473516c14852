/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_rebuild: a new coordinator makes its roster from the reports of agents.
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

static const uint8_t fresh_key[MEMBER_KEY_SIZE] = {9};

#define TERM2(n) (1u << ROSTER_TERM_SHIFT | (n))

/* The roster that the agents hold: members in order of ranks, those with even ranks on h0. */
static struct roster_body world_of(uint32_t epoch, int n, const int *members)
{
    struct roster_body w = {.epoch = epoch, .n = n, .key = {1, 2, 3}};
    w.cards = calloc((size_t)n, sizeof(*w.cards));
    for (int i = 0; i < n; i++) {
        w.cards[i].rank = w.cards[i].place = i;
        w.cards[i].member = members[i];
        snprintf(w.cards[i].agent, sizeof(w.cards[i].agent), "a%d", members[i] % 2);
    }
    return w;
}

static void take_over(struct roster *r, int target, int nmembers, int nleaving, const int *leaving)
{
    const struct roster_host hosts[] = {{"a0", "h0", 0, 3}, {"a1", "h1", 0, 3}};
    const struct roster_elastic elastic = {.min = 1, .max = 6, .start_limit = 30 * CLOCK_S};
    const struct roster_saved saved = {.term = 1,
                                       .change = 3,
                                       .target = target,
                                       .nmembers = nmembers,
                                       .nleaving = nleaving,
                                       .leaving = leaving};
    seq = 0;
    seen = 0;
    now = 1000 * CLOCK_S;
    assert_int_equal(roster_begin_rebuild(r, "job", fresh_key, hosts, 2, &elastic, &saved,
                                          now + 10 * CLOCK_S, NULL),
                     0);
}

/* A member that trains in the given epoch. */
static struct rejoin_member active(int member, uint32_t epoch)
{
    return (struct rejoin_member){.member = member,
                                  .local_rank = member / 2,
                                  .pid = 100 + member,
                                  .epoch = epoch,
                                  .hello = true};
}

static struct rejoin_member waiting(int member, uint32_t epoch, enum card_why why)
{
    struct rejoin_member m = active(member, epoch);
    m.waiting = true;
    m.why = why;
    m.was_in = epoch;
    buf_put_u32(&m.card, (uint32_t)member);
    return m;
}

/* Agent number a reports to the new coordinator, through the text as over the network. */
static int come_back(struct roster *r, int a, struct roster_body world, int n,
                     const struct rejoin_member *members)
{
    struct err err = {0};
    struct join_body body = {.slots = 3, .pid = 10 + a}, read = {0};
    struct rejoin rejoin = {.n = n, .world = world};
    rejoin.members = calloc((size_t)n + 1, sizeof(*members));
    if (n)
        memcpy(rejoin.members, members, (size_t)n * sizeof(*members));
    snprintf(body.agent, sizeof(body.agent), "a%d", a);
    body.rejoin = &rejoin;
    char *text = join_write(&body);
    assert_non_null(text);
    rejoin_fini(&rejoin);
    assert_int_equal(join_read(text, strlen(text), &read, &err), 0);
    free(text);
    int rc = roster_join(r, &read, now, &err);
    join_fini(&read);
    return rc;
}

static const int first_three[] = {0, 1, 2};

static void test_nothing_has_happened(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {active(0, 1), active(2, 1)}, odd[] = {active(1, 1)};
    uint32_t change;
    (void)state;
    take_over(&r, 3, 3, 0, NULL);
    assert_false(roster_done(&r));
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), -ERANGE);
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 2, even), 0);
    assert_true(r.rebuilding);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
    assert_false(r.rebuilding);
    world_is(&r, 1, "0 1 2");
    assert_int_equal(r.key[1], 2);
    assert_int_equal(r.ends.ended, 0);
    assert_int_equal(r.starts.n, 0);
    assert_int_equal(r.notes.n, 0);
    assert_string_equal(roster_state(&r), "running");
    /* The agent that reported first joins again: it is told to start nothing. */
    struct join_body again = {.agent = "a0", .pid = 10};
    assert_int_equal(roster_join(&r, &again, now, NULL), 0);
    /* The rebuilt roster works like any other, and numbers new members above all earlier ones. */
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    assert_true(change > 3);
    assert_int_equal(next_note(&r, NOTE_START)->member, 3);
    start(&r, 3);
    assert_true(next_note(&r, NOTE_CHANGE)->code > 3);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, TERM2(2), "0 1 2 3*");
    tell(&r, REPORT_DEAD, 3, 0);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_REVOKED);
    world_is(&r, TERM2(3), "0 1 2");
    roster_fini(&r);
}

/* Member 1 died while there was no coordinator; the others have sent their cards and wait. */
static void test_death_in_between(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {waiting(0, 1, CARD_REVOKED), waiting(2, 1, CARD_REVOKED)};
    struct rejoin_member odd[] = {active(1, 1)};
    (void)state;
    take_over(&r, 3, 3, 0, NULL);
    odd[0].over = true;
    odd[0].code = -9;
    come_back(&r, 0, world_of(1, 3, first_three), 2, even);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
    world_is(&r, TERM2(2), "0 2");
    assert_string_equal(r.last.cause, "rank 1 on h1 (pid 101) was ended by signal 9 (SIGKILL)");
    assert_int_equal(next_note(&r, NOTE_LOST)->member, 1);
    assert_int_equal(r.starts.n, 1); /* the lost member is replaced */
    assert_int_equal(r.restarts, 1);
    assert_int_equal(r.ends.ended, 1);
    roster_fini(&r);
}

/* Ranks of agent 0 say HELLO when it has come back and agent 1 has not: it is asked to tell all
 * again. The roster is not rebuilt before it has, although agent 1 comes first. */
static void test_news_while_gathering(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {active(0, 1), active(2, 1)}, odd[] = {active(1, 1)};
    struct rejoin_member again[] = {waiting(0, 1, CARD_REVOKED), waiting(2, 1, CARD_REVOKED)};
    struct card card = {.member = 0, .why = CARD_REVOKED, .epoch = 1};
    struct cards_body cards = {.agent = "a0", .seq = 1, .epoch = 2, .n = 1, .cards = &card};
    (void)state;
    take_over(&r, 3, 3, 0, NULL);
    odd[0].over = true;
    odd[0].code = -9;
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 2, even), 0);
    assert_int_equal(roster_cards(&r, &cards, now, NULL), -ENOENT);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
    assert_true(r.rebuilding);
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 2, again), 0);
    world_is(&r, TERM2(2), "0 2");
    roster_fini(&r);
}

/* Agent 0 had received epoch 2, agent 1 had not: agent 1's rank gets epoch 2, not a newer one. */
static void test_half_told_roster(void **state)
{
    struct roster r;
    const int two[] = {1, 2};
    struct rejoin_member even[] = {active(0, 1), active(2, 2)};
    struct rejoin_member odd[] = {waiting(1, 1, CARD_REVOKED)};
    (void)state;
    even[0].over = true;
    even[0].code = -9;
    take_over(&r, 2, 3, 0, NULL);
    come_back(&r, 0, world_of(2, 2, two), 2, even);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
    world_is(&r, 2, "1 2");
    assert_int_equal(r.members.list[1].state, RANK_ACTIVE);
    assert_int_equal(r.members.list[0].state, RANK_FAILED);
    assert_int_equal(r.members.ready, 0);
    assert_int_equal(r.starts.n, 0); /* epoch 2 has repaired that loss already */
    roster_fini(&r);
}

/* An agent that does not report is lost with its ranks, and is refused later. */
static void test_agent_does_not_come(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {waiting(0, 1, CARD_REVOKED), waiting(2, 1, CARD_REVOKED)};
    struct rejoin_member odd[] = {active(1, 1)};
    (void)state;
    take_over(&r, 3, 3, 0, NULL);
    come_back(&r, 0, world_of(1, 3, first_three), 2, even);
    after(&r, 9000);
    assert_true(r.rebuilding);
    after(&r, 1001);
    assert_false(r.rebuilding);
    world_is(&r, TERM2(2), "0 2");
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), -EEXIST);
    roster_fini(&r);
}

static void test_first_epoch_was_not_made(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {waiting(0, 0, CARD_JOIN)}, odd[] = {active(1, 0)};
    (void)state;
    odd[0].hello = false;
    take_over(&r, 2, 2, 0, NULL);
    come_back(&r, 0, (struct roster_body){0}, 1, even);
    assert_int_equal(come_back(&r, 1, (struct roster_body){0}, 1, odd), 0);
    assert_int_equal(r.epoch, 0);
    assert_int_equal(r.members.list[1].state, RANK_RUNNING);
    hello(&r, 1, CARD_JOIN);
    world_is(&r, TERM2(1), "0 1");
    roster_fini(&r);
}

/* A member that was chosen to leave still is. A finished member is not replaced. A member that
 * was treated as lost stays lost. */
static void test_leavers_and_ends(void **state)
{
    struct roster r;
    const int leaving[] = {2}, world[] = {0, 1, 2};
    struct rejoin_member even[] = {active(0, 5), active(2, 5)};
    struct rejoin_member odd[] = {active(1, 5), active(3, 4)};
    (void)state;
    take_over(&r, 2, 4, 1, leaving);
    come_back(&r, 0, world_of(5, 3, world), 2, even);
    assert_int_equal(come_back(&r, 1, world_of(5, 3, world), 2, odd), 0);
    assert_true(r.members.list[2].leaving);
    assert_true(r.members.list[3].unable);
    assert_int_equal(r.members.list[3].rank, -1);
    assert_int_equal(next_note(&r, NOTE_CHANGE)->code, 3);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, TERM2(6), "0 1");
    roster_fini(&r);

    take_over(&r, 3, 3, 0, NULL);
    even[0] = active(0, 1);
    even[1] = active(2, 1);
    odd[0] = active(1, 1);
    odd[0].over = odd[0].bye = true;
    come_back(&r, 0, world_of(1, 3, first_three), 2, even);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
    assert_int_equal(r.ends.finished, 1);
    assert_int_equal(r.starts.n, 0);
    roster_fini(&r);
}

/* The number of operations that departed ranks had finished is known again: from the roster, or
 * from their agents. */
static void test_left_done(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct roster r;
        struct rejoin_member even[] = {active(0, 1), waiting(2, 1, CARD_REVOKED)};
        struct rejoin_member odd[] = {active(1, 1)};
        struct roster_body old = world_of(1, 3, first_three);
        old.departed_done = i ? 50 : 3;
        odd[0].bye = true;
        odd[0].done = 49;
        take_over(&r, 3, 3, 0, NULL);
        come_back(&r, 0, old, 2, even);
        assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, odd), 0);
        hello(&r, 0, CARD_REVOKED);
        world_is(&r, TERM2(2), "0 2");
        assert_int_equal(r.world.departed_done, i ? 50 : 49);
        roster_fini(&r);
    }
}

/* Agents have received the roster without these members, and not yet the note that they must
 * leave. */
static void test_leavers_that_were_not_told(void **state)
{
    struct roster r;
    const int leaving[] = {1, 2, 3, 4, 5}, world[] = {0};
    struct rejoin_member even[] = {active(0, 5), waiting(2, 4, CARD_BOUNDARY), active(4, 4)};
    struct rejoin_member odd[] = {active(1, 4), waiting(3, 0, CARD_JOIN), active(5, 4)};
    (void)state;
    even[2].bye = true;    /* its end has begun already */
    odd[2].leaving = true; /* its agent has told it to leave */
    take_over(&r, 1, 6, 5, leaving);
    come_back(&r, 0, world_of(5, 1, world), 3, even);
    assert_int_equal(come_back(&r, 1, world_of(5, 1, world), 3, odd), 0);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(next_note(&r, NOTE_LEAVE)->member, i);
    assert_null(next_note(&r, NOTE_LEAVE));
    world_is(&r, 5, "0");
    roster_fini(&r);
}

static void test_what_cannot_be_is_refused(void **state)
{
    struct roster r;
    const int strange[] = {0, 900};
    struct rejoin_member two[] = {active(0, 1), active(0, 1)}, far[] = {active(0, 1)};
    (void)state;
    take_over(&r, 3, 3, 0, NULL);
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 2, two), -EINVAL);
    far[0].member = 9;
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 1, far), -EINVAL);
    far[0] = active(0, 1);
    far[0].local_rank = 3;
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 1, far), -EINVAL);
    assert_int_equal(come_back(&r, 0, world_of(1, 2, strange), 1, two), -EINVAL);
    assert_true(r.rebuilding);
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 1, two), 0);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 1, two),
                     -EINVAL); /* this member is not the agent's */
    roster_fini(&r);
}

/* Three joiners while others train: one starts up, one has not been told its numbers yet, one is
 * ready. */
static void test_arrivals(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {active(0, 1), active(2, 1), waiting(4, 0, CARD_ENTER)},
                         odd[] = {active(1, 1), active(3, 0), waiting(5, 0, CARD_JOIN)};
    (void)state;
    odd[1].arrived = true;
    take_over(&r, 6, 6, 0, NULL);
    assert_int_equal(come_back(&r, 0, world_of(1, 3, first_three), 3, even), 0);
    assert_int_equal(come_back(&r, 1, world_of(1, 3, first_three), 3, odd), 0);
    assert_int_equal(next_note(&r, NOTE_NUMBERS)->member, 5);
    assert_null(next_note(&r, NOTE_NUMBERS));
    assert_int_equal(r.members.list[3].state, RANK_ARRIVED);
    assert_int_equal(r.members.list[4].state, RANK_READY);
    assert_int_equal(r.members.list[5].state, RANK_ARRIVED);
    after(&r, 600);
    for (int i = 0; i < 3; i++)
        hello(&r, i, CARD_BOUNDARY);
    world_is(&r, TERM2(2), "0 1 2 4*");
    hello(&r, 3, CARD_ENTER);
    hello(&r, 5, CARD_ENTER);
    const int world[] = {0, 1, 2, 4};
    for (int i = 0; i < 4; i++)
        hello(&r, world[i], CARD_BOUNDARY);
    world_is(&r, TERM2(3), "0 1 2 4 3* 5*");
    roster_fini(&r);
}

/* Rank 0 was lost while no hvdrun was there, or before: the survivors keep their places, and the
 * new hvdrun gives the free one away. */
static void test_places(void **state)
{
    struct roster r;
    struct rejoin_member even[] = {active(2, 2)}, odd[] = {active(1, 2), waiting(3, 0, CARD_ENTER)};
    static const int left[] = {1, 2};
    struct roster_body world[] = {world_of(2, 2, left), world_of(2, 2, left)};
    (void)state;
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < 2; i++)
            world[a].cards[i].place = i + 1;
    take_over(&r, 3, 4, 0, NULL);
    r.elastic.keep_places = true;
    assert_int_equal(come_back(&r, 0, world[0], 1, even), 0);
    assert_int_equal(come_back(&r, 1, world[1], 2, odd), 0);
    world_is(&r, 2, "1 2");
    places_are(&r, "1 2");
    after(&r, 600);
    hello(&r, 1, CARD_BOUNDARY);
    hello(&r, 2, CARD_BOUNDARY);
    world_is(&r, TERM2(3), "3* 1 2");
    places_are(&r, "0 1 2");
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_has_happened),
        cmocka_unit_test(test_death_in_between),
        cmocka_unit_test(test_news_while_gathering),
        cmocka_unit_test(test_half_told_roster),
        cmocka_unit_test(test_agent_does_not_come),
        cmocka_unit_test(test_first_epoch_was_not_made),
        cmocka_unit_test(test_leavers_and_ends),
        cmocka_unit_test(test_left_done),
        cmocka_unit_test(test_leavers_that_were_not_told),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
