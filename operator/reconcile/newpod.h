/* SPDX-License-Identifier: Apache-2.0
 *
 * newpod: the pod of a worker, made of the job's template.
 */
#ifndef HVD_OPERATOR_RECONCILE_NEWPOD_H
#define HVD_OPERATOR_RECONCILE_NEWPOD_H

#include <jansson.h>

#include "operator/objects/pod.h"
#include "operator/reconcile/gang.h"

/* What the template does not say is filled in; what it says stays, but for the name, our labels,
 * restartPolicy and, where gated, one scheduling gate more. What it takes for an image that has
 * nothing of ours equipment_add() adds. The job is not refused. NULL: no memory. */
json_t *newpod(const struct hvdjob *job, const struct gang_ops *gang, int worker, int attempt,
               bool gated);

/* The reference by which an object belongs to the job. NULL: no memory. */
json_t *newpod_owner(const struct hvdjob *job);

#endif
