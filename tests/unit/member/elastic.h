/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic: an elastic job of three ranks on two hosts, and the reports of its agents. Include it in
 * one source file per test program.
 */
#ifndef HVD_TESTS_MEMBER_ELASTIC_H
#define HVD_TESTS_MEMBER_ELASTIC_H

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/member/roster.h"

static const uint8_t key[MEMBER_KEY_SIZE] = {1, 2, 3};
static uint64_t seq; /* number of the last report of an agent */
static uint64_t now;
static int seen; /* notes that next_note() has passed */

/* Two hosts with three slots each: h0 with two ranks, h1 with one. Both agents have joined. */
static inline void make(struct roster *r, int min, int max, int limit)
{
    const struct roster_host hosts[] = {{"a0", "h0", 2, 3}, {"a1", "h1", 1, 3}};
    const struct roster_elastic elastic = {
        .min = min, .max = max, .reset_limit = limit, .start_limit = 30 * CLOCK_S};
    seq = 0;
    seen = 0;
    now = 1000 * CLOCK_S;
    assert_int_equal(roster_init(r, "job", key, hosts, 2, NULL), 0);
    assert_int_equal(roster_make_elastic(r, &elastic, NULL), 0);
    for (int a = 0; a < 2; a++) {
        struct join_body body = {.slots = 3, .pid = 10 + a};
        snprintf(body.agent, sizeof(body.agent), "a%d", a);
        assert_int_equal(roster_join(r, &body, now, NULL), 0);
    }
}

static inline void after(struct roster *r, uint64_t ms)
{
    now += ms * CLOCK_MS;
    roster_tick(r, now);
}

static inline int tell_bye(struct roster *r, int member, int code, uint64_t done)
{
    struct report_item item = {
        .type = REPORT_BYE, .member = member, .pid = 100 + member, .code = code, .done = done};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item}, read = {0};
    snprintf(body.agent, sizeof(body.agent), "a%d", r->members.list[member].agent);
    char *text = report_write(&body);
    assert_non_null(text);
    assert_int_equal(report_read(text, strlen(text), &read, NULL), 0);
    free(text);
    int rc = roster_report(r, &read, now, NULL);
    report_body_fini(&read);
    return rc;
}

static inline int tell(struct roster *r, enum report_type type, int member, int code)
{
    struct report_item item = {.type = type, .member = member, .pid = 100 + member, .code = code};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    snprintf(body.agent, sizeof(body.agent), "a%d", r->members.list[member].agent);
    return roster_report(r, &body, now, NULL);
}

static inline void hello(struct roster *r, int member, enum card_why why)
{
    struct card c = {.member = member, .why = why, .epoch = r->epoch};
    struct cards_body body = {.seq = ++seq, .epoch = r->epoch + 1, .n = 1, .cards = &c};
    snprintf(body.agent, sizeof(body.agent), "a%d", r->members.list[member].agent);
    buf_put_u32(&c.bytes, (uint32_t)member);
    assert_int_equal(roster_cards(r, &body, now, NULL), 0);
    buf_fini(&c.bytes);
}

/* The rank's process has started and called hvd_init(). */
static inline void arrive(struct roster *r, int member)
{
    assert_int_equal(tell(r, REPORT_STARTED, member, 0), 0);
    hello(r, member, CARD_JOIN);
}

/* The rank is ready for admission, also while others train. */
static inline void start(struct roster *r, int member)
{
    arrive(r, member);
    if (r->members.list[member].state == RANK_ARRIVED)
        hello(r, member, CARD_ENTER);
}

/* Epoch 1 with members 0, 1, 2. */
static inline void form(struct roster *r)
{
    for (int i = 0; i < 3; i++)
        start(r, i);
    assert_int_equal(r->epoch, 1);
}

/* Returns the next note of this type that next_note() has not passed, or NULL. */
static inline const struct note *next_note(struct roster *r, enum note_type type)
{
    while (seen < r->notes.n)
        if (r->notes.list[seen++].type == type)
            return &r->notes.list[seen - 1];
    return NULL;
}

/* The places of the current world, by rank: "0 2 5". */
static inline void places_are(const struct roster *r, const char *want)
{
    char text[256] = "";
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%d", n ? " " : "", c->place);
        assert_int_equal(r->members.list[c->member].place, c->place);
    }
    assert_string_equal(text, want);
}

/* The current world is this one: "0 2 5*" lists the members in order of ranks, with * for those
 * without state. */
static inline void world_is(struct roster *r, uint32_t epoch, const char *want)
{
    char text[256] = "";
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%d%s", n ? " " : "", c->member,
                 c->is_new ? "*" : "");
        assert_int_equal(c->rank, i);
        assert_int_equal(r->members.list[c->member].rank, i);
    }
    assert_string_equal(text, want);
    assert_int_equal(r->epoch, epoch);
    assert_int_equal(r->world.epoch, epoch);
    assert_int_equal(r->size, r->world.n);
}

#endif
