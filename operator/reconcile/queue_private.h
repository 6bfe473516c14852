/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_private: shared by queue.c (order), queue_admit.c (one job), queue_share.c,
 * queue_room.c (reservations) and queue_preempt.c.
 */
#ifndef HVD_OPERATOR_RECONCILE_QUEUE_PRIVATE_H
#define HVD_OPERATOR_RECONCILE_QUEUE_PRIVATE_H

#include "operator/reconcile/queue.h"

/* A namespace. */
struct tenant {
    const char *namespace;
    struct resources holds; /* requests of its gangs: admitted ones and those with workers */
    /* Requests of further workers that exist or may be created, such as those of elastic gangs
     * beyond minWorkers: they count for the share until they are deleted. */
    struct resources loose;
    double share;         /* the largest part of a resource of the cluster that it holds */
    int64_t served;       /* when a gang of it was last admitted */
    struct quota *quotas; /* [nquotas] */
    int nquotas;
    /* Of its jobs that may be asked about anew, the one that was asked about longest ago. asking:
     * one is being asked about. */
    struct queue_job *ask;
    bool asking;
};

/* The waiting jobs of one priority and tenant, oldest first. Those that claim nodes are in a line
 * of their own. */
struct line {
    int priority;
    bool claims;
    struct tenant *tenant;
    struct queue_job **jobs; /* [n], points into queue.order */
    int n, next;
    bool headed; /* its oldest job has had its turn before the others of this priority */
};

/* A gang in probe. */
struct probe {
    const struct hvdjob *job;
    uint64_t pool; /* hash of the nodeSelector */
};

struct queue {
    const struct queue_input *in;
    struct queue_job **order; /* [nwaiting] */
    int nwaiting;
    struct tenant *tenants; /* [ntenants], sorted by namespace */
    int ntenants;
    int prepared, grown; /* jobs of in: reserved for if admitted; had their turn to grow */
    struct line *lines;  /* [nlines], the highest priority first */
    int nlines;
    /* The lines that are decided on now: of one priority, those of jobs that claim nodes first, so
     * that no other job of this priority takes these nodes. */
    int level, level_end;
    bool heads_done;        /* of these lines */
    struct resources total; /* allocatable of all nodes */
    struct probe probes[QUEUE_PROBES_MAX];
    int nprobes;
    /* What is used once workers that are being deleted, or are to be preempted, are gone;
     * reservations included. */
    struct cluster later;        /* without host ports */
    bool frees;                  /* `later` has more room than what is used now leaves */
    int *counts;                 /* [nodes] for fit_plan() */
    struct resources *held;      /* [nodes] for jobs that have waited QUEUE_PATIENCE */
    const struct hvdjob *holder; /* the last of these jobs; NULL: none */
    /* The nodes on which others are or were preempted for gangs that are not placed yet; used:
     * without reservations for these gangs. The scheduler does not know these reservations. */
    struct cluster claimed;
    struct node *claimed_nodes;   /* [claimed.n] copies; what they point to is borrowed */
    const struct hvdjob *claimer; /* the last of these gangs */
    /* The highest priority of a job that waits or is being placed: elastic jobs up to this priority
     * grow only into free room. */
    bool crowded;
    int crowd;
    int lowest; /* priority of a gang that runs */
};

static inline int64_t queue_waits_since(const struct hvdjob *job)
{
    return job->status.queued != MOMENT_NONE ? job->status.queued : job->created;
}

struct tenant *queue_tenant(const struct queue *q, const struct hvdjob *job);
void queue_crowd(struct queue *q, int priority);

/* Appends to ret.why. */
void queue_say(struct queue_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* queue_admit.c: decides on one waiting job. head: it is its tenant's oldest of this priority, and
 * has waited QUEUE_PATIENCE. */
void queue_admit(struct queue *q, struct queue_job *j, bool head);
/* Takes the quotas' room for pods of an admitted gang that do not exist yet. */
void queue_take_missing(struct queue *q, const struct queue_job *j);
/* How many workers an admitted job may have. */
void queue_grow(struct queue *q, struct queue_job *j);
/* Fills in ret.again: the decision may change by itself at that time. */
void queue_again(struct queue_job *j, int64_t at);

/* queue_share.c: what the gangs of a namespace hold. */

/* The resource of which a tenant may not hold as much as a job asks for. */
struct queue_limit {
    size_t kind;                       /* of the job's requests */
    resources_sum each, held, allowed; /* each: of one worker */
};

/* How many further workers of j the tenant's share allows, at most limit, beside what the tenant
 * holds and, if loose, its loose workers. ret: the resource that limits them, untouched if none
 * does; NULL: not needed. */
int queue_share_allows(const struct queue *q, const struct queue_job *j, int limit, bool loose,
                       struct queue_limit *ret);
/* Appends to why that these n workers of j would exceed the share. whole: they are its gang. */
void queue_say_share(const struct queue *q, struct queue_job *j, struct queue_limit limit, int n,
                     bool whole);
/* Adds n workers of j to what its tenant holds. */
void queue_hold_share(struct queue *q, const struct queue_job *j, int n);
/* Adds n workers of j to its tenant's loose ones. */
void queue_loosen(struct queue *q, const struct queue_job *j, int n);

/* queue_room.c: reservations. */
int queue_room_init(struct queue *q);
void queue_room_fini(struct queue *q);
/* Is fit.h's result reliable for this job? */
bool queue_certain(const struct queue *q, const struct queue_job *j);
/* minWorkers, for an admitted job as far as it was granted. */
int queue_min(const struct queue_job *j);
/* Workers without a node for which room is reserved before the waiting jobs have their turn: those
 * that the scheduler may place at any time, and the missing ones of an admitted gang, also before
 * their pods exist. Of an elastic job only up to minWorkers: queue_grow() decides on the others. */
int queue_pending(const struct queue_job *j);
/* Workers that its tenant holds for j: those with a node, the pending ones, and minWorkers at least
 * once it is admitted. */
int queue_held(const struct queue_job *j);
/* Does the job create no workers: its spec is invalid, or its template was changed while workers
 * exist? */
bool queue_is_frozen(const struct queue_job *j);
/* Further workers of j that count as loose. */
int queue_loose(const struct queue_job *j);
bool queue_is_admitted(const struct hvdjob *job);
bool queue_is_waiting(const struct hvdjob *job);
void queue_reserve_admitted(struct queue *q, struct queue_job *j);
/* Adds n workers of j to what its tenant holds, and reserves for them unless another scheduler
 * does. */
void queue_reserve(struct queue *q, struct queue_job *j, int n);
/* Would j fit if no job had workers? Pods of no job, such as those of DaemonSets, stay. */
bool queue_possible(const struct queue *q, const struct queue_job *j);
/* Reserves the room for j's minWorkers, or for as many of them as fit, that is in `later`, which
 * others still use. */
void queue_reserve_later(struct queue *q, const struct queue_job *j);
/* Since when j claims the nodes that are made free for it; MOMENT_NONE: it does not. */
int64_t queue_claim_of(const struct queue *q, const struct queue_job *j);
/* The job for which j was preempted a while ago, if that one still waits since then; NULL: none. */
struct queue_job *queue_preemptor(const struct queue *q, const struct queue_job *j);
/* Could the scheduler place a worker of j on a claimed node? */
bool queue_is_claimed(const struct queue *q, const struct queue_job *j);
/* Reserves the nodes that j needs once they are free. */
void queue_hold(struct queue *q, const struct queue_job *j);
/* Appends to why which stuck pod keeps j from a node; see queue_stuck. */
void queue_say_stuck(const struct queue *q, struct queue_job *j);
/* A copy of what is used on each node. NULL: no memory. queue_used_free() frees it. */
struct resources *queue_used_copy(const struct cluster *c, const struct resources *used);
void queue_used_free(struct resources *used, int n);
void queue_note_probe(struct queue *q, const struct queue_job *j);
/* The gang in probe that j has to wait for; NULL: none. full: as many are in probe as may be, in
 * all or, which is half of that, of j's namespace. */
const struct hvdjob *queue_probe_of(const struct queue *q, const struct queue_job *j, bool *full);

/* queue_preempt.c: makes room for j by preemption. True: j waits for workers to end, and why and
 * reservations are made. */
bool queue_preempt(struct queue *q, struct queue_job *j);

#endif
