/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: the pods of one job, told apart: which are workers now, which were, which are somebody
 * else's with a name of ours. Pure; pods are borrowed.
 *
 * A pod is *past* when its attempt is less than the status has for its worker: what was to be noted
 * of it is noted. One that is not past is *alive* until it ends or is deleted.
 */
#ifndef HVD_OPERATOR_RECONCILE_WORKERS_H
#define HVD_OPERATOR_RECONCILE_WORKERS_H

#include "operator/objects/hvdjob.h"
#include "operator/objects/pod.h"

struct workers {
    const struct pod **mine; /* by worker and attempt */
    int n;
    int alive, gated, bound, running, ready; /* among the alive */
    int leaving;                             /* pods that are being deleted */
    int ended;                               /* that are not past and ended well by themselves */
    int attempt_seen;                        /* the highest among mine, -1: there are none */
    const struct pod *foreign;               /* one that has a name of ours, NULL: none */
};

/* pods: those with the job's label, and any that were found under a name of ours. -ENOMEM. Call it
 * again when the status has changed. */
int workers_init(struct workers *w, const struct hvdjob *job, const struct hvdjob_status *status,
                 const struct pod *const *pods, int npods, struct err *err);
void workers_fini(struct workers *w);

bool worker_past(const struct hvdjob_status *status, const struct pod *p);
bool worker_alive(const struct hvdjob_status *status, const struct pod *p);

/* The first alive pod of so many workers that does not run, and says why; NULL: none. */
const struct pod *workers_stuck(const struct workers *w, const struct hvdjob_status *status);

#endif
