/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile: a job, its pods and the clock in, actions out. Pure: no I/O, and no memory but the
 * job's own status, so that it does not matter how often it is asked, or whether the one who asks
 * was killed in between. The driver calls it whenever something of the job has changed, and at
 * actions.again.
 */
#ifndef HVD_OPERATOR_RECONCILE_RECONCILE_H
#define HVD_OPERATOR_RECONCILE_RECONCILE_H

#include "operator/objects/job_facts.h"
#include "operator/reconcile/actions.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/queue.h"

/* Counts and messages alone, which are for people, are written once in so long. */
#define RECONCILE_TELL_EVERY INT64_C(2000) /* ms */

struct reconcile_input {
    const struct hvdjob *job;
    const struct pod *const *pods; /* with its label, and any found under a name of its pods */
    int npods;
    const struct admission *admission; /* of the queue; looked at while it is queued */
    const struct gang_ops *gang;       /* NULL: what it asks for is not served */
    const char *gang_missing;          /* why it is NULL */
    bool has_group;                    /* its PodGroup is there */
    const char *group_waits;           /* what gang_waits() says */
    const char *refused;               /* what the API server said to a new pod, NULL: nothing */
    const char *budget_problem;        /* and to its PodDisruptionBudget */
    const struct job_facts *facts;     /* of its agents, NULL: nobody knows */
    int64_t told; /* when its status was written last, as far as is known; MOMENT_NONE */
    int64_t now;  /* milliseconds since 1970 */
};

/* -ENOMEM; ret is to be given to actions_fini() in any case. */
int reconcile(const struct reconcile_input *in, struct actions *ret, struct err *err);

#endif
