/* SPDX-License-Identifier: Apache-2.0
 *
 * pod: a projection of a Pod of a job, or of one that has the name of a worker's pod; under 1 KB.
 * The caller of pod_parse() calls pod_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_POD_H
#define HVD_OPERATOR_OBJECTS_POD_H

#include "core/base/agent_end.h"
#include "operator/objects/hostports.h"
#include "operator/objects/moment.h"
#include "operator/objects/resources.h"

#define POD_UID_MAX 64

/* How long after its deletionTimestamp a pod may still exist before it is stuck: the kubelet ends
 * it, unmounts its volumes and tells the API server. */
#define POD_LEAVES_LATE (30 * MOMENT_S)

#define HVDJOB_KIND "HvdJob"

/* Labels of workers' pods, and the scheduling gate that earlier operators put on them. */
#define POD_LABEL_JOB     "hvd.dev/job"
#define POD_LABEL_WORKER  "hvd.dev/worker"
#define POD_LABEL_ATTEMPT "hvd.dev/attempt"
#define POD_GATE          "hvd.dev/gang"

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED };

/* A container that failed. */
struct pod_exit {
    char container[64];
    int code; /* not 0 */
};

struct pod {
    char *name,
        *job; /* job: its controller's name if that is an HvdJob, else POD_LABEL_JOB, or "" */
    char uid[POD_UID_MAX], owner[POD_UID_MAX]; /* owner: the controller's uid, "": none */
    int worker, attempt;                       /* from a name "JOB-WORKER-ATTEMPT"; else -1 */
    /* The pod belongs to an HvdJob, and a label that follows from the pod's name is missing or was
     * changed. So selectors of budgets, Services and caches do not find this worker, or take it for
     * another. */
    bool strayed;
    enum pod_phase phase;
    bool deleting; /* the pod has a deletionTimestamp */
    /* The deletionTimestamp, which includes the grace period; MOMENT_NONE: it is not deleting. */
    int64_t leaves_by;
    bool gated; /* it has POD_GATE */
    bool ready;
    /* The pod failed through a disruption: eviction, preemption, a lost node, or an operator that
     * was away or has refused the agent. */
    bool disrupted;
    char disruption[40];      /* who disrupts it: the reason of DisruptionTarget, if that is True */
    enum agent_end agent_end; /* why the agent ended, if it said so */
    int64_t created, ended;
    char *node;      /* NULL: not bound yet */
    char *why;       /* why it is pending or how it finished, for people; NULL: no reason given */
    char reason[32]; /* why it failed: "OOMKilled", "Error", "Evicted" */
    int exit_code;   /* exit code of the first container that failed */
    /* Only of a pod that has failed; owned. */
    struct pod_exit *exits;
    int nexits;
    json_t *conditions; /* status.conditions; NULL: none */
    int priority;       /* spec.priority; 0: none */
    /* What it takes from its node. "pods" is 1, or QUANTITY_MAX for a pod that is too large to be
     * judged (see pod_parse()): then its node counts as full. */
    struct resources requests;
    struct hostports ports;
    char *anti; /* its required anti-affinity, for antiaffinity_parse(); NULL: none */
};

/* Parses the Pod j. Ignores invalid fields, because other programs' pods may contain anything. Too
 * large to be judged are pods with more than RESOURCES_OTHERS_MAX kinds of resources, HOSTPORTS_MAX
 * host ports or ANTIAFFINITY_MAX bytes of anti-affinity, and those with invalid amounts: what they
 * request is not stored. -EINVAL: no name or no uid. -ENOMEM. *ret is untouched on failure. */
int pod_parse(json_t *j, struct pod *ret, struct err *err);
void pod_fini(struct pod *p);

/* When a pod that is being deleted is stuck; INT64_MAX: it is not being deleted. */
static inline int64_t pod_stuck_at(const struct pod *p)
{
    return p->deleting ? p->leaves_by + POD_LEAVES_LATE : INT64_MAX;
}

static inline bool pod_finished(const struct pod *p)
{
    return p->phase == POD_SUCCEEDED || p->phase == POD_FAILED;
}

#endif
