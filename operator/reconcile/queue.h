/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: admits gangs, for the back end "gates". Pure: takes all jobs and the cluster, returns a
 * decision for each job. ARCHITECTURE of the rules: operator/README.md, "The queue".
 *
 * A gang that fits beside everything used and reserved is admitted at once. Each admission reserves
 * its resources, so two gangs never take the same.
 *
 * Order: the higher priority first. Within a priority the job of the namespace that holds the
 * smallest share of the cluster, then of the one that was served longer ago, then the older job.
 * Smaller jobs may overtake (backfill). The oldest job of a namespace that has waited
 * QUEUE_PATIENCE holds the nodes that it needs: no later job is admitted to those.
 *
 * A gang that does not fit preempts running gangs of a lower priority, if that makes enough room:
 * first workers of elastic gangs beyond minWorkers, then whole gangs.
 *
 * Where fitting is unknown, one gang at a time is admitted on trial (in probe) for each namespace
 * and node pool, and the next once that one has its nodes or was rolled back. This concerns:
 * operators that may not list nodes; pods with constraints that fit.h ignores; gangs that were
 * rolled back before; gangs that fit nowhere but are admitted after gang.probeSeconds, because a
 * cluster autoscaler adds nodes only for pods that exist.
 */
#ifndef HVD_OPERATOR_RECONCILE_QUEUE_H
#define HVD_OPERATOR_RECONCILE_QUEUE_H

#include "operator/objects/demand.h"
#include "operator/objects/hvdjob.h"
#include "operator/objects/quota.h"
#include "operator/reconcile/fit.h"

#define QUEUE_PATIENCE   (300 * MOMENT_S)
#define QUEUE_PROBES_MAX 64 /* limit of queue_policy.probes */

/* What a queued job waits for. */
enum wait {
    WAIT_UNDECIDED,
    WAIT_UNANSWERED, /* the API server does not answer dry runs */
    WAIT_REFUSED,    /* the API server refuses its pods */
    WAIT_QUOTA,
    WAIT_SHARE,
    WAIT_ROLLBACK, /* the pause after a rollback */
    WAIT_ROOM,
    WAIT_PREEMPTING, /* workers of other jobs end for it */
    WAIT_HELD,       /* nodes are held for another job */
    WAIT_PROBE,      /* other gangs are tried first */
    WAITS,
};

/* A CamelCase word for programs: the reason of the condition Admitted. */
const char *wait_name(enum wait wait);

struct admission {
    bool go;        /* admitted */
    bool preempted; /* an admitted job: it must give its resources to the job in by */
    bool ask;       /* a queued job: the API server refused its pods and may accept them now */
    enum wait wait; /* a queued job */
    int workers;    /* it may have at most so many workers; 0: no limit but spec.workers */
    int *taken;     /* [ntaken] numbers of the workers of which it is deprived first; owned */
    int ntaken;
    int64_t claimed; /* hvdjob_status.claimed; MOMENT_NONE: it claims no nodes */
    char by[128];    /* "namespace/name" of the job for which it is preempted, or taken is taken */
    /* A queued job: why it waits. An admitted one: why it has fewer workers than spec.workers; "":
     * it has not. */
    char why[1024];
    int64_t again; /* moment at which the decision may change by itself; INT64_MAX: never */
};

void admission_fini(struct admission *a);
/* Must the job, if it has too many workers, lose this one first? a NULL: no. */
bool admission_takes(const struct admission *a, int worker);

struct queue_job {
    const struct hvdjob *job;
    const struct demand *demand; /* of one worker */
    int priority;
    bool gates;     /* back end "gates"; other back ends wait for quota and policy only */
    bool unserved;  /* the cluster does not serve its back end: it takes no part in the queue */
    int64_t served; /* when a gang of its namespace was last admitted; MOMENT_NONE: never */
    bool pending;   /* its dry run has not been answered: there is no decision yet */
    /* Why the dry run lets the job wait, NULL: it does not. WAIT_QUOTA, with the demand of the
     * template: a quota refused the pod. */
    const char *refused;
    enum wait refused_for;
    int64_t refused_at, refused_again; /* the answer; when the dry run is repeated */
    /* The quotas of the namespace have changed since: the dry run may be repeated now, or asking:
     * is being repeated. */
    bool may_ask, asking;
    /* An earlier run has preempted it for this job, and the cache does not show that yet: its
     * workers are in freeing. NULL: none has. */
    const char *preempted_by;
    int alive;     /* workers that are alive */
    int bound;     /* of these, workers that have a node */
    const int *at; /* [nat] indices in cluster.nodes of bound workers; the last is given up first */
    const int *numbers; /* [nat] numbers of these workers */
    int nat;
    /* Workers that it may have by earlier decisions, though the cache does not show them: those
     * that it was granted, or that are being created. 0: not more than are alive. */
    int granted;
    int64_t claimed; /* hvdjob_status.claimed, or that of the last decision */
    struct admission ret;
};

/* A pod that is stuck in Terminating: its room is not about to be free. */
struct queue_stuck {
    char pod[128]; /* "namespace/name" */
    int node;      /* index in cluster.nodes */
    int64_t leaves_by;
    struct resources requests;
};

/* The administrator's limits. */
struct queue_policy {
    int share;  /* percent of each resource that the gangs of a namespace may hold; 100: all */
    int probes; /* gangs in probe at a time */
    int gang_timeout_max; /* seconds; 0: no limit */
};

struct queue_input {
    struct queue_job *jobs;
    int n;
    struct cluster *cluster;   /* NULL: nodes may not be listed. Reservations are added to used */
    struct resources *freeing; /* [cluster->n] requests of workers being deleted; NULL: none */
    const struct queue_stuck *stuck; /* [nstuck] */
    int nstuck;
    struct resources *foreign; /* [cluster->n] requests of pods of no job; NULL: none */
    struct quota *quotas;      /* [nquotas], sorted by namespace; admissions are added to used */
    int nquotas;
    struct queue_policy policy;
    int64_t now;
};

struct queue;

/* Begins a run; *in is borrowed until queue_end(). -ENOMEM. */
int queue_begin(struct queue **ret, const struct queue_input *in);
/* Takes at most so many steps, each for one job. True: the run is complete, and ret is filled in
 * for all jobs. */
bool queue_step(struct queue *q, int most);
void queue_end(struct queue *q);

/* A whole run. -ENOMEM. */
int queue_decide(const struct queue_input *in);

#endif
