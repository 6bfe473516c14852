/* SPDX-License-Identifier: Apache-2.0
 *
 * job_facts: what a job's agents have told the coordinator, as far as its status wants it. Filled
 * by whoever has the coordinator, read by reconcile().
 */
#ifndef HVD_OPERATOR_OBJECTS_JOB_FACTS_H
#define HVD_OPERATOR_OBJECTS_JOB_FACTS_H

#include "operator/objects/job_findings.h"

struct job_facts {
    bool known; /* agents have come, and have told what they know; else nothing below says anything
                 */
    int epoch;  /* of its roster, 0: none yet */
    char waiting_for[512]; /* the roster's words; "": for nothing */
    struct {
        bool known;
        int rank, worker; /* rank -1: it was in no world */
        char text[320];
    } first;                      /* rank that failed */
    struct job_findings findings; /* the worst; owned */
};

static inline void job_facts_fini(struct job_facts *f)
{
    job_findings_fini(&f->findings);
}

#endif
