/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot: all jobs, nodes and quotas, as the caches had them when a run of the queue began. A run
 * takes several turns of the loop, and the caches change meanwhile: the snapshot holds references.
 */
#ifndef HVD_OPERATOR_DRIVER_SNAPSHOT_H
#define HVD_OPERATOR_DRIVER_SNAPSHOT_H

#include "operator/driver/items.h"
#include "operator/reconcile/queue.h"

struct driver;
struct verdict;

/* A job in the snapshot, parallel to snapshot.jobs. */
struct snapshot_job {
    struct job_item *item;     /* one reference */
    struct hvdjob *admitted;   /* a shallow copy whose phase is Starting; NULL: none */
    struct verdict *verdict;   /* one reference; NULL: none */
    struct demand demand;      /* borrowed from the verdict, the job, or requests */
    struct resources requests; /* of a worker that exists, where there is no verdict */
    int *at, *numbers;         /* queue_job.at, queue_job.numbers */
    char preempted_by[128];    /* queue_job.preempted_by */
};

struct snapshot {
    struct queue_job *jobs; /* [n] */
    struct snapshot_job *of;
    int n;
    bool wants_ports; /* a job has host ports */
    struct cluster cluster;
    struct node *nodes;       /* shallow copies of items */
    struct node_item **items; /* [nnodes], one reference each */
    struct usage_antis antis;
    struct fit_namespace *namespaces;    /* cluster.namespaces; copies of the labels */
    struct resources *freeing, *foreign; /* queue_input */
    struct queue_stuck *stuck;           /* queue_input */
    int nstuck, stuck_cap;
    int64_t stuck_again; /* when the next pod is stuck, or is about to end; INT64_MAX: none is being
                            deleted */
    struct quota *quotas;
    int nquotas;
    struct queue_input in;
    struct queue *queue;
    int64_t now;
    uint64_t began, spent; /* clock_ns(); ns of the turns so far */
};

/* -ENOMEM. */
int snapshot_take(struct driver *d, struct snapshot **ret);
void snapshot_drop(struct snapshot *s); /* NULL is fine */

#endif
