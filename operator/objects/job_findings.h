/* SPDX-License-Identifier: Apache-2.0
 *
 * job_findings: the doctor's findings in a job's pods, for the job's status. One entry per problem,
 * with the number of pods that have it; the worst first, at most JOB_FINDINGS_MAX. Pure; one owner.
 */
#ifndef HVD_OPERATOR_OBJECTS_JOB_FINDINGS_H
#define HVD_OPERATOR_OBJECTS_JOB_FINDINGS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

#define JOB_FINDINGS_MAX  5 /* findings in a status */
#define JOB_FINDINGS_PODS 3 /* pods that a finding names */

struct job_finding {
    bool failure; /* else a warning */
    char id[48], code[16], source[16];
    char summary[320], fix[320]; /* as the first of the pods reported it */
    int npods;                   /* number of pods that have this problem */
    char pods[JOB_FINDINGS_PODS][64];
};

struct job_findings {
    int n, cap;
    struct job_finding *list; /* owned; zero-initialized: empty */
    int more;                 /* number of entries that were left out */
};

/* Adds a finding of the pod one->pods[0]; one->npods is ignored. -ENOMEM. */
int job_findings_add(struct job_findings *f, const struct job_finding *one);

/* Sorts by failures first, then by the number of pods; drops all beyond JOB_FINDINGS_MAX and counts
 * them in more. */
void job_findings_keep_worst(struct job_findings *f);

/* The worst failure of the preflight: with the policy "fail" it prevents the start of ranks. NULL:
 * none. */
const struct job_finding *job_findings_failure(const struct job_findings *f);

/* -ENOMEM; ret is untouched then. */
int job_findings_copy(const struct job_findings *f, struct job_findings *ret, struct err *err);
void job_findings_fini(struct job_findings *f);

/* Parses the list of findings in a job's status. Invalid entries are ignored. -ENOMEM. */
int job_findings_parse(json_t *list, struct job_findings *ret, struct err *err);
json_t *job_findings_write(const struct job_findings *f);

/* Writes "SUMMARY (id); fix: FIX", at most size bytes. */
void job_finding_say(const struct job_finding *f, char *dst, size_t size);

#endif
