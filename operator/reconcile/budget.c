/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: see budget.h.
 */
#include "operator/reconcile/budget.h"

#include <stdio.h>

#include "core/json/json.h"
#include "operator/reconcile/newpod.h"

struct limits {
    int min_available, max_unavailable; /* exactly one is set, the other is -1 */
};

/* For maxUnavailable the disruption controller reads spec.workers through the scale subresource.
 * Where spec.workers is missing it would never allow an eviction, so minAvailable is used. */
static struct limits limits_of(const struct hvdjob *job, struct budget_drain drain)
{
    if (job->drain == DRAIN_SHRINK || job->drain == DRAIN_RESTART)
        return (struct limits){0, -1};
    if (job->drain == DRAIN_BLOCK && !drain.blind)
        return (struct limits){job->workers, -1};
    if (job->max > job->min)
        return (struct limits){job->min - drain.blind, -1};
    if (job->says_workers)
        return (struct limits){-1, 1};
    return (struct limits){job->workers - 1, -1};
}

/* The workers over the limit are excluded by number. A worker that replaces such a one on another
 * node counts again after the next change of the budget. */
static json_t *selector_of(const struct hvdjob *job, struct budget_drain drain)
{
    json_t *selector = json_pack("{s:{s:s}}", "matchLabels", POD_LABEL_JOB, job->name);
    if (drain.nover == 0)
        return selector;
    json_t *workers = json_array();
    for (int i = 0; i < drain.nover; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", drain.over[i]);
        json_append(&workers, json_string(text));
    }
    json_put(&selector, "matchExpressions",
             json_pack("[{s:s, s:s, s:o}]", "key", POD_LABEL_WORKER, "operator", "NotIn", "values",
                       workers));
    return selector;
}

static bool is_right(const struct hvdjob *job, struct budget_drain drain, const struct budget *have)
{
    struct limits want = limits_of(job, drain);
    auto_json json_t *selector = selector_of(job, drain);
    return have->min_available == want.min_available &&
           have->max_unavailable == want.max_unavailable && have->always &&
           have->selector == budget_selector_hash(selector);
}

enum budget_step budget_decide(const struct hvdjob *job, struct budget_drain drain,
                               const struct budget *have)
{
    enum job_phase phase = job->status.phase;
    if (!job->ours || job->deleting || job->refused || job_phase_finished(phase))
        return BUDGET_LEAVE;
    if (have)
        return is_right(job, drain, have) ? BUDGET_LEAVE : BUDGET_CHANGE;
    return phase == JOB_RUNNING || phase == JOB_WAITING ? BUDGET_CREATE : BUDGET_LEAVE;
}

/* In a merge patch null removes the field; in a new object it means absent. */
static json_t *number(int n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *spec_of(const struct hvdjob *job, struct budget_drain drain, json_t *selector)
{
    struct limits want = limits_of(job, drain);
    return json_pack("{s:o, s:o, s:s, s:o}", "minAvailable", number(want.min_available),
                     "maxUnavailable", number(want.max_unavailable), "unhealthyPodEvictionPolicy",
                     "AlwaysAllow", "selector", selector);
}

json_t *budget_object(const struct hvdjob *job, struct budget_drain drain)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s}, s:[o]}, s:o}", "apiVersion",
                     "policy/v1", "kind", "PodDisruptionBudget", "metadata", "name", job->name,
                     "namespace", job->namespace_, "labels", POD_LABEL_JOB, job->name,
                     "app.kubernetes.io/managed-by", "hvd-operator", "ownerReferences",
                     newpod_owner(job), "spec", spec_of(job, drain, selector_of(job, drain)));
}

/* The patch contains the uid, so that the API server refuses it if another object has the name by
 * now. */
json_t *budget_change(const struct hvdjob *job, struct budget_drain drain,
                      const struct budget *have)
{
    json_t *selector = selector_of(job, drain);
    if (drain.nover == 0)
        json_put(&selector, "matchExpressions", json_null());
    return json_pack("{s:{s:s}, s:o}", "metadata", "uid", have->uid, "spec",
                     spec_of(job, drain, selector));
}
