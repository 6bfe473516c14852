/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/driver/recorder with a fake API server: Events wait while other requests wait
 * for a slot, and not for ever.
 *
 * takes: 7 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "operator/driver/recorder.h"
#include "tests/harness/kube_server.h"
#include "tests/unit/api/api_case.h"

static struct inflight inflight;
static struct inflight_user other;
static struct recorder *recorder;
static const struct recorder_about job = {"hvd.dev/v1alpha1", "HvdJob", "default", "digits", "u"};

static void on_turn(void *arg)
{
    (void)arg;
    inflight_unqueue(&other);
}

static int setup(void **state)
{
    inflight_init(&inflight, 1);
    inflight_register(&inflight, &other, on_turn, NULL);
    return api_case_setup(state) < 0 ||
                   recorder_open(&recorder, api, &inflight, "operator-1", NULL) < 0
               ? -1
               : 0;
}

static int teardown(void **state)
{
    recorder_close(recorder);
    return api_case_teardown(state);
}

/* Takes the only slot, and waits for another. */
static void be_busy(void)
{
    assert_true(inflight_acquire(&inflight, &other));
    assert_false(inflight_acquire(&inflight, &other));
}

static void say(const char *note)
{
    recorder_event(recorder, &job, false, "Starting", note);
}

/* Turns the loop until the server has got n requests, or ms have passed. Returns how many it got.
 */
static long requests_within(long n, uint64_t ms)
{
    uint64_t end = deadline_in_ms(ms);
    long got;
    while ((got = kube_server_count("requests")) < n && !deadline_passed(end))
        turn();
    return got;
}

static void test_after_the_pods(void **state)
{
    (void)state;
    long before = kube_server_count("requests");
    be_busy();
    say("one");
    say("two");
    assert_int_equal(requests_within(before + 1, 2000), before);
    inflight_release(&inflight);
    assert_false(inflight_is_busy(&inflight));
    assert_int_equal(requests_within(before + 2, 60000), before + 2);
}

static void test_not_for_ever(void **state)
{
    (void)state;
    long before = kube_server_count("requests");
    uint64_t began = clock_ns();
    be_busy();
    say("three");
    assert_int_equal(requests_within(before + 1, 60000), before + 1);
    assert_true(clock_ns() - began >= 5 * CLOCK_S);
    assert_true(inflight_is_busy(&inflight));
    inflight_release(&inflight);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_after_the_pods),
                                              cmocka_unit_test(test_not_for_ever)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
