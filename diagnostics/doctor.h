/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: chooses checks, asks the probes they need, runs them, counts.
 *
 * The data flow is: setting -> probes -> answers -> checks -> results -> report. Used by the
 * command line, by the agent's preflight and by tests on captured machines. One thread; probes are
 * processes.
 */
#ifndef HVD_DIAGNOSTICS_DOCTOR_H
#define HVD_DIAGNOSTICS_DOCTOR_H

#include "diagnostics/check.h"

struct silence {
    const char *pattern, *reason; /* --silence id=reason */
};

struct choice {
    const char *const *only, *const *skip; /* patterns of registry_matches() */
    size_t nonly, nskip;
    const struct silence *silences;
    size_t nsilences;
    bool strict; /* a warning counts as a failure in the verdict and the exit code */
};

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL, VERDICT_UNKNOWN };

struct report {
    struct result *results; /* [n], in the registry's order; owned */
    size_t n;
    int counts[CHECK_ERROR + 1];
    enum verdict verdict; /* VERDICT_UNKNOWN: no check gave a result */
    uint32_t ms;
    struct setting setting;
    enum fix_place place; /* where the machine is: selects the fix that a person is shown */
};

/* Called for each result as soon as it is known (--jsonl), before anything else uses it. It may
 * change the result's texts. May be NULL. */
typedef void doctor_result_f(void *arg, struct result *r);

/* Runs the chosen checks of m. report is empty before the call, and stays empty on failure. m
 * gets the probes' answers if it is live. Errors: -ENOENT with "did you mean" for a pattern that
 * matches no check; -EBUSY for level 2 or 3 while ranks of another job run here. */
int doctor_run(struct machine *m, const struct setting *s, const struct choice *choice,
               const struct rules *rules, doctor_result_f *cb, void *arg, struct report *report,
               struct err *err);
void report_fini(struct report *report);

/* Returns 0 if the load tests of the level may run, or -EBUSY: level 2 or 3 while ranks of another
 * job run here. The tests would slow that job down, and the job would distort their figures.
 * doctor_run() calls this, too. */
int doctor_may_load(struct machine *m, const struct setting *s, struct err *err);

/* 0 no failure, 1 a failure (strict: or a warning), 3 nothing could be determined. */
int report_exit_code(const struct report *report, const struct choice *choice);

#endif
