/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile: takes a job, its pods and the time, returns actions. Pure: no I/O, and no state but
 * the job's status. So it may be called any number of times, and by a new operator after the last
 * one was killed between two actions. The driver calls it when something of the job has changed,
 * and at actions.again.
 */
#ifndef HVD_OPERATOR_RECONCILE_RECONCILE_H
#define HVD_OPERATOR_RECONCILE_RECONCILE_H

#include "operator/objects/job_facts.h"
#include "operator/reconcile/actions.h"
#include "operator/reconcile/drain.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/queue.h"

/* Of status writes that change only counts, messages and reasons, in ms: the least time between two
 * of a job; what each job that is Starting adds to it, so that up to 200 of them together write 20
 * a second; its maximum; and the time from such a change to its write, in which others join it, or
 * a phase that is written at once. */
#define RECONCILE_STATUS_EVERY INT64_C(2000)
#define RECONCILE_STATUS_EACH  INT64_C(50)
#define RECONCILE_STATUS_MOST  INT64_C(10000)
#define RECONCILE_STATUS_JOIN  INT64_C(1000)

struct reconcile_input {
    const struct hvdjob *job;
    const struct pod *const *pods; /* with the job's label, or with the name of a worker's pod */
    int npods;
    const struct admission *admission; /* the queue's decision; NULL: none yet */
    int gang_timeout_max; /* seconds, the administrator's limit of gang.timeoutSeconds; 0: none */
    const struct gang_ops *gang;   /* NULL: the cluster does not serve the back end */
    const char *gang_missing;      /* why gang is NULL */
    bool has_group;                /* the PodGroup exists */
    const char *group_pending;     /* from gang_pending() */
    const char *refused;           /* refusal of a pod, Secret or PodGroup; NULL: none */
    bool group_taken;              /* refused: another job's PodGroup has the name */
    const char *budget_problem;    /* refusal of the PodDisruptionBudget; NULL: none */
    const struct drains *drains;   /* nodes that are drained; NULL: nodes are not known */
    const struct job_facts *facts; /* reported by agents; NULL, in tests: not known */
    int64_t status_every;          /* from RECONCILE_STATUS_EVERY to RECONCILE_STATUS_MOST */
    int64_t status_written;        /* this operator's last status write; MOMENT_NONE: never */
    int64_t texts_since; /* actions.texts_wait is true since then; MOMENT_NONE: it was false */
    int64_t now;         /* milliseconds since 1970 */
};

/* -ENOMEM. The caller calls actions_fini() on ret in any case. */
int reconcile(const struct reconcile_input *in, struct actions *ret, struct err *err);

#endif
