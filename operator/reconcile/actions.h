/* SPDX-License-Identifier: Apache-2.0
 *
 * actions: what is to be done for one job, in this order; the driver stops at the first that fails
 * and asks again. Each may be done twice: names decide who is created, uids who is deleted, the
 * job's resourceVersion whether its status is written.
 */
#ifndef HVD_OPERATOR_RECONCILE_ACTIONS_H
#define HVD_OPERATOR_RECONCILE_ACTIONS_H

#include "operator/objects/hvdjob.h"
#include "operator/objects/pod.h"

enum action_kind {
    ACTION_WRITE_STATUS, /* actions.status, if the job is still at its resourceVersion */
    ACTION_SAY,          /* an Event on the job: says[say] */
    ACTION_CREATE_GROUP, /* the gang's PodGroup */
    ACTION_CREATE_POD,   /* worker, attempt, gated */
    ACTION_LIFT_GATE,    /* pod */
    ACTION_DELETE_POD,   /* pod, if it still has that uid */
    ACTION_DELETE_JOB,   /* if it still has that uid */
};

enum action_say {
    SAY_PHASE,   /* it came into another phase */
    SAY_REFUSED, /* the doctor has refused a pod */
    ACTION_SAYS,
};

struct action {
    enum action_kind kind;
    const struct pod *pod; /* borrowed from what reconcile() was given */
    int worker, attempt;
    bool gated;
    enum action_say say;
    const char *why; /* for logs; of the program */
};

struct saying {
    bool warning;
    char reason[64], text[1024]; /* reason "": there is nothing to say */
};

struct actions {
    int n, cap;
    struct action *all;
    struct hvdjob_status status; /* as it is to be */
    struct saying says[ACTION_SAYS];
    int64_t again; /* moment at which to ask again though nothing has happened; INT64_MAX: never */
};

int actions_add(struct actions *a, struct action action, struct err *err);
void actions_fini(struct actions *a);
const char *action_name(enum action_kind kind);

static inline void actions_again(struct actions *a, int64_t at)
{
    if (at < a->again)
        a->again = at;
}

#endif
