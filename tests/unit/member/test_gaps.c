/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/member/gaps.h"

static uint64_t speak(struct gaps *s, uint64_t now, int n, uint64_t gap_ms)
{
    for (int i = 0; i < n; i++) {
        now += gap_ms * CLOCK_MS;
        gaps_heard(s, now);
    }
    return now;
}

static void test_limit(void **state)
{
    struct gaps s = {0};
    uint64_t now = speak(&s, 1000 * CLOCK_MS, 10, 100);
    assert_true(gaps_limit(&s, 50) == UINT64_MAX); /* too few gaps are known */
    now = speak(&s, now, 30, 50);
    assert_int_equal(gaps_limit(&s, 50), 400 * CLOCK_MS); /* four times 100 ms */
    now = speak(&s, now, 1, 900);
    assert_int_equal(gaps_limit(&s, 50), 3600 * CLOCK_MS);
    /* old gaps are forgotten, but not at once */
    now = speak(&s, now, GAPS_WINDOW, 10);
    assert_int_equal(gaps_limit(&s, 50), 3600 * CLOCK_MS);
    speak(&s, now, GAPS_WINDOW, 10);
    assert_int_equal(gaps_limit(&s, 50), GAPS_LEAST_MS * CLOCK_MS);
}

/* Regression: an agent that had much to tell, and then nothing, counted as lost within a heartbeat.
 */
static void test_beats(void **state)
{
    struct gaps s = {0};
    speak(&s, 1000 * CLOCK_MS, 50, 10);
    assert_int_equal(gaps_limit(&s, 1000), 3000 * CLOCK_MS);
}

/* If the listener was stopped, the gap does not count. */
static void test_forgive(void **state)
{
    struct gaps s = {0};
    uint64_t now = speak(&s, 1000 * CLOCK_MS, 50, 50);
    gaps_forgive(&s, now + 60 * CLOCK_S);
    speak(&s, now + 60 * CLOCK_S, 1, 50);
    assert_int_equal(gaps_limit(&s, 50), GAPS_LEAST_MS * CLOCK_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit), cmocka_unit_test(test_beats),
                                       cmocka_unit_test(test_forgive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
