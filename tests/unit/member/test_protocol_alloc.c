/* SPDX-License-Identifier: Apache-2.0
 *
 * member/protocol, findings and roster with failing allocations: a text is written whole or not at
 * all, a body is read whole or refused with -ENOMEM (the sender repeats it), and a request that was
 * refused for lack of memory can be repeated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/json/json.h"
#include "core/member/findings.h"
#include "core/base/clock.h"
#include "core/member/roster.h"
#include "core/member/status.h"
#include "tests/harness/fail_alloc.h"

#define LONG_TEXT                                                                                  \
    "a text that is longer than what a buffer has at its beginning, and then some more"

/* Returns 0 if the text is the expected one, and frees it. */
static int written(char *text, const char *want)
{
    int rc = !text ? -ENOMEM : strcmp(text, want) == 0 ? 0 : -EBADMSG;
    if (rc == -EBADMSG)
        printf("written: %s\n", text);
    free(text);
    return rc;
}

static const char join_text[] = "{\"agent\":\"agent-0 " LONG_TEXT
                                "\",\"host\":\"h\",\"version\":\"0.1.0\",\"slots\":8,\"pid\":4711}";
static const char welcome_text[] =
    "{\"job\":\"digits\",\"size\":3,\"elastic\":false,\"slots\":2,"
    "\"post_output\":false,\"ranks\":["
    "{\"member\":1,\"local_rank\":0,\"cross_rank\":1,\"cross_size\":2},"
    "{\"member\":2,\"local_rank\":1,\"cross_rank\":0,\"cross_size\":1}]}";
static const char cards_text[] =
    "{\"agent\":\"a\",\"seq\":9,\"epoch\":3,\"cards\":["
    "{\"member\":0,\"why\":\"revoked\",\"epoch\":2,\"card\":\"emVybw==\"},"
    "{\"member\":1,\"why\":\"revoked\",\"epoch\":2,\"card\":\"b25l\"}]}";
static const char roster_text[] =
    "{\"epoch\":3,\"size\":2,\"change\":7,\"announced\":9,\"done\":8,"
    "\"key\":\"CQgHAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\","
    "\"members\":["
    "{\"rank\":0,\"member\":3,\"new\":true,\"agent\":\"a\",\"host\":\"h\",\"card\":\"emVybw==\"},"
    "{\"rank\":1,\"member\":4,\"new\":true,\"agent\":\"a\",\"host\":\"h\",\"card\":\"b25l\","
    "\"place\":2}]}";
static const char notes_text[] =
    "{\"seq\":5,\"events\":[{\"type\":\"lost\",\"member\":3,\"code\":-9,\"epoch\":7,\"text\":"
    "\"" LONG_TEXT "\"},"
    "{\"type\":\"stop\",\"member\":-1,\"code\":2000,\"epoch\":0,\"text\":\"x\"}]}";
static const char report_text[] =
    "{\"agent\":\"a\",\"seq\":2,\"ranks\":[{\"state\":\"exited\",\"member\":1,\"pid\":7,\"code\":-"
    "11,"
    "\"text\":\"\",\"tail\":\"" LONG_TEXT "\",\"batches\":0,\"bytes\":1099511627776},"
    "{\"state\":\"bye\",\"member\":0,\"pid\":6,\"code\":0,\"text\":\"\",\"tail\":\"\",\"batches\":"
    "0,"
    "\"bytes\":0,\"done\":5}]}";
static const char findings_text[] =
    "{\"agent\":\"a\",\"seq\":4,\"findings\":[{\"source\":\"watch\",\"id\":\"shm-size\",\"code\":"
    "\"HVD3001\",\"status\":\"warn\",\"cleared\":false,\"summary\":\"" LONG_TEXT "\",\"fix\":\"\"},"
    "{\"source\":\"preflight\",\"id\":\"x\",\"code\":\"HVD1\",\"status\":\"fail\",\"cleared\":true,"
    "\"summary\":\"\",\"fix\":\"y\"}]}";

static struct card make_card(int rank, const char *bytes)
{
    return (struct card){.member = rank,
                         .rank = rank,
                         .agent = "a",
                         .host = "h",
                         .bytes = {.data = (uint8_t *)bytes, .len = strlen(bytes)}};
}

static int write_join(void)
{
    struct join_body b = {"agent-0 " LONG_TEXT, "h", "0.1.0", 8, 4711, NULL};
    return written(join_write(&b), join_text);
}

static int write_welcome(void)
{
    struct assignment assignments[] = {{1, 0, 1, 2}, {2, 1, 0, 1}};
    struct welcome_body b = {
        .job = "digits", .size = 3, .slots = 2, .nassignments = 2, .assignments = assignments};
    return written(welcome_write(&b), welcome_text);
}

static int write_cards(void)
{
    struct card cards[] = {make_card(0, "zero"), make_card(1, "one")};
    for (int i = 0; i < 2; i++) {
        cards[i].why = CARD_REVOKED;
        cards[i].epoch = 2;
    }
    struct cards_body b = {.agent = "a", .seq = 9, .epoch = 3, .n = 2, .cards = cards};
    return written(cards_write(&b), cards_text);
}

static int write_roster(void)
{
    struct card cards[] = {make_card(0, "zero"), make_card(1, "one")};
    for (int i = 0; i < 2; i++) {
        cards[i].member = 3 + i;
        cards[i].place = 2 * i;
        cards[i].is_new = true;
    }
    struct roster_body b = {.epoch = 3,
                            .change = 7,
                            .announced = 9,
                            .departed_done = 8,
                            .key = {9, 8, 7},
                            .n = 2,
                            .cards = cards};
    return written(roster_write(&b), roster_text);
}

static int write_notes(void)
{
    struct note notes[] = {
        {.type = NOTE_LOST, .member = 3, .code = -9, .text = LONG_TEXT, .epoch = 7},
        {.type = NOTE_STOP, .member = -1, .code = 2000, .text = "x"}};
    struct notes_body b = {5, 2, notes};
    return written(notes_write(&b), notes_text);
}

static int write_report(void)
{
    struct report_item items[] = {{.type = REPORT_EXITED,
                                   .member = 1,
                                   .pid = 7,
                                   .code = -11,
                                   .tail = LONG_TEXT,
                                   .bytes = 1ull << 40},
                                  {.type = REPORT_BYE, .pid = 6, .done = 5}};
    struct report_body b = {.agent = "a", .seq = 2, .n = 2, .items = items};
    return written(report_write(&b), report_text);
}

static int write_findings(void)
{
    struct finding list[] = {
        {"watch", "shm-size", "HVD3001", FINDING_WARN, false, LONG_TEXT, "", false},
        {"preflight", "x", "HVD1", FINDING_FAIL, true, "", "y", false}};
    struct findings_body b = {"a", 4, {2, 2, list}};
    return written(findings_write(&b), findings_text);
}

static int write_error(void)
{
    return written(json_error_body(LONG_TEXT), "{\"error\":\"" LONG_TEXT "\"}");
}

/* Defines a function that reads TEXT into a BODY of the kind NAME, and writes it again without
 * failing allocations: the text must be the same. */
#define READS(name, body_type, fini)                                                               \
    static int read_##name(void)                                                                   \
    {                                                                                              \
        struct body_type body;                                                                     \
        struct err err = {0};                                                                      \
        int rc = name##_read(name##_text, strlen(name##_text), &body, &err);                       \
        long fail_at = fail_alloc.fail_at;                                                         \
        if (rc < 0)                                                                                \
            return err.msg[0] ? rc : -EBADMSG; /* -ENOMEM comes with a message */                  \
        fail_alloc.fail_at = -1;                                                                   \
        rc = written(name##_write(&body), name##_text);                                            \
        fail_alloc.fail_at = fail_at;                                                              \
        fini(&body);                                                                               \
        return rc;                                                                                 \
    }

static void nothing(struct join_body *body)
{
    (void)body;
}

READS(join, join_body, nothing)
READS(welcome, welcome_body, welcome_fini)
READS(cards, cards_body, cards_fini)
READS(roster, roster_body, roster_body_fini)
READS(notes, notes_body, notes_fini)
READS(report, report_body, report_body_fini)
READS(findings, findings_body, findings_body_fini)

/* ---- the roster ----------------------------------------------------------------------------- */

static const uint8_t key[MEMBER_KEY_SIZE] = {1};

static int tell(struct roster *r, enum report_type type, int rank, int code, uint64_t seq)
{
    struct report_item item = {.type = type, .member = rank, .pid = 100 + rank, .code = code};
    struct report_body body = {.agent = "a", .seq = seq, .n = 1, .items = &item};
    return roster_report(r, &body, seq, NULL);
}

/* Repeats a request that failed with -ENOMEM. */
static int again(int rc, int (*f)(struct roster *r), struct roster *r)
{
    if (rc != -ENOMEM)
        return rc;
    fail_alloc.fail_at = -1;
    return f(r);
}

static int give_cards(struct roster *r)
{
    struct card cards[] = {make_card(0, "zero"), make_card(1, LONG_TEXT)};
    struct cards_body body = {.agent = "a", .seq = 3, .epoch = 1, .n = 2, .cards = cards};
    struct err err;
    return roster_cards(r, &body, 3, &err);
}

static int give_findings(struct roster *r)
{
    struct finding list[] = {
        {"watch", "shm-size", "HVD3001", FINDING_WARN, false, LONG_TEXT, "", false},
        {"preflight", "x", "HVD1", FINDING_FAIL, false, "", "y", false}};
    struct findings_body body = {"a", 4, {2, 2, list}};
    struct err err;
    return roster_findings(r, &body, 4, &err);
}

/* A job of one host: both ranks start, form an epoch, and one fails. Every note is kept. */
static int life(void)
{
    const struct roster_host host = {"a", "h", 2, 0};
    struct join_body joined = {.agent = "a", .slots = 2, .pid = 1};
    struct roster r;
    struct err err;
    int rc = roster_init(&r, "job", key, &host, 1, &err);
    if (rc < 0)
        return rc;
    rc = roster_join(&r, &joined, 1, &err);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = tell(&r, REPORT_STARTED, i, 0, (uint64_t)i + 1);
    if (rc == 0)
        rc = again(give_cards(&r), give_cards, &r);
    if (rc == 0 &&
        r.epoch == 0) { /* there was no memory to publish the epoch: the next tick does it */
        fail_alloc.fail_at = -1;
        roster_tick(&r, 4);
    }
    if (rc == 0 && (r.epoch != 1 || r.members.list[1].card.len != strlen(LONG_TEXT)))
        rc = -EBADMSG;
    if (rc == 0)
        rc = again(give_findings(&r), give_findings, &r);
    if (rc == 0 && r.agents.list[0].findings.n != 2)
        rc = -EBADMSG;
    roster_stop(&r, "enough", 100);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = tell(&r, REPORT_EXITED, i, 7, (uint64_t)i + 5);
    if (rc == 0 && (r.notes.n != 3 || !roster_done(&r)))
        rc = -EBADMSG;
    roster_fini(&r);
    return rc;
}

static int write_changes(void)
{
    struct drain_body rank = {.rank = 3}, host = {.rank = -1, .host = "h"};
    int rc = written(drain_write(&rank), "{\"rank\":3}");
    return rc < 0 ? rc : written(drain_write(&host), "{\"host\":\"h\"}");
}

static int read_changes(void)
{
    const char scale_text[] = "{\"np\":6}", drain_text[] = "{\"host\":\"" LONG_TEXT "\"}";
    struct scale_body scale;
    struct drain_body drain;
    struct err err;
    int rc = scale_read(scale_text, strlen(scale_text), &scale, &err);
    return rc < 0 ? rc : drain_read(drain_text, strlen(drain_text), &drain, &err);
}

/* An elastic job loses a rank, starts another one, is scaled up and reports its state. */
static int elastic_life(void)
{
    const struct roster_host host = {"a", "h", 2, 4};
    const struct roster_elastic elastic = {.min = 1, .max = 4, .start_limit = CLOCK_S};
    struct join_body joined = {.agent = "a", .slots = 2, .pid = 1};
    struct roster r;
    struct err err;
    uint32_t change;
    int rc = roster_init(&r, "job", key, &host, 1, &err);
    if (rc < 0)
        return rc;
    rc = roster_make_elastic(&r, &elastic, &err);
    if (rc == 0)
        rc = roster_join(&r, &joined, 1, &err);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = tell(&r, REPORT_STARTED, i, 0, (uint64_t)i + 1);
    if (rc == 0)
        rc = again(give_cards(&r), give_cards, &r);
    if (rc == 0)
        rc = tell(&r, REPORT_EXITED, 1, -9, 5);
    if (rc == 0)
        rc = roster_scale(&r, 3, 6, &change, &err);
    if (rc == 0)
        fail_alloc.fail_at = -1; /* allocations succeed again: work that had failed is repeated */
    for (uint64_t i = 1; i < 4 && rc == 0; i++)
        roster_tick(&r, i * 2 * CLOCK_S);
    if (rc == 0 && (r.epoch == 0 || r.members.n != 4 || r.starts.n != 0))
        rc = -EBADMSG;
    char *text = status_text(&r, 9 * CLOCK_S);
    if (rc == 0 && !text)
        rc = -ENOMEM;
    free(text);
    roster_fini(&r);
    return rc;
}

static void test_writing(void **state)
{
    (void)state;
    int faults = fail_alloc_walk("join", write_join) + fail_alloc_walk("welcome", write_welcome);
    faults += fail_alloc_walk("cards", write_cards) + fail_alloc_walk("roster", write_roster);
    faults += fail_alloc_walk("notes", write_notes) + fail_alloc_walk("report", write_report);
    faults += fail_alloc_walk("findings", write_findings) + fail_alloc_walk("error", write_error);
    faults += fail_alloc_walk("changes", write_changes);
    assert_int_equal(faults, 0);
}

static void test_reading(void **state)
{
    (void)state;
    int faults = fail_alloc_walk("join", read_join) + fail_alloc_walk("welcome", read_welcome);
    faults += fail_alloc_walk("cards", read_cards) + fail_alloc_walk("roster", read_roster);
    faults += fail_alloc_walk("notes", read_notes) + fail_alloc_walk("report", read_report);
    faults += fail_alloc_walk("findings", read_findings) + fail_alloc_walk("changes", read_changes);
    assert_int_equal(faults, 0);
}

static void test_roster(void **state)
{
    (void)state;
    assert_int_equal(fail_alloc_walk("life", life), 0);
    assert_int_equal(fail_alloc_walk("elastic life", elastic_life), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_roster),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!FAIL_ALLOC)
        printf("SKIP: member/protocol_alloc: no sanitizer: it has its own malloc\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
