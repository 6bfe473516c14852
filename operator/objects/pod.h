/* SPDX-License-Identifier: Apache-2.0
 *
 * pod: what is needed of a Pod that belongs to a job, or that has the name of one that should:
 * under 1 KB. pod_parse() makes one of one JSON object; whoever has it calls pod_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_POD_H
#define HVD_OPERATOR_OBJECTS_POD_H

#include "operator/objects/resources.h"

#define POD_UID_MAX 64

/* Labels of our pods. */
#define POD_LABEL_JOB     "hvd.dev/job"
#define POD_LABEL_WORKER  "hvd.dev/worker"
#define POD_LABEL_ATTEMPT "hvd.dev/attempt"
#define POD_GATE          "hvd.dev/gang"

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED };

struct pod {
    char *name, *job;                          /* job: of the label, "" without it */
    char uid[POD_UID_MAX], owner[POD_UID_MAX]; /* owner: the controller's uid, "": none */
    int worker, attempt;                       /* of the labels, -1: none */
    enum pod_phase phase;
    bool deleting; /* it is to go, or gone from a node that is lost */
    bool gated;    /* by our gate */
    bool ready;
    bool disrupted; /* ended through no fault of its program: evicted, preempted, node lost */
    int64_t created, ended;
    char *node;      /* where it was bound, NULL: not yet */
    char *why;       /* what it waits for, or how it ended, in words; NULL: nothing to say */
    char reason[32]; /* of its end: "OOMKilled", "Error", "Evicted" */
    int exit_code;   /* of its first container that failed */
    struct resources requests;
};

/* Pods that others wrote are in any shape: what does not matter to us is not looked at. -EINVAL: no
 * name or no uid, -ENOMEM; *ret is untouched then. */
int pod_parse(json_t *j, struct resource_kinds *kinds, struct pod *ret, struct err *err);
void pod_fini(struct pod *p);

static inline bool pod_over(const struct pod *p)
{
    return p->phase == POD_SUCCEEDED || p->phase == POD_FAILED;
}

#endif
