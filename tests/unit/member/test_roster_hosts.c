/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster_hosts: hosts that are added, return and change their slots while an
 * elastic job runs, and where ranks are started then.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/member/roster.h"

static const uint8_t key[MEMBER_KEY_SIZE] = {1};
static uint64_t seq, now;

static void join(struct roster *r, int a)
{
    struct join_body body = {.slots = 3, .pid = 10 + a};
    snprintf(body.agent, sizeof(body.agent), "a%d", a);
    assert_int_equal(roster_join(r, &body, now, NULL), 0);
    roster_tick(r, now);
}

static void hello(struct roster *r, int member, enum card_why why)
{
    struct card c = {.member = member, .why = why, .epoch = r->epoch};
    struct cards_body body = {.seq = ++seq, .epoch = r->epoch + 1, .n = 1, .cards = &c};
    snprintf(body.agent, sizeof(body.agent), "a%d", r->members.list[member].agent);
    buf_put_u32(&c.bytes, (uint32_t)member);
    assert_int_equal(roster_cards(r, &body, now, NULL), 0);
    buf_fini(&c.bytes);
}

static void start(struct roster *r, int member)
{
    struct report_item item = {.type = REPORT_STARTED, .member = member, .pid = 100 + member};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    snprintf(body.agent, sizeof(body.agent), "a%d", r->members.list[member].agent);
    assert_int_equal(roster_report(r, &body, now, NULL), 0);
    hello(r, member, CARD_JOIN);
    if (r->members.list[member].state == RANK_ARRIVED)
        hello(r, member, CARD_ENTER);
}

/* One host with two ranks and two slots, in epoch 1. */
static void make(struct roster *r)
{
    const struct roster_host host = {"a0", "h0", 2, 2};
    const struct roster_elastic elastic = {.min = 1, .max = 8, .start_limit = 30 * CLOCK_S};
    seq = 0;
    now = 1000 * CLOCK_S;
    assert_int_equal(roster_init(r, "job", key, &host, 1, NULL), 0);
    assert_int_equal(roster_make_elastic(r, &elastic, NULL), 0);
    join(r, 0);
    start(r, 0);
    start(r, 1);
    assert_int_equal(r->epoch, 1);
}

/* All survivors reach the boundary. */
static void boundary(struct roster *r)
{
    for (int i = 0, n = r->members.n; i < n; i++)
        if (r->members.list[i].rank >= 0 && r->members.list[i].state == RANK_ACTIVE)
            hello(r, i, CARD_BOUNDARY);
}

static void test_new_host(void **state)
{
    const struct roster_host host = {"a1", "h1", 0, 3};
    struct roster r;
    struct err err = {0};
    uint32_t change;
    (void)state;
    make(&r);
    assert_int_equal(roster_scale(&r, 4, now, &change, &err), -ERANGE); /* no room */
    assert_int_equal(roster_add_host(&r, &host, &err), 0);
    assert_int_equal(r.agents.n, 2);
    assert_int_equal(roster_find(&r, "a1"), 1);
    assert_int_equal(roster_find(&r, "a0"), 0);
    assert_int_equal(roster_scale(&r, 4, now, &change, &err), 0);
    assert_int_equal(r.members.n, 2); /* the new host's agent has not joined yet */
    join(&r, 1);
    assert_int_equal(r.members.n, 4);
    assert_int_equal(r.members.list[2].agent, 1);
    assert_int_equal(r.members.list[3].assignment.local_rank, 1);
    start(&r, 2);
    start(&r, 3);
    boundary(&r);
    assert_int_equal(r.epoch, 2);
    assert_int_equal(r.size, 4);
    assert_int_equal(roster_scale(&r, 5, now, &change, &err), 0);
    assert_int_equal(roster_scale(&r, 6, now, &change, &err), -ERANGE);
    roster_fini(&r);
}

static void test_more_slots(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r);
    assert_int_equal(roster_set_slots(&r, 0, 4, NULL), 0);
    assert_int_equal(roster_scale(&r, 4, now, &change, NULL), 0);
    assert_int_equal(r.members.n, 4);
    assert_int_equal(r.members.list[2].assignment.local_rank, 2);
    assert_int_equal(r.members.list[3].assignment.local_rank, 3);
    assert_int_equal(roster_rank_without_slot(&r, 0), -1);
    roster_fini(&r);
}

/* Ranks without a slot are asked to leave one after the other, and no rank is started in their
 * place. */
static void test_fewer_slots(void **state)
{
    struct roster r;
    uint32_t change;
    (void)state;
    make(&r);
    assert_int_equal(roster_set_slots(&r, 0, 1, NULL), 0);
    assert_int_equal(roster_rank_without_slot(&r, 0), 1);
    assert_int_equal(roster_drain_rank(&r, 1, now, &change, NULL), 0);
    assert_int_equal(roster_rank_without_slot(&r, 0), -1);
    boundary(&r);
    assert_int_equal(r.size, 1);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), -ERANGE);
    /* The host gets slots back while a leaving rank may still run: its local rank is not given
     * to another. */
    assert_int_equal(roster_set_slots(&r, 0, 3, NULL), 0);
    assert_int_equal(roster_scale(&r, 2, now, &change, NULL), 0);
    assert_int_equal(r.members.n, 3);
    assert_int_equal(r.members.list[2].assignment.local_rank, 2);
    roster_fini(&r);
}

/* A drained host is named again. A host whose agent was lost gets a new agent. */
static void test_return(void **state)
{
    const struct roster_host host = {"a1", "h1", 0, 1}, again = {"a2", "h1", 0, 1};
    struct roster r;
    struct err err = {0};
    uint32_t change;
    (void)state;
    make(&r);
    assert_int_equal(roster_add_host(&r, &host, NULL), 0);
    join(&r, 1);
    assert_int_equal(roster_drain_host(&r, "h1", now, &change, NULL), 0);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), -ERANGE);
    assert_int_equal(roster_set_slots(&r, 1, 1, NULL), 0);
    assert_int_equal(roster_scale(&r, 3, now, &change, NULL), 0);
    assert_int_equal(r.members.list[2].agent, 1);
    roster_agent_lost(&r, 1, "ssh ended with code 255", now);
    assert_int_equal(roster_set_slots(&r, 1, 1, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "host h1: its agent is lost"));
    assert_int_equal(roster_add_host(&r, &again, NULL), 0);
    join(&r, 2);
    now += 2 * CLOCK_S; /* more than the pause before a restart */
    roster_tick(&r, now);
    assert_int_equal(r.members.n, 4);
    assert_int_equal(r.members.list[3].agent, 2);
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_host),
        cmocka_unit_test(test_more_slots),
        cmocka_unit_test(test_fewer_slots),
        cmocka_unit_test(test_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
