/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/expand: $(NAME) is expanded as Kubernetes does it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/expand.h"

static char *const env[] = {"VAR_A=A", "VAR_B=B",       "VAR_REF=$(VAR_A)",
                            "EMPTY=",  "LONG_VAR_A=no", NULL};

static void test_expand(void **state)
{
    const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"plain", "plain"},
        {"$(VAR_A)", "A"},
        {"x$(VAR_A)$(VAR_B)y", "xABy"},
        {"$(VAR_REF)", "$(VAR_A)"}, /* values are not expanded again */
        {"$(EMPTY)", ""},
        {"$(VAR)", "$(VAR)"},
        {"$(NONE) $(VAR_A)", "$(NONE) A"},
        {"$$(VAR_A)", "$(VAR_A)"},
        {"$$$(VAR_A)", "$A"},
        {"$$$$(VAR_A)", "$$(VAR_A)"},
        {"$(VAR_A", "$(VAR_A"},
        {"$VAR_A ${VAR_A}", "$VAR_A ${VAR_A}"},
        {"cost $", "cost $"},
        {"$$", "$"},
        {"$()", "$()"},
        {"$($(VAR_A))", "$($(VAR_A))"},
        {"a)(b", "a)(b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *got = expand(rows[i].text, env);
        assert_string_equal(got, rows[i].want);
        free(got);
    }
}

static void test_no_environment(void **state)
{
    char *got = expand("$(VAR_A)$$", NULL);
    (void)state;
    assert_string_equal(got, "$(VAR_A)$");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_no_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
