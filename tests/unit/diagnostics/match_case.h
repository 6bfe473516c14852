/* SPDX-License-Identifier: Apache-2.0
 *
 * match_case: runs one log at a time against the built-in patterns. Shared by test_match_context.c
 * and test_match_say.c. Call done() after each run1().
 */
#ifndef HVD_TESTS_MATCH_CASE_H
#define HVD_TESTS_MATCH_CASE_H

#include "tests/unit/diagnostics/match_run.h"

static struct patterns *patterns;

static int setup(void **state)
{
    return patterns_create(&patterns, NULL) == 0 ? 0 : 1;
}

static int teardown(void **state)
{
    patterns_destroy(patterns);
    return 0;
}

static struct match *m;
static struct match_result *r;

static void run1(const char *text, bool failed)
{
    struct log_text log = {"train.log", text};
    r = run_logs(patterns, &log, 1, failed, &m);
}

static void done(void)
{
    done_logs(m, r);
    m = NULL;
    r = NULL;
}

static void nothing(const char *text)
{
    char verdict[1024];
    run1(text, false);
    if (r->verdict != MATCH_NOTHING)
        fail_msg("%s", match_verdict_text(r, verdict, sizeof(verdict)));
    assert_int_equal(r->n + r->neffects + r->nnotes, 0);
    assert_int_equal(match_exit_code(r), 0);
    done();
}

#endif
