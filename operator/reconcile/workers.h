/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: classifies the pods of one job: current workers, superseded ones, and pods of somebody
 * else that have the name of a worker's pod. Pure; pods are borrowed.
 *
 * A pod is *superseded* when the status has a higher attempt for its worker: its end has been
 * counted. A pod whose labels were changed has *strayed*: it is deleted and its worker replaced.
 * Any other pod is *alive* until it finishes or is deleted.
 */
#ifndef HVD_OPERATOR_RECONCILE_WORKERS_H
#define HVD_OPERATOR_RECONCILE_WORKERS_H

#include "operator/objects/hvdjob.h"
#include "operator/objects/pod.h"

/* Why such a pod is replaced, for people. */
#define WORKERS_STRAYED                                                                            \
    "somebody has changed or removed its label " POD_LABEL_JOB ", " POD_LABEL_WORKER               \
    " or " POD_LABEL_ATTEMPT

struct workers {
    const struct pod **mine; /* the job's pods, sorted by worker and attempt */
    int n;
    int alive, bound, running, ready; /* numbers of pods that are alive */
    int leaving;                      /* pods that are being deleted */
    int ended;                        /* pods that succeeded and are not superseded */
    int attempt_seen;                 /* the highest attempt among mine, -1: no pods */
    bool foreign;                     /* another owner's pod has a name of the form of theirs */
};

/* pods: as in reconcile_input. Call it again when the status has changed. -ENOMEM. */
int workers_init(struct workers *w, const struct hvdjob *job, const struct hvdjob_status *status,
                 const struct pod *const *pods, int npods, struct err *err);
void workers_fini(struct workers *w);

bool worker_superseded(const struct hvdjob_status *status, const struct pod *p);
/* Its labels were changed, so that it is its job's worker no more, and it has not finished. */
bool worker_strayed(const struct pod *p);
bool worker_alive(const struct hvdjob_status *status, const struct pod *p);

/* The first pod that is alive, pending, and says why; NULL: none. */
const struct pod *workers_stuck(const struct workers *w, const struct hvdjob_status *status);
/* The first pod that is alive and pending; NULL: none. */
const struct pod *workers_pending(const struct workers *w, const struct hvdjob_status *status);
/* The first pod with a node that should have ended and is stuck in Terminating; NULL: none.
 * ret_again: the earliest moment at which a further pod is stuck, if that is before *ret_again. */
const struct pod *workers_terminating(const struct workers *w, int64_t now, int64_t *ret_again);
/* Says that such a pod keeps its room, and what to do. */
void workers_say_terminating(const char *pod, const char *node, int64_t leaves_by, char *dst,
                             size_t size);

#endif
