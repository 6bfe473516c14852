/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of rounds: a period is found in logs of every kind that have one, and in no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/rounds.h"

struct program {
    struct rounds r;
    uint64_t seen[256];
};

static void say(struct program *p, const char *ids)
{
    for (; *ids; ids++) {
        struct log_entry e = {.id = *ids == '?' ? 0 : (uint64_t)(uint8_t)*ids, .last = true};
        rounds_arrive(&p->r, e.id, &p->seen[(uint8_t)*ids]);
        assert_int_equal(rounds_log(&p->r, &e), 0);
    }
}

static uint32_t period_of(const char *start, const char *again, int times, uint32_t need)
{
    struct program *p = test_calloc(1, sizeof(*p));
    rounds_init(&p->r);
    say(p, start);
    for (int i = 0; i < times; i++)
        say(p, again);
    uint32_t n = rounds_period(&p->r, need);
    rounds_fini(&p->r);
    test_free(p);
    return n;
}

static void test_periods(void **state)
{
    assert_int_equal(period_of("", "a", 3, 3), 1);
    assert_int_equal(period_of("", "abc", 3, 3), 3);
    assert_int_equal(period_of("", "abc", 2, 3), 0);
    assert_int_equal(period_of("xyz", "abc", 4, 3), 3);
    assert_int_equal(period_of("", "abac", 4, 3), 4);
    assert_int_equal(period_of("", "aaab", 8, 3), 4);
    assert_int_equal(period_of("b", "abc", 5, 3), 3);
}

/* A round is a set: the order of its tensors may change. */
static void test_order_does_not_matter(void **state)
{
    assert_int_equal(period_of("abccabbca", "acb", 1, 3), 3);
}

static void test_no_period(void **state)
{
    assert_int_equal(period_of("", "abcdefgh", 1, 2), 0);
    assert_int_equal(period_of("aabacadae", "af", 1, 2), 0);
    assert_int_equal(period_of("", "a?", 9, 2), 0); /* one tensor has no id */
    assert_int_equal(period_of("abcabcabc", "abd", 1, 3), 0);
    assert_int_equal(period_of("", "abc", 9, 0), 0);
}

/* The log's ring has wrapped many times. */
static void test_long(void **state)
{
    struct program *p = test_calloc(1, sizeof(*p));
    rounds_init(&p->r);
    for (int i = 0; i < 20000; i++)
        say(p, "abc");
    assert_int_equal(rounds_period(&p->r, 100), 3);
    say(p, "ab");
    assert_true(rounds_complete(&p->r) == false);
    say(p, "c");
    assert_true(rounds_complete(&p->r));
    rounds_reset(&p->r);
    assert_int_equal(rounds_period(&p->r, 1), 0);
    rounds_fini(&p->r);
    test_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_no_period),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
