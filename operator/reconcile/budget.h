/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: decides on the PodDisruptionBudget of a job. A job that may shrink keeps minWorkers; of
 * any other one worker may be evicted at a time. Pods that are not ready may always be evicted, so
 * a drain never waits for a pod that does not train. Pure.
 */
#ifndef HVD_OPERATOR_RECONCILE_BUDGET_H
#define HVD_OPERATOR_RECONCILE_BUDGET_H

#include "operator/objects/budget.h"
#include "operator/objects/hvdjob.h"

enum budget_step { BUDGET_LEAVE, BUDGET_CREATE, BUDGET_CHANGE };

/* have: the job's existing budget, NULL: none. A budget is created when the job first runs, and the
 * garbage collector deletes it with the job. */
enum budget_step budget_decide(const struct hvdjob *job, const struct budget *have);

/* budget_object: the object to create, named like the job. budget_change: a merge patch of the
 * existing budget. NULL: no memory. */
json_t *budget_object(const struct hvdjob *job);
json_t *budget_change(const struct hvdjob *job, const struct budget *have);

#endif
