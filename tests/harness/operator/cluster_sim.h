/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_sim: API server, scheduler, kubelets, garbage collector, users and an operator in one
 * process, without I/O: the operator calls queue_decide() and reconcile() on what it has seen,
 * which may be old, and applies the actions one by one, killed between any two of them. Everything
 * follows from the seed.
 *
 * What goes against the rules is written to sim.why once, and cluster_sim_run() returns false.
 */
#ifndef HVD_TESTS_HARNESS_CLUSTER_SIM_H
#define HVD_TESTS_HARNESS_CLUSTER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/reconcile/fit.h"
#include "operator/reconcile/reconcile.h"

enum { SIM_JOBS = 3, SIM_PODS = 160, SIM_NODES = 4 };

/* Faults that an operator could have, planted into what it does: the rules must find each. */
enum sim_bug {
    BUG_NONE,
    BUG_STATUS_LAST,    /* the status is written after what follows from it */
    BUG_STATUS_BLIND,   /* and without looking whether it is still the one that was read */
    BUG_COUNT_TWICE,    /* a failure counts two attempts */
    BUG_FORGET_NAMES,   /* which names are used up is not written */
    BUG_ONE_MORE,       /* one worker more than there should be */
    BUG_NO_GATES,       /* workers that should wait are made without gates */
    BUG_LIFT_NOT_ALL,   /* one gate is left in place */
    BUG_KEEP_WORKERS,   /* nothing is deleted when a job is suspended or rolled back */
    BUG_RUN_AGAIN,      /* a job that has succeeded is queued again */
    BUG_BUSY_TIME,      /* a condition's time moves although its status does not */
    BUG_TALK,           /* an event each time */
    BUG_DELETE_BY_NAME, /* a pod is deleted whatever its uid */
    BUG_BLIND_QUEUE,    /* every gang may go at once */
    SIM_BUGS,
};

struct sim_pod {
    bool used, foreign, gated, deleting, disrupted, counted;
    char name[64], uid[24], owner[64];
    int job, worker, attempt, node, exit_code; /* node -1: none */
    enum pod_phase phase;
    int64_t created, gone_at;
};

struct sim_job {
    bool there, finishing;
    int version;            /* of the object: rises with every write */
    int failed, counted;    /* pods whose program failed; that the status ever counted */
    int64_t again;          /* what the operator was told last */
    int64_t status_written; /* when it wrote the status last */
    int64_t over_since;     /* in a final phase, or queued, since */
    struct hvdjob job;
};

/* A request of an operator that was killed, still on its way. */
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
    bool calm;  /* nothing bad happens any more */
    bool blind; /* the operator may not see nodes */
    int serial; /* for uids */
    int idle;   /* turns of the operator in a row that found nothing to do */
    int rollbacks;
    struct resource_kinds kinds;
    struct node nodes[SIM_NODES];
    bool node_up[SIM_NODES];
    struct sim_job jobs[SIM_JOBS];
    struct sim_pod pods[SIM_PODS];
    struct sim_pod seen[SIM_PODS]; /* as the operator knows them */
    struct sim_late late;
    bool fresh; /* it must look again before its next turn */
    char why[1600];
};

/* A whole life from this seed: turmoil, then calm until nothing is left to do. false: sim.why. */
bool cluster_sim_run(struct cluster_sim *s, uint64_t seed, enum sim_bug bug);
const char *cluster_sim_bug_name(enum sim_bug bug);

/* cluster_sim_world.c: everybody but the operator. */
void cluster_sim_world_init(struct cluster_sim *s, uint64_t seed);
void cluster_sim_world_fini(struct cluster_sim *s);
void cluster_sim_world_step(struct cluster_sim *s);
uint32_t cluster_sim_random(struct cluster_sim *s, uint32_t below);
struct sim_pod *cluster_sim_find(struct cluster_sim *s, const char *name);
struct sim_pod *cluster_sim_make_pod(struct cluster_sim *s, const char *name);
bool cluster_sim_alive(const struct sim_pod *p);
/* Used on a node by all that is bound there. */
void cluster_sim_used(const struct cluster_sim *s, struct resources used[SIM_NODES]);
void cluster_sim_wrong(struct cluster_sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
