/* SPDX-License-Identifier: Apache-2.0
 *
 * actions: the result of reconcile(): a list of writes for one job. The driver executes them in
 * order and stops at the first that fails; then the job is reconciled again. Each action is safe to
 * repeat: a create by its name, a delete by its uid, a status write by the job's resourceVersion.
 */
#ifndef HVD_OPERATOR_RECONCILE_ACTIONS_H
#define HVD_OPERATOR_RECONCILE_ACTIONS_H

#include "operator/objects/hvdjob.h"
#include "operator/objects/pod.h"

enum action_kind {
    ACTION_WRITE_STATUS, /* actions.status, unless the job's resourceVersion has changed */
    ACTION_RECORD_EVENT, /* an Event about the job: events[event] */
    ACTION_CREATE_GROUP, /* the gang's PodGroup */
    ACTION_CREATE_POD,   /* the pod of worker and attempt */
    ACTION_DELETE_POD,   /* pod, unless another pod has its name by now (another uid) */
    ACTION_DELETE_JOB,   /* the job, unless another job has its name by now (another uid) */
};

enum action_event_kind {
    ACTION_EVENT_PHASE,   /* the job entered another phase */
    ACTION_EVENT_REFUSED, /* the doctor refused a pod */
    ACTION_EVENT_AGENT,   /* an agent ended by itself, and said why */
    ACTION_EVENT_RULE,    /* a rule of runPolicy.failurePolicy matched */
    ACTION_EVENT_LOSS,    /* an event in which workers were lost */
    ACTION_EVENT_SPEC,    /* the spec is invalid, or its change is not applied */
    ACTION_EVENT_DRAIN,   /* a node with workers is drained, or workers leave it */
    ACTION_EVENT_TAKEN,   /* workers are given up to another job */
    ACTION_EVENTS,
};

struct action {
    enum action_kind kind;
    const struct pod *pod; /* borrowed from reconcile_input.pods */
    int worker, attempt;
    enum action_event_kind event;
    const char *why; /* for logs; a string constant */
};

struct action_event {
    bool warning;
    char reason[64], text[1024]; /* reason "": no such event */
};

struct actions {
    int n, cap;
    struct action *all;
    struct hvdjob_status status; /* the desired status */
    struct action_event events[ACTION_EVENTS];
    bool texts_wait; /* counts, messages or reasons have changed, and are written later */
    int64_t again;   /* moment of the next reconciliation without an event; INT64_MAX: none */
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
