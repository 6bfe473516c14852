/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/protocol: every body is read back as it was written; foreign bytes and their
 * errors.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/member/protocol.h"
#include "core/member/rejoin.h"

static void test_join(void **state)
{
    struct join_body in = {"agent-1", "node \"7\"", "0.1.0", 8, 4711, NULL}, out;
    auto_free char *text = join_write(&in);
    struct err err;
    (void)state;
    assert_int_equal(join_read(text, strlen(text), &out, &err), 0);
    assert_string_equal(out.agent, in.agent);
    assert_string_equal(out.host, in.host);
    assert_int_equal(out.slots, 8);
    assert_int_equal(out.pid, 4711);
}

/* What an agent reports to a new coordinator, and invalid reports. */
static void test_rejoin(void **state)
{
    struct card cards[] = {{.member = 4, .agent = "a", .host = "h"}};
    struct rejoin_member m[] = {{.member = 4,
                                 .local_rank = 1,
                                 .pid = 77,
                                 .epoch = 9,
                                 .over = true,
                                 .dead = true,
                                 .code = -9,
                                 .text = "how",
                                 .tail = "its last line",
                                 .hello = true,
                                 .bye = true,
                                 .arrived = true,
                                 .out = true,
                                 .done = 11,
                                 .leaving = true,
                                 .waiting = true,
                                 .why = CARD_BOUNDARY,
                                 .was_in = 8,
                                 .batches = 5,
                                 .bytes = 6},
                                {.member = 5, .pid = 78}};
    struct rejoin in = {
        7,
        {.epoch = 9, .change = 3, .announced = 5, .departed_done = 12, .n = 1, .cards = cards},
        2,
        m,
        11};
    struct join_body body = {"a", "h", "1", 2, 3, &in}, out = {0};
    struct err err;
    (void)state;
    buf_put(&m[0].card, "card", 4);
    auto_free char *text = join_write(&body);
    buf_fini(&m[0].card);
    assert_int_equal(join_read(text, strlen(text), &out, &err), 0);
    const struct rejoin *r = out.rejoin;
    assert_int_equal(r->known, 11);
    assert_non_null(r);
    assert_int_equal(r->change, 7);
    assert_int_equal(r->world.epoch, 9);
    assert_int_equal(r->world.announced, 5);
    assert_int_equal(r->world.departed_done, 12);
    assert_int_equal(r->world.cards[0].member, 4);
    assert_int_equal(r->n, 2);
    const struct rejoin_member *a = &r->members[0], *b = &r->members[1];
    assert_true(a->over && a->dead && a->hello && a->bye && a->out && a->leaving && a->waiting);
    assert_true(a->arrived && !b->arrived);
    assert_true(a->local_rank == 1 && a->pid == 77 && a->epoch == 9 && a->code == -9);
    assert_true(a->why == CARD_BOUNDARY && a->was_in == 8 && a->batches == 5 && a->bytes == 6);
    assert_int_equal(a->done, 11);
    assert_string_equal(a->text, "how");
    assert_string_equal(a->tail, "its last line");
    assert_memory_equal(a->card.data, "card", 4);
    assert_false(b->over || b->dead || b->hello || b->bye || b->out || b->leaving || b->waiting);
    assert_int_equal(b->member, 5);
    join_fini(&out);
    const char *const bad[] = {
        "7",
        "{}",
        "{\"change\":-1,\"members\":[]}",
        "{\"change\":0,\"members\":[7]}",
        "{\"change\":0,\"members\":[],\"roster\":{}}",
        "{\"change\":0,\"members\":[{\"member\":-1,\"local_rank\":0,\"pid\":1,\"epoch\":0,"
        "\"over\":false,\"dead\":false,\"code\":0,\"hello\":true,\"bye\":false,\"out\":false,"
        "\"leaving\":false}]}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_free char *join = NULL;
        assert_true(asprintf(&join,
                             "{\"agent\":\"a\",\"host\":\"h\",\"slots\":1,\"pid\":1,"
                             "\"rejoin\":%s}",
                             bad[i]) > 0);
        assert_int_equal(join_read(join, strlen(join), &out, &err), -EINVAL);
        assert_true(strstr(err_text(&err), "rejoin") || strstr(err_text(&err), "roster"));
    }
}

static void test_welcome(void **state)
{
    struct assignment assignments[] = {{2, 0, 1, 2}, {3, 1, 1, 2}};
    struct welcome_body in = {"job", 4, false, 2, true, 2, assignments}, out;
    auto_free char *text = welcome_write(&in);
    (void)state;
    assert_int_equal(welcome_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.size, 4);
    assert_true(out.post_output);
    assert_int_equal(out.nassignments, 2);
    assert_memory_equal(out.assignments, assignments, sizeof(assignments));
    welcome_fini(&out);
}

static struct card make_card(int rank, const char *bytes)
{
    struct card c = {.member = rank, .rank = rank, .place = rank, .agent = "a", .host = "h"};
    buf_put(&c.bytes, bytes, strlen(bytes));
    return c;
}

static void test_cards_and_roster(void **state)
{
    struct card cards[] = {make_card(0, "zero"), make_card(1, "one")};
    struct cards_body in = {.agent = "a", .seq = 9, .epoch = 3, .n = 2, .cards = cards}, out;
    struct roster_body rin = {.epoch = 3, .key = {9, 8, 7}, .n = 2, .cards = cards}, rout;
    auto_free char *text = cards_write(&in), *rtext = roster_write(&rin);
    (void)state;
    assert_int_equal(cards_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.seq, 9);
    assert_int_equal(out.epoch, 3);
    assert_int_equal(out.cards[1].bytes.len, 3);
    assert_memory_equal(out.cards[1].bytes.data, "one", 3);
    cards_fini(&out);
    assert_int_equal(roster_read(rtext, strlen(rtext), &rout, NULL), 0);
    assert_memory_equal(rout.key, rin.key, sizeof(rin.key));
    assert_string_equal(rout.cards[1].host, "h");
    roster_body_fini(&rout);
    buf_fini(&cards[0].bytes);
    buf_fini(&cards[1].bytes);
}

/* A roster of two ranks with these places; -1: the field is absent. */
static int read_places(int first, int second, struct roster_body *ret, struct err *err)
{
    const int places[] = {first, second};
    char field[2][32] = {"", ""};
    auto_free char *text = NULL;
    for (int i = 0; i < 2; i++)
        if (places[i] >= 0)
            snprintf(field[i], sizeof(field[i]), "\"place\":%d,", places[i]);
    assert_true(asprintf(&text,
                         "{\"epoch\":1,\"size\":2,\"key\":"
                         "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\"members\":["
                         "{\"rank\":0,%s\"member\":0,\"card\":\"\"},"
                         "{\"rank\":1,%s\"member\":1,\"card\":\"\"}]}",
                         field[0], field[1]) > 0);
    return roster_read(text, strlen(text), ret, err);
}

/* A roster says a place only where it is not the rank. Places rise with the ranks. */
static void test_places(void **state)
{
    static const int bad[][2] = {{0, 0}, {1, -1}, {2, 1}, {0, MEMBER_RANKS_MAX}};
    struct card cards[] = {make_card(0, "zero"), make_card(1, "one")};
    struct roster_body in = {.epoch = 3, .n = 2, .cards = cards}, out;
    struct err err;
    (void)state;
    auto_free char *plain = roster_write(&in);
    assert_null(strstr(plain, "place"));
    cards[1].place = 3;
    auto_free char *text = roster_write(&in);
    assert_int_equal(roster_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.cards[0].place, 0);
    assert_int_equal(out.cards[1].place, 3);
    roster_body_fini(&out);
    assert_int_equal(read_places(-1, 7, &out, &err), 0);
    assert_int_equal(out.cards[1].place, 7);
    roster_body_fini(&out);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_places(bad[i][0], bad[i][1], &out, &err), -EINVAL);
        assert_non_null(strstr(err_text(&err), "has place"));
    }
    buf_fini(&cards[0].bytes);
    buf_fini(&cards[1].bytes);
}

static void test_notes(void **state)
{
    struct note notes[] = {
        {.type = NOTE_LOST, .member = 3, .code = -9, .text = "rank 3 died", .epoch = 7},
        {.type = NOTE_STOP, .member = -1, .code = 2000, .text = "x"},
        {.type = NOTE_NUMBERS, .member = 7, .numbers = {(4u << 20) | 9, 3, 4, 2, 1, 2, 5}}};
    struct notes_body in = {5, 3, notes}, out;
    auto_free char *text = notes_write(&in);
    (void)state;
    assert_int_equal(notes_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.n, 3);
    assert_memory_equal(&out.notes[2].numbers, &notes[2].numbers, sizeof(struct rank_numbers));
    assert_int_equal(out.seq, 5);
    assert_int_equal(out.notes[0].type, NOTE_LOST);
    assert_int_equal(out.notes[0].code, -9);
    assert_string_equal(out.notes[0].text, "rank 3 died");
    assert_int_equal(out.notes[1].member, -1);
    notes_fini(&out);
}

/* Numbers that are out of range. */
static void test_broken_numbers(void **state)
{
    static const char *const bad[] = {
        "7",
        "{}",
        "{\"epoch\":0,\"rank\":3,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":2}",
        "{\"epoch\":1,\"rank\":4,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":2}",
        "{\"epoch\":1,\"rank\":-1,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":2}",
        "{\"epoch\":1,\"rank\":3,\"size\":4,\"local_size\":5,\"cross_rank\":1,\"cross_size\":2}",
        "{\"epoch\":1,\"rank\":3,\"size\":4,\"local_size\":2,\"cross_rank\":2,\"cross_size\":2}",
        "{\"epoch\":1,\"rank\":3,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":9}",
        "{\"epoch\":1,\"rank\":3,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":2,"
        "\"place\":2}",
        "{\"epoch\":1,\"rank\":3,\"size\":4,\"local_size\":2,\"cross_rank\":1,\"cross_size\":2,"
        "\"place\":65536}",
    };
    struct notes_body out;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_free char *text = NULL;
        assert_true(
            asprintf(&text,
                     "{\"seq\":1,\"events\":[{\"type\":\"numbers\",\"member\":1,\"epoch\":0,"
                     "\"code\":0,\"numbers\":%s}]}",
                     bad[i]) > 0);
        assert_int_equal(notes_read(text, strlen(text), &out, &err), -EINVAL);
        assert_non_null(strstr(err_text(&err), "numbers"));
    }
}

/* A text that a rank wrote need not be UTF-8. */
static void test_report(void **state)
{
    struct report_item item = {.type = REPORT_EXITED, .member = 1, .pid = 7, .code = -11};
    struct report_body in = {.agent = "a", .seq = 2, .n = 1, .items = &item}, out;
    (void)state;
    memcpy(item.tail, "caf\xe9 \xff\n\ttab", 12);
    item.bytes = 1ull << 40;
    auto_free char *text = report_write(&in);
    assert_non_null(text);
    assert_int_equal(report_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.items[0].type, REPORT_EXITED);
    assert_int_equal(out.items[0].code, -11);
    assert_string_equal(out.items[0].tail, "caf? ?\n\ttab");
    assert_true(out.items[0].bytes == 1ull << 40);
    assert_true(out.items[0].sets.n == 0 && out.items[0].sets.descriptors_max == 0);
    report_body_fini(&out);
}

static void test_report_of_sets(void **state)
{
    struct report_item item = {
        .type = REPORT_PROGRESS,
        .member = 1,
        .pid = 7,
        .batches = 5,
        .sets = {.n = 3,
                 .descriptors = 40,
                 .descriptors_max = 1024,
                 .segments = 1ull << 33,
                 .memory_left = 5,
                 .memory_limit = 1ull << 40,
                 .communicators = 4,
                 .gpu_memory_left = 1ull << 34,
                 .gpu_memory = 1ull << 36,
                 .broken = 2,
                 .listed = 2,
                 .list = {{1, 1700000000123, "set 1"}, {1000003, 4, "set 1000003 (tp0) \xff"}}}};
    struct report_body in = {.agent = "a", .seq = 2, .n = 1, .items = &item}, out;
    (void)state;
    auto_free char *text = report_write(&in);
    assert_non_null(text);
    assert_int_equal(report_read(text, strlen(text), &out, NULL), 0);
    const struct set_report *got = &out.items[0].sets;
    assert_true(out.items[0].batches == 5 && got->n == 3);
    assert_true(got->descriptors == 40 && got->descriptors_max == 1024);
    assert_true(got->segments == 1ull << 33 && got->memory_left == 5);
    assert_true(got->memory_limit == 1ull << 40 && got->broken == 2 && got->listed == 2);
    assert_true(got->communicators == 4 && got->gpu_memory_left == 1ull << 34);
    assert_true(got->gpu_memory == 1ull << 36);
    assert_int_equal(got->list[0].since, 1700000000123);
    assert_int_equal(got->list[1].number, 1000003);
    assert_string_equal(got->list[1].text, "set 1000003 (tp0) ?");
    report_body_fini(&out);
    static const char old[] =
        "{\"agent\":\"a\",\"seq\":1,\"ranks\":[{\"state\":\"progress\",\"member\":0,\"sets\":2,"
        "\"descriptors\":9,\"descriptors_max\":10}]}";
    assert_int_equal(report_read(old, strlen(old), &out, NULL), 0);
    assert_true(out.items[0].sets.n == 2 && out.items[0].sets.descriptors == 9);
    assert_true(out.items[0].sets.memory_limit == 0 && out.items[0].sets.broken == 0);
    assert_true(out.items[0].sets.communicators == 0 && out.items[0].sets.gpu_memory == 0);
    report_body_fini(&out);
}

static void test_report_of_broken_sets_refused(void **state)
{
    static const char *const lists[] = {"[7]", "[{\"set\":-1,\"since\":1,\"text\":\"x\"}]",
                                        "[{\"set\":1,\"since\":\"1\",\"text\":\"x\"}]",
                                        "[{\"set\":1,\"since\":1}]"};
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct report_body out;
        char text[512];
        snprintf(text, sizeof(text),
                 "{\"agent\":\"a\",\"seq\":1,\"ranks\":[{\"state\":\"progress\",\"member\":0,"
                 "\"sets\":2,\"broken\":1,\"broken_sets\":%s}]}",
                 lists[i]);
        assert_int_equal(report_read(text, strlen(text), &out, NULL), -EINVAL);
    }
}

/* The frame of a rank, of this version and of older ones. What the agent counts is not in it. */
static void test_frame_of_sets(void **state)
{
    struct set_report r = {.n = 9, .descriptors = 5, .broken = 1, .listed = 1};
    struct buf body = {0};
    (void)state;
    buf_put_u32(&body, 2);
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    assert_true(r.n == 2 && r.descriptors == 5 && r.broken == 0 && r.listed == 0);
    buf_put_u32(&body, 1);
    buf_put_u32(&body, 7);
    buf_put_u64(&body, 1234);
    assert_int_equal(set_report_take(body.data, body.len, &r), -EPROTO);
    assert_true(r.n == 2 && r.broken == 0);
    buf_put_str(&body, "set 7 has lost 1 of its 2 ranks");
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    assert_true(r.broken == 1 && r.listed == 1 && r.list[0].number == 7);
    assert_int_equal(r.list[0].since, 1234);
    assert_string_equal(r.list[0].text, "set 7 has lost 1 of its 2 ranks");
    buf_reset(&body);
    buf_put_u32(&body, 1);
    buf_put_u32(&body, 2); /* more than there are */
    assert_int_equal(set_report_take(body.data, body.len, &r), -EPROTO);
    buf_fini(&body);
}

/* A frame that ends before them is an older rank's. Without communicators there is no memory. */
static void test_frame_of_communicators(void **state)
{
    struct set_report r = {.descriptors = 5, .communicators = 8, .gpu_memory = 9};
    struct buf body = {0};
    (void)state;
    buf_put_u32(&body, 2);
    buf_put_u32(&body, 0);
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    assert_true(r.n == 2 && r.communicators == 0 && r.gpu_memory == 0 && r.descriptors == 5);
    buf_put_u32(&body, 3);
    assert_int_equal(set_report_take(body.data, body.len, &r), -EPROTO);
    buf_put_u64(&body, UINT64_MAX);
    assert_int_equal(set_report_take(body.data, body.len, &r), -EPROTO);
    assert_int_equal(r.communicators, 0);
    buf_put_u64(&body, 1ull << 36);
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    assert_true(r.communicators == 3 && r.gpu_memory_left == 0 && r.gpu_memory == 1ull << 36);
    buf_put_u32(&body, 7); /* of a later version */
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    buf_reset(&body);
    for (int i = 0; i < 3; i++)
        buf_put_u32(&body, i == 0); /* a set, none is broken, no communicator */
    assert_int_equal(set_report_take(body.data, body.len, &r), 0);
    assert_true(r.n == 1 && r.communicators == 0 && r.gpu_memory == 0);
    buf_fini(&body);
}

static void test_changes(void **state)
{
    static const char s[] = "{\"np\":6}";
    struct scale_body scale_out = {0};
    struct drain_body rank = {.rank = 3}, host = {.rank = -1, .host = "node7"}, out;
    auto_free char *r = drain_write(&rank), *h = drain_write(&host);
    (void)state;
    assert_int_equal(scale_read(s, strlen(s), &scale_out, NULL), 0);
    assert_int_equal(scale_out.np, 6);
    assert_int_equal(drain_read(r, strlen(r), &out, NULL), 0);
    assert_int_equal(out.rank, 3);
    assert_string_equal(out.host, "");
    assert_int_equal(drain_read(h, strlen(h), &out, NULL), 0);
    assert_int_equal(out.rank, -1);
    assert_string_equal(out.host, "node7");
}

static int r_scale(const char *t, void *ret, struct err *err)
{
    return scale_read(t, strlen(t), ret, err);
}

static int r_drain(const char *t, void *ret, struct err *err)
{
    return drain_read(t, strlen(t), ret, err);
}

typedef int read_f(const char *text, void *ret, struct err *err);

static int r_join(const char *t, void *ret, struct err *err)
{
    return join_read(t, strlen(t), ret, err);
}

static int r_welcome(const char *t, void *ret, struct err *err)
{
    return welcome_read(t, strlen(t), ret, err);
}

static int r_cards(const char *t, void *ret, struct err *err)
{
    return cards_read(t, strlen(t), ret, err);
}

static int r_roster(const char *t, void *ret, struct err *err)
{
    return roster_read(t, strlen(t), ret, err);
}

static int r_notes(const char *t, void *ret, struct err *err)
{
    return notes_read(t, strlen(t), ret, err);
}

static int r_report(const char *t, void *ret, struct err *err)
{
    return report_read(t, strlen(t), ret, err);
}

static void test_foreign_bytes(void **state)
{
    static const struct {
        read_f *read;
        const char *text, *words;
    } cases[] = {
        {r_join, "", "join: line 1"},
        {r_join, "[]", "join: Expected object"},
        {r_join, "{\"agent\": 5}", "join: Expected string"},
        {r_join, "{\"agent\":\"a\",\"agent\":\"b\"}", "duplicate"},
        {r_welcome, "{\"job\":\"j\",\"size\":2,\"elastic\":false,\"slots\":2,\"ranks\":{}}",
         "welcome: ranks: want a list"},
        {r_welcome, "{\"job\":\"j\",\"size\":0,\"elastic\":false,\"slots\":1,\"ranks\":[]}",
         "welcome: size 0"},
        {r_welcome,
         "{\"job\":\"j\",\"size\":1,\"elastic\":false,\"slots\":1,\"ranks\":[{\"member\":1,\"local_"
         "rank\":0,\"cross_rank\":0,"
         "\"cross_size\":1}]}",
         "welcome: rank: member 1: want less than 1"},
        {r_cards, "{\"agent\":\"a\",\"seq\":1,\"epoch\":0,\"cards\":[]}", "cards: epoch 0"},
        {r_cards,
         "{\"agent\":\"a\",\"seq\":1,\"epoch\":1,\"cards\":[{\"member\":0,\"card\":\"*\"}]}",
         "not base64"},
        {r_cards,
         "{\"agent\":\"a\",\"seq\":1,\"epoch\":1,\"cards\":[{\"member\":-1,\"card\":\"\"}]}",
         "card: member -1"},
        {r_roster, "{\"epoch\":1,\"size\":0,\"key\":\"\",\"members\":[]}", "a key of 0 bytes"},
        {r_roster,
         "{\"epoch\":1,\"size\":2,\"key\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\","
         "\"members\":[]}",
         "size 2 with 0 members"},
        {r_notes,
         "{\"seq\":1,\"events\":[{\"type\":\"dance\",\"member\":0,\"code\":0,\"epoch\":1}]}",
         "unknown type \"dance\""},
        {r_cards,
         "{\"agent\":\"a\",\"seq\":1,\"epoch\":1,\"cards\":[{\"member\":1,\"why\":\"x\",\"card\":"
         "\"\"}]}",
         "card: unknown why \"x\""},
        {r_notes,
         "{\"seq\":1,\"events\":[{\"type\":\"lost\",\"member\":-2,\"code\":0,\"epoch\":1}]}",
         "event: member -2"},
        {r_scale, "{}", "scale: "},
        {r_scale, "{\"np\":0}", "scale: np 0: want 1"},
        {r_scale, "{\"np\":99999999999}", "scale: np 99999999999"},
        {r_drain, "{}", "drain: want a rank or a host"},
        {r_drain, "{\"rank\":1,\"host\":\"a\"}", "drain: want a rank or a host"},
        {r_drain, "{\"rank\":1.5}", "drain: Expected integer"},
        {r_drain, "{\"host\":\"\"}", "drain: want a rank or a host"},
        {r_report, "{\"agent\":\"a\",\"seq\":1,\"ranks\":[{\"state\":\"up\",\"member\":0}]}",
         "unknown state \"up\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        union {
            struct join_body join;
            struct welcome_body welcome;
            struct cards_body cards;
            struct roster_body roster;
            struct notes_body notes;
            struct report_body report;
            struct scale_body scale;
            struct drain_body drain;
        } ret;
        struct err err = {0};
        assert_int_equal(cases[i].read(cases[i].text, &ret, &err), -EINVAL);
        if (!strstr(err.msg, cases[i].words))
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
}

static void test_long_card_is_refused(void **state)
{
    struct card c = {.member = 0};
    struct cards_body in = {.agent = "a", .seq = 1, .epoch = 1, .n = 1, .cards = &c}, out;
    (void)state;
    memset(buf_reserve(&c.bytes, MEMBER_CARD_MAX + 1), 1, MEMBER_CARD_MAX + 1);
    for (int extra = 0; extra < 2; extra++) {
        c.bytes.len = (size_t)MEMBER_CARD_MAX + (size_t)extra;
        auto_free char *text = cards_write(&in);
        int rc = cards_read(text, strlen(text), &out, NULL);
        assert_int_equal(rc, extra ? -EINVAL : 0);
        if (rc == 0)
            cards_fini(&out);
    }
    buf_fini(&c.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_rejoin),
        cmocka_unit_test(test_welcome),
        cmocka_unit_test(test_cards_and_roster),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_broken_numbers),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_report_of_sets),
        cmocka_unit_test(test_report_of_broken_sets_refused),
        cmocka_unit_test(test_frame_of_sets),
        cmocka_unit_test(test_frame_of_communicators),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_long_card_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
