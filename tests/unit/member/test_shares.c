/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of core/member/shares: a resource is divided among users.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/member/shares.h"

static size_t take_all(struct shares *s, const char *user)
{
    size_t n = 0;
    while (shares_take(s, user, 1))
        n++;
    return n;
}

/* Greedy users, one after the other: each gets a share of what is free, and some is always free. */
static void test_a_share_is_free(void **state)
{
    struct shares s = {.total = 1000, .divisor = 1, .floor = 2};
    (void)state;
    assert_int_equal(take_all(&s, "a"), 500);
    assert_int_equal(take_all(&s, "b"), 250);
    assert_int_equal(take_all(&s, "c"), 125);
    assert_true(shares_allow(&s, "d", 60));
    assert_false(shares_allow(&s, "a", 1));
    shares_give(&s, "a", 500);
    assert_int_equal(shares_of(&s, "a"), 0);
    assert_true(shares_allow(&s, "a", 300));
    shares_fini(&s);
}

static void test_floor(void **state)
{
    struct shares s = {.total = 10, .divisor = 0, .floor = 4};
    (void)state;
    assert_int_equal(take_all(&s, "a"), 4);
    assert_int_equal(take_all(&s, "b"), 4);
    assert_int_equal(take_all(&s, "c"), 2); /* no more is left */
    assert_int_equal(s.used, 10);
    assert_true(shares_force(&s, "d", 3)); /* in debt */
    assert_false(shares_allow(&s, "e", 1));
    shares_give(&s, "d", 3);
    shares_give(&s, "d", 3); /* more than it has */
    assert_int_equal(s.used, 10);
    shares_fini(&s);
}

static void test_many_users(void **state)
{
    struct shares s = {.total = 100000, .divisor = 8, .floor = 1};
    char user[2 * SHARES_NAME_MAX];
    (void)state;
    for (int i = 0; i < 20000; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_true(shares_take(&s, user, 2));
    }
    assert_int_equal(s.used, 40000);
    for (int i = 0; i < 20000; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(shares_of(&s, user), 2);
        shares_give(&s, user, 2);
    }
    assert_int_equal(s.used, 0);
    memset(user, 'x', sizeof(user) - 1); /* a long name is cut everywhere */
    user[sizeof(user) - 1] = '\0';
    assert_true(shares_take(&s, user, 5));
    assert_int_equal(shares_of(&s, user), 5);
    shares_give(&s, user, 5);
    assert_int_equal(s.used, 0);
    shares_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_share_is_free),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_many_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
