/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/retry and slowstart: pauses, which requests are retried, waves of creates.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/api/retry.h"
#include "operator/api/slowstart.h"

static void test_backoff(void **state)
{
    (void)state;
    assert_int_equal(retry_backoff_ms(1, 0), 5);
    assert_int_equal(retry_backoff_ms(2, 0), 10);
    assert_int_equal(retry_backoff_ms(5, 0), 80);
    assert_int_equal(retry_backoff_ms(14, 0), 40960);
    assert_int_equal(retry_backoff_ms(15, 0), 60000);
    assert_int_equal(retry_backoff_ms(4000000000u, 0), 60000);
    for (unsigned n = 0; n < 40; n++) {
        uint64_t most = retry_backoff_ms(n, 0), least = retry_backoff_ms(n, UINT32_MAX);
        assert_true(least >= most / 2 && least <= most && least > 0);
        uint64_t some = retry_backoff_ms(n, UINT32_MAX / 3);
        assert_true(some >= least && some <= most);
    }
}

static void test_again(void **state)
{
    static const struct {
        long status;
        bool unreached, idempotent, again;
    } cases[] = {
        {0, true, false, true},     {0, false, false, false},   {0, false, true, true},
        {429, false, false, true},  {500, false, false, false}, {500, false, true, true},
        {503, false, false, false}, {504, false, true, true},   {404, false, true, false},
        {409, false, true, false},  {401, false, true, false},  {422, false, true, false},
        {200, false, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct retry_outcome o = {
            .status = cases[i].status, .unreached = cases[i].unreached, .retry_after_s = -1};
        uint64_t ms = 77;
        bool again = retry_again(&o, cases[i].idempotent, 1, 0, &ms);
        assert_int_equal(again, cases[i].again);
        assert_int_equal(ms, again ? 5 : 77);
    }
}

static void test_retry_after(void **state)
{
    struct retry_outcome o = {.status = 429, .retry_after_s = 3};
    uint64_t ms;
    (void)state;
    assert_true(retry_again(&o, false, 1, 0, &ms));
    assert_int_equal(ms, 3000);
    o.retry_after_s = 0;
    assert_true(retry_again(&o, false, 3, 0, &ms));
    assert_int_equal(ms, 20);
    o.retry_after_s = 100000000; /* three years: limited */
    assert_true(retry_again(&o, false, 1, 0, &ms));
    assert_int_equal(ms, 60000);
}

/* Sends as many as allowed; returns how many. */
static unsigned send_all(struct slowstart *s)
{
    unsigned n = 0;
    for (; slowstart_may(s); n++)
        slowstart_sent(s);
    return n;
}

static void test_waves(void **state)
{
    static const unsigned want[] = {1, 2, 4, 8, 16, 16, 3};
    struct slowstart s;
    (void)state;
    slowstart_init(&s, 50, 1, 16);
    assert_int_equal(send_all(&s), want[0]);
    for (size_t i = 1; i < sizeof(want) / sizeof(*want); i++) {
        unsigned sent = 0;
        assert_false(slowstart_over(&s));
        for (unsigned n = 0; n < want[i - 1]; n++) {
            slowstart_done(&s, true);
            sent += send_all(&s); /* a wave does not wait for its last response */
        }
        assert_int_equal(sent, want[i]);
        assert_int_equal(s.out, want[i]);
    }
    for (unsigned n = 0; n < 3; n++)
        slowstart_done(&s, true);
    assert_true(slowstart_over(&s));
    assert_false(slowstart_may(&s));
}

static void test_wave_that_fails(void **state)
{
    struct slowstart s;
    (void)state;
    slowstart_init(&s, 1000, 1, 500);
    assert_int_equal(send_all(&s), 1);
    slowstart_done(&s, true);
    assert_int_equal(send_all(&s), 2);
    slowstart_done(&s, false);
    assert_false(slowstart_over(&s));
    slowstart_done(&s, true);
    assert_true(slowstart_over(&s));
    assert_false(slowstart_may(&s));
    assert_int_equal(s.todo, 997); /* three were sent, and the wave of two met a quota */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_backoff), cmocka_unit_test(test_again),
                                       cmocka_unit_test(test_retry_after),
                                       cmocka_unit_test(test_waves),
                                       cmocka_unit_test(test_wave_that_fails)};
    return cmocka_run_group_tests_name("api/retry", tests, NULL, NULL);
}
