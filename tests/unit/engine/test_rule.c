/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules that divide ranks into groups, and the functions of the program that do.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/rule.h"
#include "core/engine/rule_functions.h"

enum { SIZE = 7 };

static const int hosts[SIZE] = {0, 0, 1, 0, 2, 1, 2};
static const int local_ranks[SIZE] = {0, 1, 0, 2, 0, 1, 1};
static const int places[SIZE] = {0, 1, 3, 4, 5, 8, 9};
static const struct hvd_roster roster = {
    .size = SIZE, .hosts = hosts, .local_ranks = local_ranks, .places = places};

static void test_texts(void **state)
{
    static const struct {
        const char *text;
        enum rule_kind kind;
        int k;
        const char *name;
    } good[] = {
        {"host", RULE_HOST, 0, "host"},
        {"every 2", RULE_EVERY, 2, "every"},
        {"blocks 10", RULE_BLOCKS, 10, "blocks"},
        {"every 2147483647", RULE_EVERY, INT_MAX, "every"},
        {"stage", RULE_FUNCTION, 0, "stage"},
        {"my-rule.v2_x 12", RULE_FUNCTION, 12, "my-rule.v2_x"},
        {"hosts", RULE_FUNCTION, 0, "hosts"},
    };
    static const char *const bad[] = {"",
                                      " ",
                                      "host 1",
                                      "every",
                                      "every 0",
                                      "every 02",
                                      "every  2",
                                      "every 2 ",
                                      "every -1",
                                      "every 2x",
                                      "blocks",
                                      " every 2",
                                      "a b",
                                      "every 2147483648",
                                      "x 99999999999999999999",
                                      "r\xc3\xa9gle",
                                      "stage\n"};
    char long_text[HVD_MAX_NAME + 2];
    struct rule rule;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(rule_parse(good[i].text, &rule, &err), 0);
        assert_int_equal(rule.kind, good[i].kind);
        assert_int_equal(rule.k, good[i].k);
        assert_string_equal(rule.name, good[i].name);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (rule_parse(bad[i], &rule, &err) != -EINVAL)
            fail_msg("'%s' is a rule", bad[i]);
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = 0;
    assert_int_equal(rule_parse(long_text, &rule, &err), -EINVAL);
    long_text[HVD_MAX_NAME] = 0;
    assert_int_equal(rule_parse(long_text, &rule, &err), 0);
    assert_int_equal(rule_parse(NULL, &rule, &err), -EINVAL);
}

static void expect_groups(const char *text, const int *groups)
{
    struct rule rule;
    struct err err;
    int got[SIZE];
    assert_int_equal(rule_parse(text, &rule, &err), 0);
    assert_int_equal(rule_divide(&rule, NULL, &roster, got, &err), 0);
    assert_memory_equal(got, groups, sizeof(got));
}

static void test_groups(void **state)
{
    static const int groups[SIZE] = {3, -1, 0, 3, 0, -1, 3};
    int ranks[SIZE];
    (void)state;
    expect_groups("host", hosts);
    expect_groups("every 3", (const int[SIZE]){0, 1, 2, 0, 1, 2, 0});
    expect_groups("every 1", (const int[SIZE]){0});
    expect_groups("every 9", (const int[SIZE]){0, 1, 2, 3, 4, 5, 6});
    expect_groups("blocks 3", (const int[SIZE]){0, 0, 0, 1, 1, 1, 2});
    expect_groups("blocks 2147483647", (const int[SIZE]){0});
    assert_int_equal(rule_group_of(groups, SIZE, 3, ranks), 3);
    assert_memory_equal(ranks, ((const int[]){0, 3, 6}), 3 * sizeof(int));
    assert_int_equal(rule_group_of(groups, SIZE, 4, ranks), 2);
    assert_memory_equal(ranks, ((const int[]){2, 4}), 2 * sizeof(int));
    assert_int_equal(rule_group_of(groups, SIZE, 5, ranks), 0); /* not those that have none */
}

/* Groups of places; the argument is added. */
static int by_place(const struct hvd_roster *r, int rank, int k, void *arg)
{
    const int *more = arg;
    return r->places[rank] % k + *more;
}

static int divide(const char *text, int *ret_groups, struct err *err)
{
    struct rule rule;
    struct rule_function f = {.call = NULL};
    assert_int_equal(rule_parse(text, &rule, err), 0);
    int rc = rule_function_find(rule.name, &f, err);
    return rc == 0 ? rule_divide(&rule, &f, &roster, ret_groups, err) : rc;
}

static void test_functions(void **state)
{
    struct err err = {0};
    int got[SIZE], more = 0;
    (void)state;
    assert_int_equal(divide("place 4", got, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "'place'"));
    assert_int_equal(rule_function_define("place", (struct rule_function){by_place, &more}, &err),
                     0);
    assert_int_equal(divide("place 4", got, &err), 0);
    assert_memory_equal(got, ((const int[SIZE]){0, 1, 3, 0, 1, 0, 1}), sizeof(got));
    more = HVD_GROUP_MAX;
    assert_int_equal(divide("place 4", got, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "rank 1 into group 1000000001"));
    more = -1;
    assert_int_equal(divide("place 4", got, &err), 0);
    assert_int_equal(got[0], -1);
    more = -2;
    assert_int_equal(divide("place 4", got, &err), -EINVAL);

    int other = 1; /* a second definition replaces the first one */
    assert_int_equal(rule_function_define("place", (struct rule_function){by_place, &other}, &err),
                     0);
    assert_int_equal(divide("place 4", got, &err), 0);
    assert_int_equal(got[0], 1);
}

static void test_names(void **state)
{
    static const char *const bad[] = {"", "host", "every", "blocks", "a b", "a,b", "\t"};
    struct err err;
    int none = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(
            rule_function_define(bad[i], (struct rule_function){by_place, &none}, &err), -EINVAL);
    assert_int_equal(rule_function_define(NULL, (struct rule_function){by_place, &none}, &err),
                     -EINVAL);
    assert_int_equal(rule_function_define("null", (struct rule_function){NULL, NULL}, &err),
                     -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
