/* SPDX-License-Identifier: Apache-2.0
 *
 * job_findings: what the doctor found in a job's pods, for its status: one entry for each thing
 * that is wrong, however many pods have it, the worst first, and no more than a status can hold.
 * Pure; one owner.
 */
#ifndef HVD_OPERATOR_OBJECTS_JOB_FINDINGS_H
#define HVD_OPERATOR_OBJECTS_JOB_FINDINGS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

#define JOB_FINDINGS_MAX  5 /* in a status */
#define JOB_FINDINGS_PODS 3 /* that are named */

struct job_finding {
    bool failure; /* else a warning */
    char id[48], code[16], source[16];
    char summary[320], fix[320]; /* of the first of the pods */
    int npods;                   /* that have it */
    char pods[JOB_FINDINGS_PODS][64];
};

struct job_findings {
    int n, cap;
    struct job_finding *list; /* owned; zero-initialized: empty */
    int more;                 /* that are left out */
};

/* one: of one pod, pods[0]; npods is not looked at. -ENOMEM. */
int job_findings_add(struct job_findings *f, const struct job_finding *one);

/* Failures first, then what most pods have; the rest is only counted. */
void job_findings_keep_worst(struct job_findings *f);

/* The worst that keeps ranks from being started: a failure of the preflight. NULL: there is none.
 */
const struct job_finding *job_findings_failure(const struct job_findings *f);

/* -ENOMEM; ret is untouched then. */
int job_findings_copy(const struct job_findings *f, struct job_findings *ret, struct err *err);
void job_findings_fini(struct job_findings *f);

/* The list of a status. What cannot be read is left out; -ENOMEM. */
int job_findings_parse(json_t *list, struct job_findings *ret, struct err *err);
json_t *job_findings_write(const struct job_findings *f);

/* "SUMMARY (id); fix: FIX", cut. */
void job_finding_say(const struct job_finding *f, char *dst, size_t size);

#endif
