/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict: see verdict.h.
 */
#include "diagnostics/report/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMED 4 /* at most this many ids are in the line */

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"ok", "warn", "fail", "unknown"};
    return names[verdict];
}

bool result_is_finding(const struct result *r)
{
    return !r->silenced &&
           (r->status == CHECK_WARN || r->status == CHECK_FAIL || r->status == CHECK_ERROR);
}

const char *result_fix_text(const struct result *r, enum fix_place place)
{
    return r->fix[place][0] ? r->fix[place] : r->check->fix[place];
}

const char *result_why_text(const struct result *r)
{
    return r->why[0] ? r->why : r->check->why ? r->check->why : "";
}

struct line {
    char *dst;
    size_t size, len;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->dst + l->len, l->size - l->len, fmt, ap);
    va_end(ap);
    l->len += n < 0 ? 0 : (size_t)n;
    if (l->len >= l->size)
        l->len = l->size - 1;
}

static int count(const struct report *report, enum check_status status)
{
    int n = 0;
    for (size_t i = 0; i < report->n; i++)
        n += report->results[i].status == status && !report->results[i].silenced;
    return n;
}

static void add_ids(struct line *l, const struct report *report, enum check_status status)
{
    int n = 0, all = count(report, status);
    for (size_t i = 0; i < report->n && n < NAMED; i++) {
        const struct result *r = &report->results[i];
        if (r->status == status && !r->silenced)
            add(l, "%s %s", n++ ? "," : ":", r->check->id);
    }
    if (all > NAMED)
        add(l, " and %d more", all - NAMED);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

char *verdict_line(const struct report *report, char *dst, size_t size)
{
    struct line l = {.dst = dst, .size = size};
    int fail = count(report, CHECK_FAIL), warn = count(report, CHECK_WARN),
        error = count(report, CHECK_ERROR), skip = count(report, CHECK_SKIP);
    int looked = fail + warn + count(report, CHECK_PASS) + count(report, CHECK_INFO);
    *dst = '\0';
    switch (report->verdict) {
    case VERDICT_OK:
        add(&l, "OK: %d check%s passed", looked, plural(looked));
        break;
    case VERDICT_UNKNOWN:
        add(&l, "UNKNOWN: nothing could be determined (--verbose says why)");
        break;
    case VERDICT_WARN:
        add(&l, "WARN: %d warning%s", warn, plural(warn));
        add_ids(&l, report, CHECK_WARN);
        break;
    case VERDICT_FAIL:
        if (!fail) { /* --strict */
            add(&l, "FAIL (strict): %d warning%s", warn, plural(warn));
            add_ids(&l, report, CHECK_WARN);
            break;
        }
        add(&l, "FAIL: %d of %d check%s failed", fail, looked, plural(looked));
        add_ids(&l, report, CHECK_FAIL);
        if (warn)
            add(&l, "; %d warning%s", warn, plural(warn));
        break;
    }
    if (error)
        add(&l, "; %d check%s could not run", error, plural(error));
    if (skip)
        add(&l, "; %d skipped", skip);
    return dst;
}

char *verdict_setting(const struct setting *s, char *dst, size_t size)
{
    static const struct {
        unsigned bit;
        const char *name;
    } all[] = {{PROFILE_CPU, "cpu"},
               {PROFILE_GPU, "gpu"},
               {PROFILE_K8S, "k8s"},
               {PROFILE_LAUNCHER, "launcher"}};
    struct line l = {.dst = dst, .size = size};
    *dst = '\0';
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (s->profiles & all[i].bit)
            add(&l, "%s%s", l.len ? " and " : "", all[i].name);
    }
    if (s->ranks > s->local_ranks)
        add(&l, "%s%d of %d ranks here", l.len ? ", " : "", s->local_ranks, s->ranks);
    else
        add(&l, "%s%d rank%s here", l.len ? ", " : "", s->local_ranks, plural(s->local_ranks));
    if (s->gpus >= 0)
        add(&l, ", %d GPU%s", s->gpus, plural(s->gpus));
    add(&l, ", level %d", s->level);
    return dst;
}
