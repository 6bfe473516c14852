/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent_end: what an agent writes is what the operator reads; other messages are none of
 * an agent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/agent_end.h"

static void test_round(void **state)
{
    (void)state;
    for (int end = AGENT_END_NONE + 1; end < AGENT_ENDS; end++) {
        char message[100], small[16];
        agent_end_write((enum agent_end)end, "why", message, sizeof(message));
        assert_int_equal(agent_end_read(message), end);
        assert_string_equal(message + strlen(message) - 5, ": why");
        agent_end_write((enum agent_end)end, "why", small, sizeof(small));
        assert_int_equal(agent_end_read(small), AGENT_END_NONE); /* cut inside the word */
    }
}

static void test_others(void **state)
{
    static const char *const messages[] = {
        "",
        "hvd-agent",
        "hvd-agent: ",
        "hvd-agent: operator-away",
        "hvd-agent: operator-awaystation: x",
        "hvd-agent: unknown-word: x",
        "hvd-agent[pod-0]: operator-away: x",
        "Traceback\nhvd-agent: operator-away: x",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        assert_int_equal(agent_end_read(messages[i]), AGENT_END_NONE);
}

static void test_disruptions(void **state)
{
    (void)state;
    assert_true(agent_end_is_disruption(AGENT_END_AWAY));
    assert_true(agent_end_is_disruption(AGENT_END_REFUSED));
    assert_false(agent_end_is_disruption(AGENT_END_NONE));
    assert_false(agent_end_is_disruption(AGENT_END_SETTING));
    assert_false(agent_end_is_disruption(AGENT_END_INTERNAL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_disruptions),
    };
    return cmocka_run_group_tests_name("base/agent_end", tests, NULL, NULL);
}
