/* SPDX-License-Identifier: Apache-2.0
 *
 * test_version: the order of version texts, each pair compared both ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "diagnostics/rules.h"

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static void test_order(void **state)
{
    static const struct {
        const char *a, *b;
        int order;
    } rows[] = {
        {"2.8.4", "2.8.3", 1},
        {"2.10.3", "2.9.9", 1},
        {"4.1", "4.1.0", 0},
        {"4.1", "4.1.0.0.1", -1},
        {"5.0.0rc2", "5.0.0", -1},
        {"5.0.0rc2", "5.0.0rc10", -1},
        {"5.0.0a1", "5.0.0b1", -1},
        {"5.0.0rc1", "4.9", 1},
        {"v4.1.4", "4.1.4", 0},
        {"450.80.02", "450.80.2", 0},
        {"580.65.06", "525", 1},
        {"2.27.7+cuda13.0", "2.27.7", 0},
        {"1.13.0a0", "1.13.0", -1},
        {"1.13.0.post1", "1.13.0", 0},
        {"2.6.0-1", "2.6.0", 0},
        {"2.6.0~beta", "2.6.0", -1},
        {"2.1.dev0", "2.1", -1},
        {"99999999999999999999", "2", 1},
        {"", "0", 0},
        {"nonsense", "0", -1},
        {"0", "", 0},
        {"2.", "2", 0},
        {"2..3", "2.0.3", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int forth = sign(version_compare(rows[i].a, rows[i].b));
        int back = sign(version_compare(rows[i].b, rows[i].a));
        if (forth != rows[i].order || back != -rows[i].order)
            fail_msg("\"%s\" and \"%s\": %d, back %d, want %d", rows[i].a, rows[i].b, forth, back,
                     rows[i].order);
    }
}

/* The order is transitive. */
static void test_transitive(void **state)
{
    static const char *const v[] = {"1",     "1.0rc1", "1.0",  "1.0.1", "1.1a1", "1.1a2", "1.1b1",
                                    "1.1",   "1.1.0",  "2",    "2.0rc", "10",    "",      "x",
                                    "1.0-3", "1..2",   "1.0.", "v1",    "1.rc1"};
    enum { N = sizeof(v) / sizeof(*v) };
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            for (int c = 0; c < N; c++)
                if (version_compare(v[a], v[b]) <= 0 && version_compare(v[b], v[c]) <= 0 &&
                    version_compare(v[a], v[c]) > 0)
                    fail_msg("\"%s\" <= \"%s\" <= \"%s\"", v[a], v[b], v[c]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_transitive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
