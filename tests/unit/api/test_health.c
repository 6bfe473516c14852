/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/health: which lines a person reads, when, and what readiness means.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "operator/api/health.h"

enum { LEASE, JOBS, PODS, NODES, GROUPS, N };

static struct problem problems[N];
static struct health_source sources[N];
static struct health health;
static uint64_t now;
static int lines;
static char last[2048];

static void say(void *arg, const char *line)
{
    (void)arg;
    lines++;
    snprintf(last, sizeof(last), "%s", line);
}

static int begin(void **state)
{
    static const char *const names[] = {"lease x/y", "hvdjobs", "pods", "nodes", "podgroups"};
    (void)state;
    memset(problems, 0, sizeof(problems));
    health = (struct health){.server = "https://k:1", .unready_after = 15 * CLOCK_S};
    for (int i = 0; i < N; i++)
        sources[i] =
            (struct health_source){.what = names[i], .there = true, .problem = &problems[i]};
    sources[NODES].need = HEALTH_OPTIONAL;
    sources[GROUPS].need = HEALTH_PARTLY;
    now = 1000 * CLOCK_S;
    lines = 0;
    last[0] = '\0';
    return 0;
}

static void fail_with(int i, long status, const char *text)
{
    problems[i].status = status;
    snprintf(problems[i].text, sizeof(problems[i].text), "%s", text);
}

static void mend(int i)
{
    problems[i] = (struct problem){0};
}

/* Lets seconds pass and returns how many lines were said. */
static int pass(int seconds)
{
    int before = lines;
    for (int i = 0; i < seconds; i++) {
        now += CLOCK_S;
        health_step(&health, sources, N, now, say, NULL);
    }
    return lines - before;
}

static bool is_ready(char *text, size_t size)
{
    struct buf b = {0};
    bool ready = health_ready(&health, sources, N, now, &b);
    snprintf(text, size, "%.*s", (int)b.len, b.data ? (const char *)b.data : "");
    buf_fini(&b);
    return ready;
}

static void test_one_line_for_an_outage(void **state)
{
    (void)state;
    assert_int_equal(pass(100), 0);
    for (int i = 0; i < N - 1; i++)
        fail_with(i, 0, "Connection refused");
    assert_int_equal(pass(5), 0);
    assert_int_equal(pass(1), 1);
    assert_non_null(strstr(last, "https://k:1, for 5 s, lease x/y, hvdjobs, pods, nodes: "
                                 "Connection refused. "));
    assert_non_null(strstr(last, "ranks train on"));
    fail_with(N - 1, 0, "Connection timed out"); /* noticed late: the same outage */
    assert_int_equal(pass(200), 0);
    assert_int_equal(pass(100), 1); /* it lasts */
    assert_non_null(strstr(last, "hvdjobs, pods, nodes and 1 more"));
    for (int i = 0; i < N - 1; i++)
        mend(i);
    assert_int_equal(pass(3), 0);
    mend(N - 1);
    assert_int_equal(pass(1), 1);
    assert_non_null(
        strstr(last, "works again, after 309 s: lease x/y, hvdjobs, pods, nodes and 1 more"));
    assert_int_equal(pass(1000), 0);
}

static void test_short_problems_are_silent(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        fail_with(JOBS, 500, "500 Injected");
        assert_int_equal(pass(4), 0);
        mend(JOBS);
        assert_int_equal(pass(1), 0);
    }
}

static void test_another_reason_is_said(void **state)
{
    (void)state;
    fail_with(LEASE, 0, "Connection refused");
    assert_int_equal(pass(10), 1);
    fail_with(LEASE, 401, "401 Unauthorized");
    assert_int_equal(pass(10), 1);
    assert_non_null(strstr(last, "401 Unauthorized"));
    assert_non_null(strstr(last, "token"));
    fail_with(PODS, 403, "403 pods is forbidden");
    assert_int_equal(pass(12), 0);
    assert_int_equal(pass(1), 1);
    assert_non_null(strstr(last, "pods: 403 pods is forbidden"));
    mend(LEASE);
    assert_int_equal(pass(1), 1);
    assert_non_null(strstr(last, "works again, after 23 s: lease x/y"));
    assert_int_equal(pass(10), 0);
}

/* An API server that comes back refuses some requests for a moment. */
static void test_another_reason_at_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        fail_with(i, 0, "Connection refused");
    assert_int_equal(pass(60), 1);
    for (int i = 0; i < N; i++)
        fail_with(i, i % 2 ? 503 : 403, "not yet");
    assert_int_equal(pass(2), 0);
    fail_with(PODS, 0, "Connection timed out");
    assert_int_equal(pass(1), 0);
    for (int i = 0; i < N; i++)
        mend(i);
    assert_int_equal(pass(1), 1);
    assert_non_null(strstr(last, "works again, after 63 s: lease x/y, hvdjobs"));
    assert_int_equal(pass(1000), 0);
}

static void test_refused_and_optional(void **state)
{
    char text[512];
    (void)state;
    sources[NODES].there = false;
    fail_with(NODES, 403, "403 nodes is forbidden");
    assert_int_equal(pass(2000), 1); /* once: the operator works without */
    assert_non_null(strstr(last, "works without"));
    assert_true(is_ready(text, sizeof(text)));
    assert_string_equal(text, "");
    fail_with(PODS, 403, "403 pods is forbidden");
    assert_int_equal(pass(12), 0);
    assert_int_equal(pass(1), 1);
    mend(PODS);
    assert_int_equal(pass(1), 1); /* although nodes are still refused */
    assert_non_null(strstr(last, "works again, after 13 s: pods"));
}

static void test_ready(void **state)
{
    char text[512];
    (void)state;
    sources[JOBS].there = false;
    assert_false(is_ready(text, sizeof(text)));
    assert_string_equal(text, "hvdjobs: not read yet\n");
    fail_with(JOBS, 401, "401 Unauthorized");
    fail_with(LEASE, 401, "401 Unauthorized");
    pass(1);
    assert_false(is_ready(text, sizeof(text)));
    assert_string_equal(text,
                        "lease x/y: 401 Unauthorized\nhvdjobs: not read yet: 401 Unauthorized\n");
    mend(JOBS);
    sources[JOBS].there = true;
    pass(14);
    assert_true(is_ready(text, sizeof(text))); /* not longer than the lease */
    pass(2);
    assert_false(is_ready(text, sizeof(text)));
    assert_string_equal(text, "lease x/y: 401 Unauthorized\n");
    mend(LEASE);
    fail_with(GROUPS, 404, "404 not found"); /* some jobs only */
    pass(100);
    assert_true(is_ready(text, sizeof(text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_line_for_an_outage, begin),
        cmocka_unit_test_setup(test_short_problems_are_silent, begin),
        cmocka_unit_test_setup(test_another_reason_is_said, begin),
        cmocka_unit_test_setup(test_another_reason_at_the_end, begin),
        cmocka_unit_test_setup(test_refused_and_optional, begin),
        cmocka_unit_test_setup(test_ready, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
