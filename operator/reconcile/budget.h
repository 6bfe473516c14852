/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: decides on the PodDisruptionBudget of a job, which limits evictions by other programs.
 * Pods that are not ready may always be evicted, so a drain never waits for a pod that does not
 * train. Pure.
 *
 * | drain policy                | job that may shrink    | other job              |
 * | --------------------------- | ---------------------- | ---------------------- |
 * | Wait                        | minWorkers stay        | one worker at a time   |
 * | Shrink, Restart             | no limit               | no limit               |
 * | Block                       | none may be evicted    | none may be evicted    |
 * | Wait, Block; nodes unknown  | one below minWorkers   | one worker at a time   |
 *
 * The budget does not select workers on nodes whose drain is over its limit, so these may always be
 * evicted, and all others are limited as before. Where nodes are not known, no drain is seen and so
 * none can be over its limit.
 */
#ifndef HVD_OPERATOR_RECONCILE_BUDGET_H
#define HVD_OPERATOR_RECONCILE_BUDGET_H

#include "operator/objects/budget.h"
#include "operator/objects/hvdjob.h"

enum budget_step { BUDGET_LEAVE, BUDGET_CREATE, BUDGET_CHANGE };

struct budget_drain {
    bool blind;      /* the operator may not list nodes */
    const int *over; /* the workers on nodes whose drain is over its limit, in ascending order */
    int nover;
};

/* have: the job's existing budget, NULL: none. A budget is created when the job first runs, and the
 * garbage collector deletes it with the job. */
enum budget_step budget_decide(const struct hvdjob *job, struct budget_drain drain,
                               const struct budget *have);

/* budget_object: the object to create, named like the job. budget_change: a merge patch of the
 * existing budget. NULL: no memory. */
json_t *budget_object(const struct hvdjob *job, struct budget_drain drain);
json_t *budget_change(const struct hvdjob *job, struct budget_drain drain,
                      const struct budget *have);

#endif
