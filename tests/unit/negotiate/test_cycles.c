/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of cycles: what rank 0 reports of blocked ranks, how often, and what it refuses to read.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/negotiate/cycle.h"
#include "core/negotiate/cycles.h"

#define PERIOD (60 * CLOCK_S)
#define START  (1000 * CLOCK_S)

struct said {
    int n;
    char last[CYCLES_TEXT + 1];
};

static void on_say(void *ctx, const char *text)
{
    struct said *said = ctx;
    said->n++;
    assert_true(strlen(text) < CYCLES_TEXT);
    snprintf(said->last, sizeof(said->last), "%s", text);
}

static struct blocked_in in_set(int set, const char *name)
{
    struct blocked_in in = {.set = set};
    if (set)
        snprintf(in.group, sizeof(in.group), "set %d (ranks %d, %d)", set, set - 1, set);
    snprintf(in.name, sizeof(in.name), "%s", name);
    return in;
}

static void add(struct cycles *c, int rank, struct blocked_in lacks, struct blocked_in waits,
                uint64_t since, uint64_t now)
{
    struct blocked b = {.rank = rank, .since_ns = since, .lacks = lacks, .waits = waits};
    cycles_add(c, &b, now);
}

/* What is reported at this time. */
static struct said report(struct cycles *c, uint64_t now)
{
    struct said said = {0};
    cycles_tick(c, now, on_say, &said);
    return said;
}

static void two(struct cycles *c, uint64_t now)
{
    add(c, 0, in_set(2, "b"), in_set(1, "a"), PERIOD, now);
    add(c, 1, in_set(1, "a"), in_set(2, "b"), PERIOD, now);
}

static void test_two_sets(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    two(c, START);
    assert_int_equal(report(c, START).n, 0); /* more ranks may tell */
    struct said said = report(c, START + CLOCK_S);
    assert_int_equal(said.n, 1);
    assert_string_equal(
        said.last,
        "set 1 (ranks 0, 1) and set 2 (ranks 1, 2) wait for each other: rank 0 waits for 'a' in "
        "set 1, which rank 1 has not submitted; rank 1 waits for 'b' in set 2, which rank 0 has "
        "not "
        "submitted. None of these ranks goes on, unless another of its threads submits what is "
        "missing. Submit the operations of sets that share ranks before you wait for one of them, "
        "or in the same order on all ranks.");
    cycles_destroy(c);
}

static void test_one_set(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    add(c, 3, in_set(0, "y"), in_set(0, "x"), PERIOD, START);
    add(c, 2, in_set(0, "x"), in_set(0, "y"), PERIOD, START);
    struct said said = report(c, START + CLOCK_S);
    assert_int_equal(said.n, 1);
    const char *begin = "operations of the world wait for each other: rank 2 waits for 'y' in the "
                        "world, which rank 3 has not submitted; rank 3 waits for 'x' in the world,";
    assert_int_equal(strncmp(said.last, begin, strlen(begin)), 0);
    assert_non_null(strstr(said.last, "Submit the operations before you wait"));
    cycles_destroy(c);
}

/* Once in a period, while the ranks tell so. */
static void test_again(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    for (int k = 0; k < 5; k++) {
        uint64_t now = START + (uint64_t)k * (PERIOD + CLOCK_S);
        two(c, now);
        assert_int_equal(report(c, now + CLOCK_S).n, 1);
        add(c, 5, in_set(1, "a"), in_set(2, "b"), PERIOD, now + PERIOD / 2);
        assert_int_equal(report(c, now + PERIOD / 2 + CLOCK_S).n, 0);
    }
    uint64_t later = START + 20 * PERIOD;
    add(c, 1, in_set(1, "a"), in_set(2, "b"), PERIOD, later);
    assert_int_equal(report(c, later + CLOCK_S).n, 0);
    cycles_destroy(c);
}

/* Rank 0 had what it waited for when rank 1 began to wait. */
static void test_not_at_one_time(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    add(c, 0, in_set(2, "b"), in_set(1, "a"), PERIOD, START);
    add(c, 1, in_set(1, "a"), in_set(2, "b"), 10 * CLOCK_S, START + 20 * CLOCK_S);
    assert_int_equal(report(c, START + 21 * CLOCK_S).n, 0);
    add(c, 0, in_set(2, "b"), in_set(1, "a"), 2 * PERIOD, START + PERIOD);
    assert_int_equal(report(c, START + PERIOD + CLOCK_S).n, 1);
    cycles_destroy(c);
}

static void test_no_cycle(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    for (int i = 0; i < 40; i++)
        add(c, i, in_set(1 + i, "a"), in_set(2 + i, "a"), PERIOD, START);
    add(c, 1, in_set(1, "a"), in_set(1, "a"), PERIOD, START);
    assert_int_equal(report(c, START + CLOCK_S).n, 0);
    cycles_destroy(c);
}

/* Many ranks between the same two operations are one cycle. */
static void test_many_ranks(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    for (int i = 0; i < 5000; i++)
        add(c, i, in_set(1 + i % 2, "a"), in_set(2 - i % 2, "a"), PERIOD, START);
    assert_int_equal(report(c, START + CLOCK_S).n, 1);
    cycles_destroy(c);
}

/* A long cycle of sets with long names; and more operations than there is room for. */
static void test_long(void **state)
{
    struct cycles *c = cycles_create(PERIOD);
    char name[HVD_MAX_NAME + 1];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    for (int i = 0; i < 100; i++) {
        struct blocked_in lacks = in_set(1000000 + i, name);
        struct blocked_in waits = in_set(1000000 + (i + 1) % 100, name);
        add(c, 1000000000 + i, lacks, waits, PERIOD, START);
    }
    for (int i = 0; i < 2 * CYCLE_EDGES; i++)
        add(c, i, in_set(5000 + i, "x"), in_set(6000 + i * 7, "y"), PERIOD, START);
    struct said said = report(c, START + CLOCK_S);
    assert_int_equal(said.n, 1);
    assert_non_null(strstr(said.last, " and 97 more sets wait for each other: rank 1000000000 "));
    assert_non_null(strstr(said.last, "; and so on over 96 more ranks. None of "));
    assert_non_null(strstr(said.last, "on all ranks."));
    /* The room is free again. */
    two(c, START + 5 * PERIOD);
    assert_int_equal(report(c, START + 5 * PERIOD + CLOCK_S).n, 1);
    cycles_destroy(c);
}

static int read_back(const struct blocked *b, int ranks, struct blocked *ret)
{
    struct buf out = {0};
    blocked_write(b, &out);
    for (size_t len = 0; len < out.len; len++) {
        struct reader cut = reader_over(out.data, len);
        assert_int_equal(blocked_read(&cut, ranks, ret), -EPROTO);
    }
    struct reader r = reader_over(out.data, out.len);
    int rc = blocked_read(&r, ranks, ret);
    buf_put_u8(&out, 0);
    r = reader_over(out.data, out.len);
    struct blocked more;
    assert_int_equal(blocked_read(&r, ranks, &more), -EPROTO);
    buf_fini(&out);
    return rc;
}

static void test_messages(void **state)
{
    const struct blocked good = {
        .rank = 3, .since_ns = 7, .lacks = in_set(0, "a"), .waits = in_set(2, "b")};
    struct blocked got = {0}, bad = good;
    assert_int_equal(read_back(&good, 4, &got), 0);
    assert_int_equal(got.rank, 3);
    assert_int_equal(got.since_ns, 7);
    assert_int_equal(got.lacks.set, 0);
    assert_string_equal(got.lacks.name, "a");
    assert_int_equal(got.waits.set, 2);
    assert_string_equal(got.waits.group, "set 2 (ranks 1, 2)");
    assert_int_equal(read_back(&good, 3, &got), -EPROTO);
    bad.rank = -1;
    assert_int_equal(read_back(&bad, 4, &got), -EPROTO);
    bad = good;
    bad.waits.set = -2;
    assert_int_equal(read_back(&bad, 4, &got), -EPROTO);
    bad = good;
    bad.waits.group[0] = 0;
    assert_int_equal(read_back(&bad, 4, &got), -EPROTO);
    bad = good;
    bad.waits.set = 0;
    assert_int_equal(read_back(&bad, 4, &got), -EPROTO);
    bad = good;
    bad.lacks.name[0] = 0;
    assert_int_equal(read_back(&bad, 4, &got), -EPROTO);
}

/* Both ends of a message give it the same name. */
static void test_asked(void **state)
{
    const struct asked good = {.set = 5, .asker = 2, .peer = 0, .sends = true, .tag = 9};
    struct asked got = {0}, bad;
    struct buf out = {0};
    char name[80], other[80];
    asked_write(&good, &out);
    for (size_t len = 0; len < out.len; len++) {
        struct reader cut = reader_over(out.data, len);
        assert_int_equal(asked_read(&cut, 3, &got), -EPROTO);
    }
    struct reader r = reader_over(out.data, out.len);
    assert_int_equal(asked_read(&r, 3, &got), 0);
    assert_int_equal(got.set, 5);
    asked_name(&got, name, sizeof(name));
    assert_string_equal(name, "message from rank 2 to rank 0, tag 9");
    got = (struct asked){.set = 5, .asker = 0, .peer = 2, .tag = 9};
    asked_name(&got, other, sizeof(other));
    assert_string_equal(name, other);
    for (int i = 0; i < 4; i++) {
        bad = good;
        bad.set = i == 0 ? -1 : bad.set;
        bad.asker = i == 1 ? 3 : bad.asker;
        bad.peer = i == 2 ? -1 : bad.peer;
        buf_reset(&out);
        asked_write(&bad, &out);
        if (i == 3)
            out.data[12] = 2; /* sends */
        r = reader_over(out.data, out.len);
        assert_int_equal(asked_read(&r, 3, &got), -EPROTO);
    }
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sets), cmocka_unit_test(test_one_set),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_not_at_one_time),
        cmocka_unit_test(test_no_cycle), cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_long),     cmocka_unit_test(test_messages),
        cmocka_unit_test(test_asked),
    };
    return cmocka_run_group_tests_name("negotiate/cycles", tests, NULL, NULL);
}
