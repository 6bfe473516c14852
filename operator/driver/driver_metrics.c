/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_metrics: the driver's metrics for Prometheus.
 */
#include <string.h>

#include "operator/driver/driver_private.h"
#include "operator/objects/moment.h"

static const char *const verbs[STATS_VERBS] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
static const char *const code_names[STATS_CODES] = {"none", "200", "201", "400", "401", "403",
                                                    "404",  "409", "410", "422", "429", "500",
                                                    "503",  "504", "2xx", "4xx", "5xx"};
/* 0: no response. The last three stand for all other codes of their class. */
static const long codes[STATS_CODES] = {0,   200, 201, 400, 401, 403, 404, 409, 410,
                                        422, 429, 500, 503, 504, 299, 499, 599};

void driver_observe(void *arg, const char *method, long status)
{
    struct driver *d = arg;
    int verb = 0, code = 0;
    while (verb < STATS_VERBS - 1 && strcmp(verbs[verb], method) != 0)
        verb++;
    while (code < STATS_CODES - 1 && codes[code] != status)
        code++;
    if (codes[code] != status)
        code = status < 400 ? STATS_CODES - 3 : status < 500 ? STATS_CODES - 2 : STATS_CODES - 1;
    d->stats.requests[verb][code]++;
}

static void note_drains(struct driver *d, const struct job_drains *before,
                        const struct job_drains *after)
{
    for (int i = 0; i < after->n; i++) {
        const struct job_drain *was = job_drains_find(before, after->all[i].node);
        d->stats.drains_over += after->all[i].over && !(was && was->over);
    }
}

void driver_note_change(struct driver *d, const struct hvdjob_status *before,
                        const struct hvdjob_status *after)
{
    bool let_go = after->admitted != MOMENT_NONE && after->admitted != before->admitted;
    if (let_go && after->queued != MOMENT_NONE)
        histogram_add(&d->stats.gang_wait, (double)(after->admitted - after->queued) / MOMENT_S);
    note_drains(d, &before->drains, &after->drains);
    if (after->phase == JOB_RUNNING && (before->phase == JOB_STARTING || let_go))
        histogram_add(&d->stats.start, (double)(driver_now() - after->admitted) / (double)MOMENT_S);
}

static void put_requests(const struct driver *d, struct buf *dst)
{
    metrics_head(dst, "hvd_api_requests_total", "counter",
                 "Requests to the API server by method and HTTP status.");
    for (int verb = 0; verb < STATS_VERBS; verb++)
        for (int code = 0; code < STATS_CODES; code++)
            if (d->stats.requests[verb][code])
                metrics_value2(dst, "hvd_api_requests_total", "method", verbs[verb], "code",
                               code_names[code], (double)d->stats.requests[verb][code]);
    const struct api_counts *c = api_counts(d->config.api);
    metrics_head(dst, "hvd_api_retries_total", "counter", "Retries of requests to the API server.");
    metrics_value(dst, "hvd_api_retries_total", NULL, NULL, (double)c->retries);
    metrics_head(dst, "hvd_api_throttled_total", "counter",
                 "Requests that the API server throttled (429).");
    metrics_value(dst, "hvd_api_throttled_total", NULL, NULL, (double)c->throttled);
}

static void put_jobs(const struct driver *d, struct buf *dst)
{
    uint64_t jobs[JOB_PHASES] = {0}, pods = 0, refused = 0;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        pods += (uint64_t)e->npods;
        if (e->job)
            jobs[e->job->job.status.phase]++;
        refused += e->job && e->job->job.refused;
    }
    metrics_head(dst, "hvd_jobs", "gauge", "Jobs by phase.");
    for (int i = 0; i < JOB_PHASES; i++)
        metrics_value(dst, "hvd_jobs", "phase", job_phase_name((enum job_phase)i), (double)jobs[i]);
    metrics_head(dst, "hvd_jobs_refused", "gauge", "Jobs whose spec cannot be run.");
    metrics_value(dst, "hvd_jobs_refused", NULL, NULL, (double)refused);
    metrics_head(dst, "hvd_pods", "gauge", "Pods of jobs.");
    metrics_value(dst, "hvd_pods", NULL, NULL, (double)pods);
}

struct cache {
    const char *name;
    const struct informer *informer;
};

static void put_caches(const struct driver *d, struct buf *dst)
{
    const struct cache all[] = {{"hvdjobs", d->jobs},
                                {"pods", d->pods},
                                {"nodes", d->nodes},
                                {"others", d->others},
                                {"budgets", d->budgets}};
    static const struct {
        const char *name, *help;
        size_t at;
    } counts[] = {
        {"hvd_watch_lists_total", "Full lists of a cache, page by page.",
         offsetof(struct informer_counts, lists)},
        {"hvd_watch_streams_total", "Full lists of a cache, as a streamed list.",
         offsetof(struct informer_counts, streams)},
        {"hvd_watch_restarts_total", "Watches that continued at the last resourceVersion.",
         offsetof(struct informer_counts, follows)},
        {"hvd_watch_failures_total", "Lists and watches that failed.",
         offsetof(struct informer_counts, failures)},
        {"hvd_watch_expired_total", "Watches and lists whose resourceVersion was too old (410).",
         offsetof(struct informer_counts, gone)},
        {"hvd_watch_unread_total", "Objects that could not be parsed and are not in the cache.",
         offsetof(struct informer_counts, unread)},
    };
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        metrics_head(dst, counts[k].name, "counter", counts[k].help);
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            if (!all[i].informer)
                continue;
            const char *base = (const char *)informer_counts(all[i].informer);
            metrics_value(dst, counts[k].name, "cache", all[i].name,
                          (double)*(const uint64_t *)(base + counts[k].at));
        }
    }
}

void driver_metrics(struct driver *d, struct buf *dst)
{
    const struct driver_stats *s = &d->stats;
    static const char *const names[] = {"hvd_looks_total",        "hvd_writes_total",
                                        "hvd_stale_writes_total", "hvd_failed_writes_total",
                                        "hvd_late_caches_total",  "hvd_drains_over_limit_total",
                                        "hvd_drain_moves_total"};
    static const char *const helps[] = {
        "Reconciliations of jobs.",
        "Writes that succeeded.",
        "Writes that met a newer version of the object (conflicts).",
        "Actions that failed for another reason.",
        "Reconciliations before which a cache did not show the job's writes within 30 s.",
        "Drains of a node that a job has delayed for --drain-limit.",
        "Workers that left drained nodes: the operator moved them, or others evicted them."};
    const uint64_t values[] = {s->reconciles,           s->writes,      s->stale,      s->failures,
                               s->expectations_expired, s->drains_over, s->drain_moves};
    put_jobs(d, dst);
    metrics_head(dst, "hvd_drained_workers", "gauge", "Workers that are on drained nodes now.");
    metrics_value(dst, "hvd_drained_workers", NULL, NULL, driver_drained_workers(d));
    metrics_histogram(dst, "hvd_gang_wait_seconds", "Time of a gang from queued to admitted.",
                      &s->gang_wait);
    metrics_histogram(dst, "hvd_gang_start_seconds",
                      "Time of a gang from admitted to minWorkers running.", &s->start);
    metrics_histogram(dst, "hvd_reconcile_seconds", "Time of one reconciliation, without writes.",
                      &s->reconcile);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        metrics_head(dst, names[i], "counter", helps[i]);
        metrics_value(dst, names[i], NULL, NULL, (double)values[i]);
    }
    metrics_head(dst, "hvd_leader", "gauge", "1 if this operator leads.");
    metrics_value(dst, "hvd_leader", NULL, NULL, d->leading);
    put_requests(d, dst);
    put_caches(d, dst);
}
