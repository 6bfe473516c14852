/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_budget: keeps the PodDisruptionBudget of a job as reconcile/budget decides. It is not one
 * of the job's actions: a job trains without a budget, and its message says so.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/request.h"
#include "operator/driver/driver_private.h"
#include "operator/reconcile/budget.h"
#include "operator/reconcile/drain.h"
#include "operator/reconcile/workers.h"

#define TIMEOUT_MS 15000
#define AGAIN_MS   30000 /* between two attempts; the cache shows a write long before */
/* A new budget is created so long after its job first ran, and later while pods of other jobs
 * wait to be created (inflight_yields()): it is of use when somebody drains a node. */
#define LATER CLOCK_S

static uint64_t version_of(const struct api_answer *answer)
{
    const char *version = "";
    auto_json json_t *j = NULL;
    if (json_read(answer->body, answer->len, "a budget", &j, NULL) < 0 ||
        json_expect(j, "a budget", NULL, "{s:{s:s}}", "metadata", "resourceVersion", &version) < 0)
        return 0;
    return items_version(version);
}

static void on_written(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    bool done = answer->status >= 200 && answer->status < 300;
    bool had = e->budget_problem != NULL;
    e->budget_call = NULL;
    e->budget_version = done ? version_of(answer) : 0;
    e->budget_at = clock_ns() + AGAIN_MS * CLOCK_MS;
    free(e->budget_problem);
    e->budget_problem = done ? NULL : strdup(answer->message);
    if (done) {
        d->stats.writes++;
        inject_point("operator-wrote");
    } else {
        log_debug("job %s: writing its PodDisruptionBudget: %ld %s", e->key, answer->status,
                  answer->message);
    }
    if (!done || had)
        driver_enqueue(d, e); /* the job's message mentions the problem */
}

static bool nodes_hidden(const struct driver *d)
{
    return !d->nodes || informer_refused(d->nodes);
}

static void send(struct driver *d, struct entry *e, struct budget_drain drain,
                 const struct budget *have)
{
    static const struct resource budgets = {"policy", "v1", "poddisruptionbudgets"};
    const struct hvdjob *job = &e->job->job;
    struct buf path = {0};
    auto_json json_t *j = have ? budget_change(job, drain, have) : budget_object(job, drain);
    auto_free char *body = json_write(j);
    request_path(&path, &budgets, job->namespace_, have ? job->name : NULL, NULL);
    struct api_request q = {.method = have ? "PATCH" : "POST",
                            .path = request_text(&path),
                            .body = body,
                            .kind = have ? API_MERGE_PATCH : API_JSON,
                            .idempotent = true,
                            .timeout_ms = TIMEOUT_MS};
    if (!body || !q.path || api_send(d->config.api, &q, on_written, e, &e->budget_call, NULL) < 0)
        e->budget_at = clock_ns() + AGAIN_MS * CLOCK_MS;
    buf_fini(&path);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The workers on nodes whose drain is over its limit. The caller frees ret->over. */
static int find_over(struct driver *d, const struct entry *e, struct budget_drain *ret)
{
    const struct hvdjob_status *st = &e->job->job.status;
    const struct drains *drains = st->drains.n > 0 ? driver_drains(d) : NULL;
    int *over = drains && e->npods > 0 ? malloc((size_t)e->npods * sizeof(*over)) : NULL;
    if (drains && e->npods > 0 && !over)
        return -ENOMEM;
    int n = 0;
    for (int i = 0; over && i < e->npods; i++) {
        const struct pod *p = &e->pods[i]->pod;
        if (strcmp(p->owner, e->job->job.uid) == 0 && worker_alive(st, p) &&
            drain_over(st, drains, p->node))
            over[n++] = p->worker;
    }
    if (n > 1)
        qsort(over, (size_t)n, sizeof(*over), by_number);
    ret->over = over;
    ret->nover = n;
    return 0;
}

/* The time before which a budget that is missing is not created. */
static uint64_t new_at(const struct driver *d, struct entry *e)
{
    uint64_t now = clock_ns();
    if (!e->budget_since)
        e->budget_since = now;
    return inflight_yields(&d->inflight, e->budget_since) ? now + LATER : e->budget_since + LATER;
}

static void keep(struct driver *d, struct entry *e, struct budget_drain drain)
{
    const struct hvdjob *job = &e->job->job;
    const struct budget_item *item = informer_get(d->budgets, e->key);
    bool seen = item && e->budget_version && item->version >= e->budget_version;
    bool ours = item && strcmp(item->budget.owner, job->uid) == 0;
    const struct budget *have = ours ? &item->budget : NULL;
    if (budget_decide(job, drain, have) == BUDGET_LEAVE) {
        if (have && e->budget_problem) { /* the write succeeded, only its response was lost */
            entry_forget_budget(e);
            driver_enqueue(d, e);
        }
        return;
    }
    uint64_t again = seen ? 0 : e->budget_at, first = have ? 0 : new_at(d, e);
    uint64_t at = again > first ? again : first;
    if (clock_ns() < at)
        driver_enqueue_at(d, e, at);
    else
        send(d, e, drain, have);
}

void driver_keep_budget(struct driver *d, struct entry *e)
{
    if (!informer_synced(d->budgets) || e->budget_call || !d->config.may_write(d->config.arg))
        return;
    if (!nodes_hidden(d) && !informer_synced(d->nodes))
        return;
    struct budget_drain drain = {.blind = nodes_hidden(d)};
    if (find_over(d, e, &drain) < 0)
        return;
    keep(d, e, drain);
    free((int *)drain.over);
}
