/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_queue: takes a snapshot of all jobs and nodes for queue_decide() and stores its decisions
 * in the entries. A gang that this operator has admitted counts as admitted even while the cache
 * still shows it queued: its resources are reserved.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"
#include "operator/reconcile/workers.h"

struct view {
    struct queue_job *jobs;
    struct job_item **copies; /* of jobs whose admission the cache does not show yet; else NULL */
    int n;
    struct cluster cluster;
    struct node *nodes;    /* shallow copies: they point into the cache */
    struct fit_anti *anti; /* cluster.anti */
};

void driver_choose_gang(struct driver *d, struct entry *e)
{
    struct err err = {0};
    const char *served = discovery_text(d->discovery);
    if (e->gang_known || !e->job || !served)
        return;
    e->gang = gang_choose(&e->job->job, served, e->gang_api, sizeof(e->gang_api), &err);
    e->gang_missing = e->gang ? NULL : strdup(err_text(&err));
    e->gang_known = true;
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

static bool counts(const struct entry *e)
{
    return e->job && e->job->job.ours && !job_phase_finished(e->job->job.status.phase);
}

static int add_job(struct view *v, struct entry *e)
{
    struct queue_job *q = &v->jobs[v->n];
    struct job_item *item = e->job;
    struct workers w;
    const struct pod **pods = malloc(((size_t)e->npods + 1) * sizeof(*pods));
    if (!pods)
        return -ENOMEM;
    for (int i = 0; i < e->npods; i++)
        pods[i] = &e->pods[i]->pod;
    if (e->admitted && item->job.status.phase != JOB_STARTING) {
        struct job_item *copy = malloc(sizeof(*copy));
        if (copy) {
            *copy = *item;
            copy->job.status.phase = JOB_STARTING;
            item = v->copies[v->n] = copy;
        }
    }
    int rc = workers_init(&w, &item->job, &item->job.status, pods, e->npods, NULL);
    free(pods);
    if (rc < 0)
        return rc;
    *q = (struct queue_job){.job = &item->job,
                            .gates = e->gang && !e->gang->group,
                            .bound = w.bound,
                            .unbound = w.alive - w.gated - w.bound};
    workers_fini(&w);
    v->n++;
    return 0;
}

static void add_node(void *arg, const char *key, const void *item)
{
    struct view *v = arg;
    (void)key;
    v->nodes[v->cluster.n++] = *(const struct node *)item;
}

/* Host ports in use, where a job wants any. */
static int see_ports(struct driver *d, struct view *v)
{
    bool wanted = false;
    for (int i = 0; i < v->n; i++)
        wanted |= v->jobs[i].job->podspec.ports.n > 0;
    if (!wanted)
        return 0;
    v->cluster.ports = calloc((size_t)v->cluster.n + 1, sizeof(*v->cluster.ports));
    int rc = v->cluster.ports ? 0 : -ENOMEM;
    for (int i = 0; i < v->cluster.n && rc == 0; i++)
        rc = usage_ports(&d->usage, v->nodes[i].name, &v->cluster.ports[i]);
    return rc;
}

static int see_nodes(struct driver *d, struct view *v)
{
    size_t n = informer_size(d->nodes);
    int rc = 0;
    v->nodes = calloc(n + 1, sizeof(*v->nodes));
    v->cluster.used = calloc(n + 1, sizeof(*v->cluster.used));
    if (!v->nodes || !v->cluster.used)
        return -ENOMEM;
    informer_each(d->nodes, add_node, v);
    for (int i = 0; i < v->cluster.n && rc == 0; i++)
        rc = usage_get(&d->usage, v->nodes[i].name, i, &v->cluster.used[i]);
    v->cluster.nodes = v->nodes;
    rc = rc < 0 ? rc : see_ports(d, v);
    rc = rc < 0 ? rc : usage_anti(&d->usage, &v->anti, &v->cluster.nanti);
    v->cluster.anti = v->anti;
    return rc;
}

static int see_jobs(struct driver *d, struct view *v)
{
    size_t n = 0;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        n += counts(e);
    v->jobs = calloc(n + 1, sizeof(*v->jobs));
    v->copies = calloc(n + 1, sizeof(*v->copies));
    if (!v->jobs || !v->copies)
        return -ENOMEM;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        if (!counts(e))
            continue;
        driver_choose_gang(d, e);
        if (add_job(v, e) < 0)
            return -ENOMEM;
    }
    return 0;
}

static bool anybody_waits(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        enum job_phase phase = e->job ? e->job->job.status.phase : JOB_FAILED;
        if (counts(e) && (phase == JOB_NEW || phase == JOB_QUEUED))
            return true;
    }
    return false;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void hand_out(struct driver *d, const struct queue_job *q)
{
    const struct job_item *item = list_entry(q->job, struct job_item, job);
    struct entry *e = item->entry;
    enum job_phase phase = q->job->status.phase;
    if (phase != JOB_NEW && phase != JOB_QUEUED)
        return;
    if (e->admission && e->admission->go == q->ret.go && e->admission->again == q->ret.again &&
        strcmp(e->admission->why, q->ret.why) == 0)
        return;
    if (!e->admission)
        e->admission = malloc(sizeof(*e->admission));
    if (!e->admission) {
        log_warn("job %s: no memory to admit it; it stays queued until a job, pod or node changes",
                 e->key);
        return;
    }
    *e->admission = q->ret;
    /* The decision may change by itself at that time. */
    if (q->ret.again != INT64_MAX && q->ret.again > driver_now())
        driver_enqueue_at(d, e, clock_ns() + (uint64_t)(q->ret.again - driver_now()) * CLOCK_MS);
    driver_enqueue(d, e);
}

static void view_fini(struct view *v, int njobs)
{
    for (int i = 0; i < njobs && v->copies; i++)
        free(v->copies[i]);
    free(v->copies);
    free(v->jobs);
    for (int i = 0; i < v->cluster.n && v->cluster.used; i++)
        resources_fini(&v->cluster.used[i]);
    for (int i = 0; i < v->cluster.n && v->cluster.ports; i++)
        hostports_fini(&v->cluster.ports[i]);
    free(v->cluster.ports);
    free(v->anti);
    free(v->nodes);
    free(v->cluster.used);
}

void driver_queue(struct driver *d)
{
    struct view v = {0};
    bool blind = !d->nodes || !informer_synced(d->nodes) || !informer_synced(d->others);
    d->queue_dirty = false;
    d->queue_ran_at = clock_ns();
    if (!discovery_text(d->discovery) || !anybody_waits(d))
        return;
    int rc = see_jobs(d, &v);
    int n = v.n;
    if (rc == 0 && !blind)
        rc = see_nodes(d, &v);
    if (rc == 0) {
        queue_decide(v.jobs, v.n, blind ? NULL : &v.cluster, driver_now());
        for (int i = 0; i < v.n; i++)
            hand_out(d, &v.jobs[i]);
    } else {
        log_warn("no memory for a snapshot of the queue; no gang is admitted until the next try");
        d->queue_dirty = true;
    }
    view_fini(&v, n + 1);
}
