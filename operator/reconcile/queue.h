/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: admits gangs, for the back end "gates". Pure: takes all jobs and the cluster, returns a
 * decision for each.
 *
 * A gang that fits beside everything used and reserved is admitted at once. Each admission reserves
 * its resources, so two gangs never take the same.
 *
 * Where fitting is unknown, one gang is admitted at a time, and the next once that one has its
 * nodes or was rolled back. This concerns: operators that may not list nodes; pods with constraints
 * that fit.h ignores; gangs that were rolled back before; gangs that fit nowhere but are admitted
 * after gang.probeSeconds, because a cluster autoscaler ignores pods with scheduling gates.
 *
 * Jobs are tried oldest first; smaller ones may overtake (backfill). Once a job that would fit an
 * empty cluster has waited QUEUE_PATIENCE, no younger job is admitted before it.
 */
#ifndef HVD_OPERATOR_RECONCILE_QUEUE_H
#define HVD_OPERATOR_RECONCILE_QUEUE_H

#include "operator/objects/hvdjob.h"
#include "operator/reconcile/fit.h"

#define QUEUE_PATIENCE (300 * MOMENT_S)

struct admission {
    bool go;        /* admitted */
    char why[1024]; /* why it waits, or "" */
    int64_t again;  /* moment at which the decision may change by itself; INT64_MAX: never */
};

struct queue_job {
    const struct hvdjob *job;
    bool gates;  /* back end "gates"; jobs of other back ends are always admitted */
    int bound;   /* workers that are alive and have a node */
    int unbound; /* workers that are alive, have no gate and no node yet */
    struct admission ret;
};

/* Fills in ret of each job that is queued or new. cluster: NULL if nodes may not be listed;
 * reservations are added to cluster->used. Sorts jobs. */
void queue_decide(struct queue_job *jobs, int n, struct cluster *cluster, int64_t now);

#endif
