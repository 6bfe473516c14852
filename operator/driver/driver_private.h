/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_private: struct driver and the functions that only the files of the driver call.
 */
#ifndef HVD_OPERATOR_DRIVER_PRIVATE_H
#define HVD_OPERATOR_DRIVER_PRIVATE_H

#include "core/base/clock.h"
#include "operator/api/informer.h"
#include "operator/driver/apply.h"
#include "operator/driver/daemons.h"
#include "operator/driver/driver.h"
#include "operator/driver/entries.h"
#include "operator/driver/recorder.h"
#include "operator/driver/discovery.h"
#include "operator/driver/usage.h"
#include "operator/metrics/metrics.h"
#include "operator/reconcile/drain.h"

#define GROUP_CACHES 3 /* back ends with a PodGroup */

/* The cache of one back end's PodGroups. It is opened when the first job uses that back end. */
struct group_cache {
    struct driver *d;
    const struct gang_ops *ops; /* NULL: this slot is free */
    char api[64];
    struct informer *informer;
};

/* A pod without a job's label. */
struct other_item {
    struct usage_pod *use;
    struct pod_item *worker; /* a worker's pod that has lost the label; NULL: it is none */
};

#define STATS_VERBS 5
#define STATS_CODES 17

struct driver_stats {
    struct histogram gang_wait, start, reconcile;
    uint64_t reconciles, writes, stale, failures, expectations_expired;
    uint64_t drains_over, drain_moves;
    uint64_t requests[STATS_VERBS][STATS_CODES];
};

/* A namespace: its last admission, and its jobs that wait for a dry run. */
struct driver_tenant {
    int64_t served;      /* when a gang of it was last admitted; MOMENT_NONE: never */
    struct list waiting; /* dry_run.turn: jobs that wait for a dry run */
    struct list turn;    /* in driver.turns while jobs wait */
    int64_t quota_gave;  /* when a quota last changed so that pods may be accepted; MOMENT_NONE */
    uint64_t early_at;   /* clock_ns(): no dry run because of that before */
    bool used;           /* only while records are dropped: the namespace has a job */
};

struct driver {
    struct driver_config config;
    struct loop *loop;
    struct informer *jobs, *pods;
    /* others: pods without a job's label. All four are NULL in one-namespace mode. */
    struct informer *nodes, *others, *daemonsets, *namespaces;
    struct informer *budgets, *quotas;
    struct group_cache groups[GROUP_CACHES];
    struct discovery *discovery;
    struct recorder *recorder;
    struct inflight inflight;
    struct entries entries;
    struct usage usage;
    struct daemons daemons;
    struct drains drains; /* of driver_drains() */
    bool drains_stale;
    bool leading;
    bool queue_dirty;          /* something changed that the queue depends on */
    struct snapshot *snapshot; /* of the run of the queue that is not complete; NULL: none */
    uint64_t queue_ran_at;     /* clock_ns() at which the last run began */
    uint64_t queue_cost;       /* ns that the last run took */
    uint64_t queue_next;       /* clock_ns() at which a decision may change by itself */
    int dry_runs;              /* in flight */
    int starting;              /* jobs in phase Starting, as the cache has them */
    struct store tenants;      /* namespace -> struct driver_tenant */
    size_t tenants_full;       /* the number of records at which unused ones are dropped */
    struct list turns;         /* driver_tenant.turn, in the order in which they get a dry run */
    struct loop_timer tick;
    struct driver_handlers handlers;
    struct injection injection;
    bool injects;
    struct driver_stats stats;
};

/* driver_caches.c */
int driver_caches_open(struct driver *d, struct err *err);
void driver_caches_close(struct driver *d);
/* The cache of PodGroups of the job's back end; opens it the first time. NULL: the back end has no
 * PodGroup, or no memory. */
struct group_cache *driver_groups(struct driver *d, struct entry *e);
/* A pod of a job, or with a job's label, has changed: was NULL: it is new; is NULL: it is gone. */
void driver_note_pod(struct driver *d, const char *key, const struct pod_item *was,
                     struct pod_item *is);
/* The pod of that name in the job's namespace, as the caches have it. NULL: none. */
const struct pod_item *driver_pod(const struct driver *d, const struct entry *e, const char *name);

/* Called after the list of any cache. */
void driver_on_synced(void *arg);

/* driver_nodes.c: the caches of nodes, pods of no job, DaemonSets and namespaces. */
int driver_nodes_open(struct driver *d, struct err *err);
void driver_nodes_close(struct driver *d);

/* driver_handlers.c: call the event handlers. before: the cached job before this change, NULL for a
 * new one. */
void driver_notify_job(struct driver *d, const struct entry *e, const struct job_item *before);
void driver_notify_pod(struct driver *d, const struct entry *e, const struct pod_item *pod,
                       bool gone);
/* Reports all pods of the job as they are cached. */
void driver_notify_pods(struct driver *d, const struct entry *e);
/* Reports a pod as being deleted before it is. So the ranks of pods that are deleted together leave
 * in one epoch, although the API server reports one deletion after the other. */
void driver_notify_leaving(struct driver *d, const struct entry *e, const char *name,
                           const char *uid);

/* driver_key.c: true if the Secret with the job's key exists, or none is needed. False: it is being
 * created, and the job is enqueued again when the API server has answered. */
bool driver_has_key(struct driver *d, struct entry *e);

/* driver_drains.c. driver_note_node: a node has changed; either may be NULL. driver_drains: the
 * nodes that are drained, valid until the next node event. NULL: nodes are not known. */
void driver_note_node(struct driver *d, const struct node *before, const struct node *after);
const struct drains *driver_drains(struct driver *d);
void driver_drains_fini(struct driver *d);
/* Counts a worker that leaves a drained node: its pod is being deleted, is gone or was evicted.
 * before, after: the cached pod; after NULL: it is gone. */
void driver_note_move(struct driver *d, const struct entry *e, const struct pod *before,
                      const struct pod *after);
/* How many workers are on drained nodes now. */
int driver_drained_workers(struct driver *d);

/* driver_budget.c: creates or patches the job's PodDisruptionBudget where it is missing or
 * differs. */
void driver_keep_budget(struct driver *d, struct entry *e);

/* driver_queue.c: a slice of a run of the queue; begins one if something changed. When the run is
 * complete, enqueues each job whose admission has changed. Returns the time of the next call
 * (clock_ns()); ENTRY_NEVER: once something changes. */
uint64_t driver_queue(struct driver *d);
/* Drops a run that is not complete. */
void driver_queue_stop(struct driver *d);
/* Sets entry.gang: the job's gang back end, by the API groups that the cluster serves. Does nothing
 * when it is known already. */
void driver_choose_gang(struct driver *d, struct entry *e);

/* driver_tenants.c: a record of each namespace. driver_tenant: finds or adds it; NULL: no memory.
 * Valid until the next call: one that adds a record may drop others, of namespaces that have no job
 * and in which no gang was admitted for an hour. */
struct driver_tenant *driver_tenant(struct driver *d, const char *namespace);
/* A job of this namespace was admitted at that moment. */
void driver_note_served(struct driver *d, const char *namespace, int64_t at);
/* The last such moment; MOMENT_NONE: none is known. */
int64_t driver_served(const struct driver *d, const char *namespace);
/* A quota of this namespace has changed so that the API server may accept pods that it refused. */
void driver_note_quota(struct driver *d, const char *namespace);
/* May a job to which a quota gave this verdict be asked about before verdict.again? */
bool driver_may_ask(const struct driver *d, const char *namespace, const struct verdict *v);
void driver_tenants_fini(struct driver *d);

/* driver_dry_run.c: the API server's verdict on a worker's pod. NULL: it has not answered; the call
 * is in flight or waits for its turn, or a run of the queue at queue_next asks again. */
const struct verdict *driver_dry_run(struct driver *d, struct entry *e);
/* Asks now about a job that is refused, or after the pause of its namespace. */
void driver_ask_early(struct driver *d, struct entry *e);
/* Drops the verdict and cancels the call. */
void driver_forget_dry_run(struct driver *d, struct entry *e);

/* driver_reconcile.c: reconciles one job and starts to apply the actions. */
void driver_reconcile(struct driver *d, struct entry *e);

/* driver.c: the work queue. driver_wake() runs the next tick at once. */
void driver_wake(struct driver *d);
/* Enqueues a job of which something has changed. The rate limit grows with its number of pods
 * (POD_PACE), and a pause after a failure is kept. */
void driver_enqueue(struct driver *d, struct entry *e);
void driver_enqueue_all(struct driver *d);
/* Begins a run of the queue at that time; at: clock_ns(). An earlier time that is set already
 * stays. */
void driver_queue_at(struct driver *d, uint64_t at);
/* at: clock_ns(). An earlier time that is set already stays. */
void driver_enqueue_at(struct driver *d, struct entry *e, uint64_t at);

/* driver_metrics.c: counts a finished request; for api_observe(). */
void driver_observe(void *arg, const char *method, long status);
/* Measures changes of phase. Called with two statuses from the cache, not with what is written: so
 * a change is counted once, however many attempts the write took. */
void driver_note_change(struct driver *d, const struct hvdjob_status *before,
                        const struct hvdjob_status *after);

static inline int64_t driver_now(void)
{
    return (int64_t)(clock_wall_us() / 1000);
}

#endif
