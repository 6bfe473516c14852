/* SPDX-License-Identifier: Apache-2.0
 *
 * newpod: builds the pod of a worker from the job's template.
 */
#ifndef HVD_OPERATOR_RECONCILE_NEWPOD_H
#define HVD_OPERATOR_RECONCILE_NEWPOD_H

#include <jansson.h>

#include "operator/objects/pod.h"
#include "operator/reconcile/drain.h"
#include "operator/reconcile/gang.h"

/* Fills in defaults that the template leaves open. Overrides the name, the hvd.dev labels and
 * restartPolicy. The agent and the bundle are added by
 * injection_add(). job must be valid (job->refused is NULL). NULL: no memory. */
json_t *newpod(const struct hvdjob *job, const struct gang_ops *gang, int worker, int attempt);

/* Keeps the pod away from nodes that are drained, also where their taints are tolerated or they
 * have only a label: by a node affinity, for at most NEWPOD_AVOID nodes. drains NULL: none.
 * -ENOMEM. */
#define NEWPOD_AVOID 50
int newpod_avoid(json_t *pod, const struct drains *drains);

/* The ownerReference to the job. NULL: no memory. */
json_t *newpod_owner(const struct hvdjob *job);

#endif
