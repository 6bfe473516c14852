/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: which gangs may go now, for the back end that is ours (gates). Pure: all jobs and the
 * cluster in, a verdict for each out.
 *
 * A gang that fits beside all that is used and promised goes at once: promises are counted, so two
 * of them cannot take each other's room. Where that cannot be known, one gang goes at a time, and
 * the next one when it has its nodes or was rolled back: without rights to see nodes, for pods that
 * ask for more than fit.h judges, for gangs that were rolled back before, and for those that fit
 * nowhere but are let go after gang.probeSeconds, since a cluster's autoscaler does not look at
 * pods with gates.
 *
 * First come, first served; who does not fit lets others by, but not for ever: after QUEUE_PATIENCE
 * nobody goes before one who would fit an empty cluster.
 */
#ifndef HVD_OPERATOR_RECONCILE_QUEUE_H
#define HVD_OPERATOR_RECONCILE_QUEUE_H

#include "operator/objects/hvdjob.h"
#include "operator/reconcile/fit.h"

#define QUEUE_PATIENCE (300 * MOMENT_S)

struct admission {
    bool go;
    char why[1024]; /* it waits, or "" */
    int64_t again;  /* moment at which the answer may be another one by itself; INT64_MAX: never */
};

struct queue_job {
    const struct hvdjob *job;
    bool gates;  /* its back end is ours; the others' jobs always go */
    int bound;   /* workers that are alive and have a node */
    int unbound; /* that are alive, without gates, and have none */
    struct admission ret;
};

/* Fills ret of each that is queued or new. cluster: NULL where nodes may not be seen; its used
 * grows by what is promised. The order of jobs does not matter; it changes. */
void queue_decide(struct queue_job *jobs, int n, struct cluster *cluster, int64_t now);

#endif
