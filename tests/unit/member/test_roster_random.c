/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster with any events in any order. The invariants of the roster of an elastic
 * job are checked after each event. A failure prints the seed, which repeats it.
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

#define SEEDS  60
#define LIVES  5   /* jobs per seed */
#define EVENTS 200 /* events per job */

/* The current seed and event, which a failed check prints. */
static struct {
    unsigned seed;
    int life, event;
    bool done;
} walk;

static void say_hello(struct roster *r, int member)
{
    const struct roster_member *m = &r->members.list[member];
    enum card_why why = (enum card_why)(rand() % CARD_WHYS);
    if (!rank_step(m->state, RANK_CARD))
        return;
    if (m->state == RANK_ARRIVED)
        why = CARD_ENTER;
    else if (m->rank < 0)
        why = CARD_JOIN;
    hello(r, member, why);
}

static void plan_something(struct roster *r)
{
    uint32_t change;
    switch (rand() % 16) {
    case 0:
        roster_drain_host(r, rand() % 2 ? "h0" : "h1", now, &change, NULL);
        break;
    case 1:
    case 2:
        roster_drain_rank(r, rand() % 4, now, &change, NULL);
        break;
    default:
        roster_scale(r, 1 + rand() % 7, now, &change, NULL);
    }
}

static void do_something(struct roster *r)
{
    int member = rand() % r->members.n, code;
    switch (rand() % 12) {
    case 0:
    case 1:
    case 2:
        tell(r, REPORT_STARTED, member, 0);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        say_hello(r, member);
        break;
    case 7:
        /* One call per statement: compilers evaluate arguments in different orders. */
        code = rand() % 4 ? -9 : rand() % 2;
        tell(r, rand() % 2 ? REPORT_EXITED : REPORT_DEAD, member, code);
        break;
    case 8:
        tell(r, REPORT_BYE, member, rand() % 3 ? -5 : 0);
        break;
    case 9:
        plan_something(r);
        break;
    case 10:
        if (rand() % 128 == 0)
            roster_agent_lost(r, rand() % 2, "ssh ended with code 255", now);
        break;
    default:
        after(r, (uint64_t)(rand() % 3000));
    }
}

/* Each rank of the world is one member, each process that is not reaped has a local rank of its
 * own, and the counters agree with the members. */
static void check_members(const struct roster *r)
{
    int ended = 0, ready = 0, placed = 0, wanted = r->starts.n;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        const struct roster_agent *a = &r->agents.list[m->agent];
        ended += rank_has_ended(m->state);
        ready += m->state == RANK_READY;
        placed += m->rank >= 0;
        wanted += !rank_has_ended(m->state) && m->state != RANK_LEFT && !m->leaving;
        assert_true(m->rank < r->world.n);
        assert_true((m->place < 0) == (m->rank < 0) && m->place >= m->rank);
        assert_true(r->elastic.keep_places || m->place == m->rank);
        assert_true(m->rank < 0 || r->world.cards[m->rank].member == i);
        assert_true(m->reaped || a->lost || a->slots[m->assignment.local_rank].member == i);
    }
    assert_int_equal(r->ends.ended, ended);
    assert_int_equal(r->members.ready, ready);
    assert_int_equal(placed, r->world.n);
    assert_true(wanted <= r->target);
}

/* Returns a member's rank in an earlier world, -1: it was not in it. */
static int rank_in(const struct roster_body *world, int member)
{
    for (int i = 0; i < world->n; i++)
        if (world->cards[i].member == member)
            return i;
    return -1;
}

/* Where places are kept, each survivor has its place, and each joiner one that was free, so that
 * none below the highest place of a joiner is free. */
static void check_places(const struct roster *r, const struct roster_body *former)
{
    int free_below = 0, last = -1;
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        const struct roster_member *m = &r->members.list[c->member];
        bool joins = m->why == CARD_JOIN || m->why == CARD_ENTER;
        assert_int_equal(m->place, c->place);
        assert_true(c->place > last && c->place < MEMBER_RANKS_MAX);
        free_below += c->place - last - 1;
        last = c->place;
        assert_true(!joins || free_below == 0);
        assert_true(joins || c->place == former->cards[rank_in(former, c->member)].place);
    }
}

/* Checks the epoch that has just been published: survivors in their old order, and behind them the
 * joiners unless places are kept. After a loss there are no joiners. At a boundary every survivor
 * has reported the boundary, and a member that was asked to leave stays only if no other survivor
 * does. */
static void check_epoch(const struct roster *r, const struct roster_body *former)
{
    int rank = -1, joiners = 0, leaving = 0, staying = 0, least = r->elastic.min - r->ends.finished;
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        const struct roster_member *m = &r->members.list[c->member];
        bool joins = m->why == CARD_JOIN || m->why == CARD_ENTER;
        assert_int_equal(m->state, RANK_ACTIVE);
        assert_true(joins || m->why == CARD_BOUNDARY || r->last.lost);
        joiners += joins;
        leaving += m->leaving;
        staying += !m->leaving && !joins;
        if (joins)
            continue;
        assert_true(joiners == 0 || r->elastic.keep_places);
        assert_false(c->is_new);
        assert_true(rank_in(former, c->member) > rank);
        rank = rank_in(former, c->member);
    }
    for (int i = 0; i < r->members.n && r->last.lost; i++)
        least -= r->members.list[i].state == RANK_READY && !r->members.list[i].leaving;
    assert_true(r->world.n >= (least > 1 ? least : 1));
    assert_true(!r->last.lost || joiners == 0);
    assert_true(r->last.lost || leaving == 0 || staying == 0);
    assert_true(r->last.lost || r->world.n - leaving <= r->target);
    assert_int_equal(r->size, r->world.n);
    assert_true(r->world.change <= r->changes.applied);
}

static void check(const struct roster *r, const struct roster_body *former, int notes)
{
    char text[512];
    check_members(r);
    assert_true(r->epoch == former->epoch || r->epoch == former->epoch + 1);
    assert_true(r->changes.applied <= r->changes.announced &&
                r->changes.announced <= r->changes.requested);
    assert_true(r->notes.n >= notes && r->starts.n >= 0 && r->starts.n <= r->elastic.max);
    assert_true(r->target >= r->elastic.min && r->target <= r->elastic.max);
    assert_true(r->world.n <= r->elastic.max);
    if (r->epoch > former->epoch)
        check_epoch(r, former);
    if (r->epoch > former->epoch && r->elastic.keep_places)
        check_places(r, former);
    roster_waiting_for(r, now, text, sizeof(text));
    assert_non_null(roster_state(r));
}

static void live(void)
{
    struct roster r;
    struct card cards[8];
    int last = rand() % 3 ? 0 : 4, max = 3 + rand() % 4;
    make(&r, 1 + rand() % 3, max, last);
    r.elastic.keep_places = walk.life % 2;
    if (rand() % 4)
        form(&r);
    for (walk.event = 0; walk.event < EVENTS; walk.event++) {
        struct roster_body former = {.epoch = r.epoch, .n = r.world.n, .cards = cards};
        int notes = r.notes.n;
        if (former.n > 0)
            memcpy(cards, r.world.cards, (size_t)former.n * sizeof(*cards));
        do_something(&r);
        check(&r, &former, notes);
    }
    roster_fini(&r);
}

static void test_random_events(void **state)
{
    (void)state;
    for (walk.seed = 1; walk.seed <= SEEDS; walk.seed++) {
        srand(walk.seed);
        for (walk.life = 0; walk.life < LIVES; walk.life++)
            live();
    }
    walk.done = true;
}

static int say_where(void **state)
{
    (void)state;
    if (!walk.done)
        print_error("after srand(%u): life %d, event %d\n", walk.seed, walk.life, walk.event);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_events, say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
