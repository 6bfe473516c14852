/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: see doctor.h.
 */
#include "diagnostics/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/probe.h"
#include "diagnostics/registry.h"

static bool any(const struct check *c, const char *const *patterns, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (registry_matches(c, patterns[i]))
            return true;
    }
    return false;
}

static int know(const char *pattern, struct err *err)
{
    const struct check *c;
    for (size_t i = 0; (c = registry_at(i)); i++) {
        if (registry_matches(c, pattern))
            return 0;
    }
    return registry_find(pattern, &c, err);
}

static int know_all(const struct choice *choice, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < choice->nonly; i++)
        rc = know(choice->only[i], err);
    for (size_t i = 0; rc == 0 && i < choice->nskip; i++)
        rc = know(choice->skip[i], err);
    for (size_t i = 0; rc == 0 && i < choice->nsilences; i++)
        rc = know(choice->silences[i].pattern, err);
    return rc;
}

static bool chosen(const struct check *c, const struct choice *choice, const struct setting *s)
{
    return c->level <= s->level && (choice->nonly == 0 || any(c, choice->only, choice->nonly)) &&
           !any(c, choice->skip, choice->nskip);
}

/* Fills report with the checks to run, without results. */
static int choose(struct report *report, const struct choice *choice, struct err *err)
{
    const struct check *c;
    report->n = 0;
    report->results = calloc(registry_count() + 1, sizeof(*report->results));
    if (!report->results)
        return err_set(err, ENOMEM, "no memory for %zu checks", registry_count());
    for (size_t i = 0; (c = registry_at(i)); i++) {
        if (chosen(c, choice, &report->setting))
            report->results[report->n++].check = c;
    }
    return 0;
}

static bool applies(const struct check *c, const struct setting *s)
{
    return c->profiles == 0 || (c->profiles & s->profiles);
}

static int ask(struct machine *m, const struct report *report, struct err *err)
{
    size_t n = 0;
    auto_free const char **names = calloc(report->n * CHECK_PROBES + 1, sizeof(*names));
    if (!names)
        return err_set(err, ENOMEM, "no memory for %zu checks", report->n);
    for (size_t i = 0; i < report->n; i++) {
        const struct check *c = report->results[i].check;
        for (int p = 0; p < CHECK_PROBES && c->probes[p] && applies(c, &report->setting); p++) {
            size_t k = 0;
            while (k < n && strcmp(names[k], c->probes[p]) != 0)
                k++;
            if (k == n)
                names[n++] = c->probes[p];
        }
    }
    return probe_ask(m, names, n, &report->setting, err);
}

static void profile_words(unsigned profiles, char *dst, size_t size)
{
    static const struct {
        enum profile bit;
        const char *name;
    } words[] = {{PROFILE_CPU, "cpu"},
                 {PROFILE_GPU, "gpu"},
                 {PROFILE_K8S, "k8s"},
                 {PROFILE_LAUNCHER, "launcher"}};
    size_t at = 0;
    *dst = '\0';
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (profiles & words[i].bit && at < size)
            at += (size_t)snprintf(dst + at, size - at, "%s%s", at ? " or " : "", words[i].name);
    }
}

static void run_check(const struct view *v, struct result *r)
{
    char words[64];
    uint64_t start = clock_ns();
    if (applies(r->check, v->setting)) {
        r->check->run(v, r);
    } else {
        profile_words(r->check->profiles, words, sizeof(words));
        result_skip(r, "only with --profile %s", words);
    }
    if (!r->summary[0])
        result_error(r, "the check returned no result");
    if (r->action == ACTION_NONE && (r->status == CHECK_WARN || r->status == CHECK_FAIL))
        r->action = r->check->action;
    r->us = (uint32_t)((clock_ns() - start) / 1000);
}

static void silence(struct result *r, const struct choice *choice)
{
    for (size_t i = 0; i < choice->nsilences; i++) {
        if (!registry_matches(r->check, choice->silences[i].pattern))
            continue;
        r->silenced = true;
        snprintf(r->silence_reason, sizeof(r->silence_reason), "%s", choice->silences[i].reason);
        check_clean(r->silence_reason);
    }
}

static enum verdict judge(const struct report *report, bool strict)
{
    const int *n = report->counts;
    if (n[CHECK_FAIL] || (strict && n[CHECK_WARN]))
        return VERDICT_FAIL;
    if (n[CHECK_WARN])
        return VERDICT_WARN;
    return n[CHECK_PASS] || n[CHECK_INFO] ? VERDICT_OK : VERDICT_UNKNOWN;
}

int doctor_may_load(struct machine *m, const struct setting *s, struct err *err)
{
    const char *ranks = "ranks", *own = machine_env(m, "HVD_JOB");
    if (s->level < 2 || !m->live)
        return 0;
    int rc = probe_ask(m, &ranks, 1, s, err);
    const struct answer *a = machine_answer(m, ranks);
    for (int i = 0; rc == 0 && i < answer_count(a, "rank"); i++) {
        const char *job = answer_str_at(a, "rank", i, "job", "");
        if (!own || strcmp(own, job) != 0)
            rc = err_set(err, EBUSY,
                         "measuring is refused while ranks run here: process %s is rank %s%s%s. "
                         "It would slow them down, and its figures would be wrong. Repeat it once "
                         "that job has ended (`hvdrun list` shows jobs), or run `hvd-doctor` "
                         "without --level, which only reads",
                         answer_str_at(a, "rank", i, "pid", "?"),
                         answer_str_at(a, "rank", i, "rank", "?"), *job ? " of job " : "", job);
    }
    return rc;
}

int doctor_run(struct machine *m, const struct setting *s, const struct choice *choice,
               const struct rules *rules, doctor_result_f *cb, void *arg, struct report *report,
               struct err *err)
{
    struct view v = {.machine = m, .setting = &report->setting, .rules = rules};
    uint64_t start = clock_ns();
    memset(report, 0, sizeof(*report));
    report->setting = *s;
    report->place = fix_place_of(m);
    int rc = know_all(choice, err);
    if (rc == 0)
        rc = doctor_may_load(m, s, err);
    if (rc == 0)
        rc = choose(report, choice, err);
    if (rc == 0 && m->live)
        rc = ask(m, report, err);
    if (rc < 0) {
        report_fini(report);
        return rc;
    }
    for (size_t i = 0; i < report->n; i++) {
        struct result *r = &report->results[i];
        run_check(&v, r);
        silence(r, choice);
        report->counts[r->status] += !r->silenced;
        if (cb)
            cb(arg, r);
    }
    report->verdict = judge(report, choice->strict);
    report->ms = (uint32_t)((clock_ns() - start) / CLOCK_MS);
    return 0;
}

void report_fini(struct report *report)
{
    free(report->results);
    memset(report, 0, sizeof(*report));
}

int report_exit_code(const struct report *report, const struct choice *choice)
{
    switch (report->verdict) {
    case VERDICT_FAIL:
        return 1;
    case VERDICT_WARN:
        return choice->strict ? 1 : 0;
    case VERDICT_UNKNOWN:
        return 3;
    case VERDICT_OK:
        break;
    }
    return 0;
}
