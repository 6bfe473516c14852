/* SPDX-License-Identifier: Apache-2.0
 *
 * env: both prefixes, defaults, and -EINVAL for text that does not parse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/env.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int clear(void **state)
{
    unsetenv("HVD_T");
    unsetenv("HOROVOD_T");
    return 0;
}

static void test_prefixes(void **state)
{
    assert_null(env_get("T"));
    setenv("HOROVOD_T", "old", 1);
    assert_string_equal(env_get("T"), "old");
    setenv("HVD_T", "", 1); /* an empty variable counts as not set */
    assert_string_equal(env_get("T"), "old");
    setenv("HVD_T", "new", 1);
    assert_string_equal(env_get("T"), "new");
}

static void test_int(void **state)
{
    static const char *const bad[] = {"x", "5x", "1e3", "0x10", "11", "-1", "99999999999999999999",
                                      "5 "};
    int64_t v = 77;
    assert_int_equal(env_int("T", 3, 0, 10, &v, NULL), 0);
    assert_int_equal(v, 3);
    setenv("HVD_T", "10", 1);
    assert_int_equal(env_int("T", 3, 0, 10, &v, NULL), 0);
    assert_int_equal(v, 10);
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct err err;
        setenv("HVD_T", bad[i], 1);
        assert_int_equal(env_int("T", 3, 0, 10, &v, &err), -EINVAL);
        assert_non_null(strstr(err.msg, "HVD_T="));
        assert_non_null(strstr(err.msg, "from 0 to 10"));
        assert_int_equal(v, 10);
    }
}

static void test_size(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},           {"123", 123},        {"7B", 7},
                {"4k", 4096},       {"64M", 64u << 20},  {"2GB", 2ULL << 30},
                {"1g", 1ULL << 30}, {"16mb", 16u << 20}, {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {
        "-1", "K",   "1T",   "1KK", "1.5M", "18446744073709551616", "18014398509481984K",
        " 1", "1 M", "0x10", "1BB"};
    uint64_t v = 0;
    for (size_t i = 0; i < COUNT(good); i++) {
        setenv("HVD_T", good[i].text, 1);
        assert_int_equal(env_size("T", 9, &v, NULL), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv("HVD_T", bad[i], 1);
        assert_int_equal(env_size("T", 9, &v, NULL), -EINVAL);
    }
    unsetenv("HVD_T");
    assert_int_equal(env_size("T", 9, &v, NULL), 0);
    assert_true(v == 9);
}

static void test_bool(void **state)
{
    static const char *const yes[] = {"1", "true", "YES", "On"}, *const no[] = {"0", "False", "no",
                                                                                "off"};
    static const char *const bad[] = {"2", "y", "truee", "-"};
    bool v = false;
    for (size_t i = 0; i < 4; i++) {
        setenv("HVD_T", yes[i], 1);
        assert_int_equal(env_bool("T", false, &v, NULL), 0);
        assert_true(v);
        setenv("HVD_T", no[i], 1);
        assert_int_equal(env_bool("T", true, &v, NULL), 0);
        assert_false(v);
        setenv("HVD_T", bad[i], 1);
        assert_int_equal(env_bool("T", true, &v, NULL), -EINVAL);
    }
}

static void test_double(void **state)
{
    static const char *const bad[] = {"nan", "inf", "-1", "11", "x", "1x"};
    double v = 0;
    setenv("HVD_T", "0.25", 1);
    assert_int_equal(env_double("T", 1, 0, 10, &v, NULL), 0);
    assert_true(v == 0.25);
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv("HVD_T", bad[i], 1);
        assert_int_equal(env_double("T", 1, 0, 10, &v, NULL), -EINVAL);
    }
    assert_true(v == 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_prefixes, clear), cmocka_unit_test_setup(test_int, clear),
        cmocka_unit_test_setup(test_size, clear),     cmocka_unit_test_setup(test_bool, clear),
        cmocka_unit_test_setup(test_double, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
