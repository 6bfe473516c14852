/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: what evictions a job bears, as its PodDisruptionBudget: who may grow and shrink keeps
 * minWorkers, of others one worker may go at a time. Pods that are not ready may always go: a drain
 * waits for none that does not train. Pure.
 */
#ifndef HVD_OPERATOR_RECONCILE_BUDGET_H
#define HVD_OPERATOR_RECONCILE_BUDGET_H

#include "operator/objects/budget.h"
#include "operator/objects/hvdjob.h"

enum budget_step { BUDGET_LEAVE, BUDGET_CREATE, BUDGET_CHANGE };

/* have: the one that belongs to the job, NULL: there is none. It is made when the job first runs,
 * after its pods, and goes with the job. */
enum budget_step budget_decide(const struct hvdjob *job, const struct budget *have);

/* The object to create (it has the job's name); what is to be merged into the one that is there.
 * NULL: no memory. */
json_t *budget_object(const struct hvdjob *job);
json_t *budget_change(const struct hvdjob *job, const struct budget *have);

#endif
