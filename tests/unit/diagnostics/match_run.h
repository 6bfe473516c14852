/* SPDX-License-Identifier: Apache-2.0
 *
 * match_run: runs logs against patterns and returns the result. Shared by test_match*.c and
 * test_patterns.c. Include it once per test program.
 */
#ifndef HVD_TESTS_MATCH_RUN_H
#define HVD_TESTS_MATCH_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnostics/match.h"

struct log_text {
    const char *name;
    const char *text;
};

/* Feeds each log as one source and returns the result. The caller keeps the patterns. */
static inline struct match_result *run_logs(struct patterns *patterns, const struct log_text *logs,
                                            size_t n, bool failed, struct match **ret_match)
{
    struct err err = {0};
    struct match_opts opts = {.patterns = patterns, .failed = failed};
    struct match *m = NULL;
    struct match_result *r = NULL;
    assert_int_equal(match_create(&opts, &m, &err), 0);
    for (size_t i = 0; i < n; i++) {
        struct match_source *s = match_open_source(m, logs[i].name, -1);
        assert_non_null(s);
        match_feed(s, logs[i].text, strlen(logs[i].text));
        match_close_source(s);
    }
    assert_int_equal(match_finish(m, &r, &err), 0);
    *ret_match = m;
    return r;
}

static inline void done_logs(struct match *m, struct match_result *r)
{
    match_result_destroy(r);
    match_destroy(m);
}

static inline const struct match_finding *find_in(const struct match_finding *v, size_t n,
                                                  const char *id)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].pattern->id, id) == 0)
            return &v[i];
    return NULL;
}

/* Searches all findings of the result. */
static inline const struct match_finding *find_any(const struct match_result *r, const char *id)
{
    const struct match_finding *f = find_in(r->findings, r->n, id);
    f = f ? f : find_in(r->effects, r->neffects, id);
    return f ? f : find_in(r->notes, r->nnotes, id);
}

#endif
