/* SPDX-License-Identifier: Apache-2.0
 *
 * test_peer_silence: time in which this process did not listen does not count as silence of the
 * peer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "agent/peer_silence.h"

#define TURN (100 * CLOCK_MS)

static void test_listening(void **state)
{
    struct peer_silence u = {0};
    uint64_t now = 1000 * CLOCK_S;
    (void)state;
    assert_int_equal(peer_silence_measure(&u, now), 0); /* no start of the silence is known yet */
    peer_silence_end(&u, now);
    for (int i = 0; i < 50; i++)
        peer_silence_measure(&u, now += TURN);
    assert_int_equal(u.ns, 5 * CLOCK_S);
    peer_silence_end(&u, now);
    assert_int_equal(peer_silence_measure(&u, now), 0);
    assert_int_equal(peer_silence_measure(&u, now + TURN), TURN);
}

/* The agent did not listen for an hour, because it started ranks, was stopped, or had no
 * processor. This counts as one step. */
static void test_not_listening(void **state)
{
    struct peer_silence u = {0};
    uint64_t now = 1000 * CLOCK_S;
    (void)state;
    peer_silence_end(&u, now);
    assert_int_equal(peer_silence_measure(&u, now += 3600 * CLOCK_S), PEER_SILENCE_STEP);
    assert_int_equal(peer_silence_measure(&u, now += 3600 * CLOCK_S), 2 * PEER_SILENCE_STEP);
    assert_int_equal(peer_silence_measure(&u, now += TURN), 2 * PEER_SILENCE_STEP + TURN);
    peer_silence_end(&u, now);
    assert_int_equal(peer_silence_measure(&u, now += TURN), TURN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listening),
        cmocka_unit_test(test_not_listening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
