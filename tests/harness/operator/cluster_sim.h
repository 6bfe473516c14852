/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_sim: API server, scheduler, kubelets, garbage collector, users and an operator in one
 * process, without I/O. The operator calls queue_decide() and reconcile() on its caches, which may
 * be stale, and applies the actions one by one; it may be killed between any two. The seed
 * determines everything.
 *
 * The first violated rule is written to sim.why, and cluster_sim_run() returns false.
 */
#ifndef HVD_TESTS_HARNESS_CLUSTER_SIM_H
#define HVD_TESTS_HARNESS_CLUSTER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/reconcile/fit.h"
#include "operator/reconcile/reconcile.h"

enum { SIM_JOBS = 3, SIM_PODS = 160, SIM_NODES = 4 };

/* Bugs that are planted into the operator: the rules must find each. */
enum sim_bug {
    BUG_NONE,
    BUG_STATUS_LAST, /* the status is written after the actions that depend on it */
    /* As BUG_STATUS_LAST, and the status is written without a resourceVersion. */
    BUG_STATUS_BLIND,
    BUG_COUNT_TWICE,    /* a failure is counted twice */
    BUG_FORGET_NAMES,   /* attempts are not written to the status */
    BUG_ONE_MORE,       /* one worker too many */
    BUG_TOO_EARLY,      /* a worker of a waiting gang is created */
    BUG_KEEP_WORKERS,   /* nothing is deleted when a job is suspended or rolled back */
    BUG_RUN_AGAIN,      /* a job that has succeeded is queued again */
    BUG_BUSY_TIME,      /* lastTransitionTime changes without the status */
    BUG_TALK,           /* an Event at each reconciliation */
    BUG_DELETE_BY_NAME, /* pods are deleted without checking the uid */
    BUG_BLIND_QUEUE,    /* every gang is admitted at once */
    SIM_BUGS,
};

struct sim_pod {
    bool used, foreign, deleting, disrupted, counted;
    char name[64], uid[24], owner[64];
    int job, worker, attempt, node, exit_code; /* node -1: none */
    enum pod_phase phase;
    int64_t created, gone_at;
};

struct sim_job {
    bool there, finishing;
    int version; /* resourceVersion: rises with each write */
    int failed,
        counted;   /* pods whose program failed; failures that the status has counted so far */
    int64_t again; /* actions.again of the last reconciliation */
    int64_t status_written; /* when the operator last wrote the status */
    struct hvdjob job;
};

/* A request of a killed operator that is still in the network. */
struct sim_late {
    bool used;
    int job, version;
    enum action_kind kind;
    struct hvdjob_status status;
    char name[64], uid[24];
};

struct cluster_sim {
    uint64_t random;
    enum sim_bug bug;
    int64_t now;
    int64_t calm_since;
    bool calm;  /* no faults any more */
    bool blind; /* the operator may not list nodes */
    int serial; /* for uids */
    int idle;   /* consecutive reconciliations without actions */
    int rollbacks;
    struct node nodes[SIM_NODES];
    bool node_up[SIM_NODES];
    struct drain_node signals[SIM_NODES]; /* of each node, SIGNAL_NONE: none */
    struct sim_job jobs[SIM_JOBS];
    struct sim_pod pods[SIM_PODS];
    struct sim_pod seen[SIM_PODS]; /* the operator's cache */
    struct sim_late late;
    bool fresh; /* the cache must be refreshed before the next turn */
    char why[1600];
};

/* Runs one life from this seed: with faults, then without until nothing is left to do. False: a
 * rule was violated, see sim.why. */
bool cluster_sim_run(struct cluster_sim *s, uint64_t seed, enum sim_bug bug);
const char *cluster_sim_bug_name(enum sim_bug bug);

/* cluster_sim_world.c: everything but the operator. */
void cluster_sim_world_init(struct cluster_sim *s, uint64_t seed);
void cluster_sim_world_fini(struct cluster_sim *s);
void cluster_sim_world_step(struct cluster_sim *s);
uint32_t cluster_sim_random(struct cluster_sim *s, uint32_t below);
struct sim_pod *cluster_sim_find(struct cluster_sim *s, const char *name);
struct sim_pod *cluster_sim_make_pod(struct cluster_sim *s, const char *name);
bool cluster_sim_alive(const struct sim_pod *p);
/* Sum of the requests of the pods bound to a node. */
void cluster_sim_used(const struct cluster_sim *s, struct resources used[SIM_NODES]);
void cluster_sim_wrong(struct cluster_sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
