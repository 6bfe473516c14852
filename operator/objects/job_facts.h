/* SPDX-License-Identifier: Apache-2.0
 *
 * job_facts: what a job's agents have reported to the coordinator, for the job's status. Filled in
 * by coordination.c, read by reconcile().
 */
#ifndef HVD_OPERATOR_OBJECTS_JOB_FACTS_H
#define HVD_OPERATOR_OBJECTS_JOB_FACTS_H

#include "operator/objects/job_findings.h"

struct job_facts {
    bool known; /* agents have joined and the roster is complete; else the other fields are not set
                 */
    int epoch;  /* epoch of the roster, 0: none yet */
    char waiting_for[512]; /* what the roster waits for, for people; "": nothing */
    struct {
        bool known;
        int rank, worker; /* rank -1: it was in no epoch */
        char text[320];
    } first;                      /* the first rank that failed */
    struct job_findings findings; /* the worst; owned */
};

static inline void job_facts_fini(struct job_facts *f)
{
    job_findings_fini(&f->findings);
}

#endif
