/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot: see snapshot.h. A gang that this operator has admitted counts as admitted even while
 * the cache still shows it queued: its resources are reserved.
 */
#include "operator/driver/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/driver/driver_private.h"
#include "operator/reconcile/workers.h"

/* The room of a pod that is being deleted counts as about to be free when its grace period ends
 * within this time. */
#define LEAVES_SOON (600 * MOMENT_S)

void snapshot_drop(struct snapshot *s)
{
    if (!s)
        return;
    queue_end(s->queue);
    for (int i = 0; i < s->n && s->of; i++) {
        items_job_unref(s->of[i].item);
        verdict_unref(s->of[i].verdict);
        free(s->of[i].admitted);
        resources_fini(&s->of[i].requests);
        free(s->of[i].at);
        free(s->of[i].numbers);
        admission_fini(&s->jobs[i].ret);
    }
    for (int i = 0; i < s->cluster.n && s->items; i++) {
        items_node_unref(s->items[i]);
        resources_fini(&s->cluster.used[i]);
        resources_fini(&s->freeing[i]);
        resources_fini(&s->foreign[i]);
        if (s->cluster.ports)
            hostports_fini(&s->cluster.ports[i]);
    }
    usage_antis_fini(&s->antis);
    for (int i = 0; i < s->cluster.nnamespaces; i++)
        labels_fini(&s->namespaces[i].labels);
    free(s->namespaces);
    for (int i = 0; i < s->nquotas; i++)
        quota_fini(&s->quotas[i]);
    for (int i = 0; i < s->nstuck; i++)
        resources_fini(&s->stuck[i].requests);
    free(s->stuck);
    free(s->jobs);
    free(s->of);
    free(s->nodes);
    free(s->items);
    free(s->cluster.used);
    free(s->cluster.ports);
    free(s->freeing);
    free(s->foreign);
    free(s->quotas);
    free(s);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void add_node(void *arg, const char *key, const void *item)
{
    struct snapshot *s = arg;
    int i = s->cluster.n++;
    (void)key;
    s->items[i] = items_node_ref((struct node_item *)item);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct node *const *)a)->name, (*(const struct node *const *)b)->name);
}

/* Sorted by name, so that the node of a pod is found quickly. */
static int take_nodes(struct driver *d, struct snapshot *s)
{
    size_t n = informer_size(d->nodes);
    s->nodes = calloc(n + 1, sizeof(*s->nodes));
    s->items = calloc(n + 1, sizeof(struct node_item *));
    s->cluster.used = calloc(n + 1, sizeof(*s->cluster.used));
    s->freeing = calloc(n + 1, sizeof(*s->freeing));
    s->foreign = calloc(n + 1, sizeof(*s->foreign));
    if (!s->nodes || !s->items || !s->cluster.used || !s->freeing || !s->foreign)
        return -ENOMEM;
    informer_each(d->nodes, add_node, s);
    qsort(s->items, n, sizeof(struct node_item *), by_name);
    const struct drains *drains = driver_drains(d);
    for (size_t i = 0; i < n; i++) {
        s->nodes[i] = s->items[i]->node;
        s->nodes[i].cordoned |= drain_closes(drains_find(drains, s->nodes[i].name));
        if (usage_get(&d->usage, s->nodes[i].name, (int)i, &s->cluster.used[i]) < 0 ||
            resources_zero_like(&s->cluster.used[i], &s->freeing[i]) < 0 ||
            resources_copy(&s->cluster.used[i], &s->foreign[i]) < 0)
            return -ENOMEM;
    }
    s->cluster.nodes = s->nodes;
    int rc = usage_anti(&d->usage, &s->antis);
    s->cluster.anti = s->antis.list;
    s->cluster.nanti = s->antis.n;
    return rc;
}

/* Host ports in use, where a job wants any. */
static int take_ports(struct driver *d, struct snapshot *s)
{
    int rc = 0;
    if (!s->wants_ports)
        return 0;
    s->cluster.ports = calloc((size_t)s->cluster.n + 1, sizeof(*s->cluster.ports));
    for (int i = 0; i < s->cluster.n && s->cluster.ports && rc == 0; i++)
        rc = usage_ports(&d->usage, s->nodes[i].name, &s->cluster.ports[i]);
    return s->cluster.ports ? rc : -ENOMEM;
}

static int by_node(const void *name, const void *node)
{
    return strcmp(name, ((const struct node *)node)->name);
}

/* The index of the node; -1: it is not in the snapshot. */
static int node_of(const struct snapshot *s, const char *name)
{
    const struct node *node =
        name && s->nodes ? bsearch(name, s->nodes, (size_t)s->cluster.n, sizeof(*s->nodes), by_node)
                         : NULL;
    return node ? (int)(node - s->nodes) : -1;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static void count_quota(void *arg, const char *key, const void *item)
{
    struct snapshot *s = arg;
    struct quota *to = &s->quotas[s->nquotas];
    const struct quota *from = item;
    size_t size = ((size_t)from->n + 1) * sizeof(*from->lines);
    (void)key;
    *to = *from;
    to->lines = malloc(size);
    to->scopes = json_incref(from->scopes);
    if (to->lines && from->n > 0)
        memcpy(to->lines, from->lines, (size_t)from->n * sizeof(*from->lines));
    to->n = to->lines ? from->n : 0;
    s->nquotas++;
}

static int by_namespace(const void *a, const void *b)
{
    return strcmp(((const struct quota *)a)->namespace, ((const struct quota *)b)->namespace);
}

static int take_quotas(struct driver *d, struct snapshot *s)
{
    size_t n = informer_size(d->quotas);
    s->quotas = calloc(n + 1, sizeof(*s->quotas));
    if (!s->quotas)
        return -ENOMEM;
    informer_each(d->quotas, count_quota, s);
    qsort(s->quotas, n, sizeof(*s->quotas), by_namespace);
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool counts(const struct entry *e)
{
    return e->job && e->job->job.ours && !job_phase_finished(e->job->job.status.phase);
}

static bool waits(const struct entry *e)
{
    const struct hvdjob *job = &e->job->job;
    bool queued = job->status.phase == JOB_NEW || job->status.phase == JOB_QUEUED;
    return queued && !e->admitted && !job->suspend && !job->refused && !job->deleting;
}

/* Which worker is given up first: one that does not run, then the one with the highest number. */
static int by_worth(const void *a, const void *b)
{
    const struct pod *p = *(const struct pod *const *)a, *q = *(const struct pod *const *)b;
    bool p_runs = p->phase == POD_RUNNING, q_runs = q->phase == POD_RUNNING;
    return p_runs != q_runs ? q_runs - p_runs : p->worker - q->worker;
}

/* Are all workers of the job about to be deleted, though some of the deletions are not cached yet?
 */
static bool leaves_whole(const struct entry *e)
{
    const struct hvdjob *job = &e->job->job;
    enum job_phase phase = job->status.phase;
    return (e->admission && e->admission->preempted) || phase == JOB_RESTARTING ||
           phase == JOB_SUSPENDED || (job_phase_finished(phase) && job->clean != CLEAN_NONE);
}

/* Takes the workers' room out of foreign. */
static void take_own(struct snapshot *s, const struct entry *e)
{
    for (int i = 0; i < e->npods; i++) {
        const struct pod *p = &e->pods[i]->pod;
        int node = pod_finished(p) ? -1 : node_of(s, p->node);
        if (node >= 0)
            resources_count(&s->foreign[node], &p->requests, -1);
    }
}

/* Returns where to fill in a further stuck pod; NULL: no memory. */
static struct queue_stuck *add_stuck(struct snapshot *s)
{
    if (s->nstuck == s->stuck_cap) {
        int cap = s->stuck_cap ? 2 * s->stuck_cap : 8;
        void *grown = realloc(s->stuck, (size_t)cap * sizeof(*s->stuck));
        if (!grown)
            return NULL;
        s->stuck = grown;
        s->stuck_cap = cap;
    }
    s->stuck[s->nstuck] = (struct queue_stuck){.node = -1};
    return &s->stuck[s->nstuck++];
}

/* The room of a worker on that node that is being deleted, or about to be. A long grace period does
 * not keep a preempting gang waiting for it. */
static int take_leaving(struct snapshot *s, const struct entry *e, const struct pod *p, int node)
{
    int64_t at = pod_stuck_at(p);
    if (p->deleting && p->leaves_by > s->now + LEAVES_SOON) {
        int64_t soon = p->leaves_by - LEAVES_SOON;
        s->stuck_again = soon < s->stuck_again ? soon : s->stuck_again;
        return 0;
    }
    if (at > s->now) {
        s->stuck_again = at < s->stuck_again ? at : s->stuck_again;
        resources_count(&s->freeing[node], &p->requests, 1);
        return 0;
    }
    struct queue_stuck *stuck = add_stuck(s);
    if (!stuck)
        return -ENOMEM;
    snprintf(stuck->pod, sizeof(stuck->pod), "%.63s/%.63s", e->job->job.namespace_, p->name);
    stuck->node = node;
    stuck->leaves_by = p->leaves_by;
    return resources_copy(&p->requests, &stuck->requests);
}

static int take_all_leaving(struct snapshot *s, const struct entry *e)
{
    int rc = 0;
    for (int i = 0; i < e->npods && rc == 0; i++) {
        const struct pod *p = &e->pods[i]->pod;
        int node = pod_finished(p) ? -1 : node_of(s, p->node);
        rc = node >= 0 ? take_leaving(s, e, p, node) : 0;
    }
    return rc;
}

/* Takes priority and requests from an existing pod of the job, because this operator has made no
 * dry run of it. */
static int take_worker(struct snapshot *s, const struct pod *p, int i)
{
    struct snapshot_job *of = &s->of[i];
    s->jobs[i].priority = p->priority;
    if (of->requests.amount[RESOURCES_PODS] > 0)
        return 0;
    int rc = resources_copy(&p->requests, &of->requests);
    of->demand.spec.requests = of->requests;
    return rc;
}

static int take_pods(struct snapshot *s, const struct entry *e, struct workers *w, int i)
{
    struct queue_job *j = &s->jobs[i];
    const struct hvdjob_status *status = &j->job->status;
    bool known = s->of[i].verdict && s->of[i].verdict->known; /* its priority */
    s->of[i].at = calloc((size_t)w->n + 1, sizeof(int));
    s->of[i].numbers = calloc((size_t)w->n + 1, sizeof(int));
    if (!s->of[i].at || !s->of[i].numbers)
        return -ENOMEM;
    qsort(w->mine, (size_t)w->n, sizeof(*w->mine), by_worth);
    for (int k = 0; k < w->n; k++) {
        const struct pod *p = w->mine[k];
        int node = node_of(s, p->node);
        bool alive = worker_alive(status, p) && !leaves_whole(e);
        if (alive && !known && take_worker(s, p, i) < 0)
            return -ENOMEM;
        if (node < 0 || pod_finished(p))
            continue;
        if (alive) {
            s->of[i].numbers[j->nat] = p->worker;
            s->of[i].at[j->nat++] = node;
        } else if (take_leaving(s, e, p, node) < 0) {
            return -ENOMEM;
        }
    }
    j->at = s->of[i].at;
    j->numbers = s->of[i].numbers;
    return 0;
}

static int count_workers(struct snapshot *s, const struct entry *e, int i)
{
    struct queue_job *j = &s->jobs[i];
    struct workers w;
    const struct pod **pods = malloc(((size_t)e->npods + 1) * sizeof(*pods));
    if (!pods)
        return -ENOMEM;
    for (int k = 0; k < e->npods; k++)
        pods[k] = &e->pods[k]->pod;
    int rc = workers_init(&w, j->job, &j->job->status, pods, e->npods, NULL);
    free(pods);
    if (rc < 0)
        return rc;
    j->alive = w.alive;
    j->bound = w.bound;
    rc = take_pods(s, e, &w, i);
    workers_fini(&w);
    return rc;
}

/* The demand of a worker: the API server's, or else the template's. */
static void take_verdict(struct driver *d, struct snapshot *s, struct entry *e, int i)
{
    struct queue_job *j = &s->jobs[i];
    struct snapshot_job *of = &s->of[i];
    if (waits(e) && e->gang)
        j->pending = driver_dry_run(d, e) == NULL;
    of->demand = (struct demand){.spec = e->job->job.podspec, .preempts = true};
    j->demand = &of->demand;
    if (!e->dry_run.verdict)
        return;
    of->verdict = verdict_ref(e->dry_run.verdict);
    j->refused = of->verdict->refused;
    j->refused_for = of->verdict->wait;
    j->refused_at = of->verdict->at;
    /* One that is due is being asked about. */
    j->refused_again = of->verdict->again > s->now ? of->verdict->again : INT64_MAX;
    j->may_ask = driver_may_ask(d, e->job->job.namespace_, of->verdict);
    j->asking = e->dry_run.early;
    if (of->verdict->known) {
        j->demand = &of->verdict->demand;
        j->priority = j->demand->priority;
    }
}

/* What the last decision allows, and what an apply in flight asks for. */
static int granted(const struct entry *e, const struct hvdjob *job)
{
    int asked = e->apply || e->expectations.n > 0 ? e->asked : 0;
    int n = e->admission ? e->admission->workers : 0;
    n = n < job->workers ? n : job->workers;
    return n > asked ? n : asked;
}

static int add_job(struct driver *d, struct snapshot *s, struct entry *e)
{
    int i = s->n++;
    struct snapshot_job *of = &s->of[i];
    of->item = items_job_ref(e->job);
    s->jobs[i] = (struct queue_job){.job = &e->job->job,
                                    .gates = e->gang && !e->gang->group,
                                    .unserved = !e->gang,
                                    .served = driver_served(d, e->job->job.namespace_),
                                    .granted = granted(e, &e->job->job),
                                    .claimed = e->job->job.status.claimed};
    if (e->claimed > s->jobs[i].claimed)
        s->jobs[i].claimed = e->claimed;
    if (e->admission && e->admission->preempted) {
        snprintf(of->preempted_by, sizeof(of->preempted_by), "%s", e->admission->by);
        s->jobs[i].preempted_by = of->preempted_by;
    }
    if (e->admitted && e->job->job.status.phase != JOB_STARTING) {
        of->admitted = malloc(sizeof(*of->admitted));
        if (!of->admitted)
            return -ENOMEM;
        *of->admitted = e->job->job;
        of->admitted->status.phase = JOB_STARTING;
        s->jobs[i].job = of->admitted;
    }
    take_verdict(d, s, e, i);
    s->wants_ports |= s->jobs[i].demand->spec.ports.n > 0;
    return count_workers(s, e, i);
}

static int take_jobs(struct driver *d, struct snapshot *s)
{
    size_t n = 0;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        n += counts(e);
    s->jobs = calloc(n + 1, sizeof(*s->jobs));
    s->of = calloc(n + 1, sizeof(*s->of));
    if (!s->jobs || !s->of)
        return -ENOMEM;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        take_own(s, e);
        if (!counts(e)) {
            if (e->job && e->job->job.ours && leaves_whole(e) && take_all_leaving(s, e) < 0)
                return -ENOMEM;
            continue;
        }
        driver_choose_gang(d, e);
        if (add_job(d, s, e) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The namespaces of the jobs, where a pod's anti-affinity asks for labels of namespaces. */
static int take_namespaces(struct driver *d, struct snapshot *s)
{
    int n = 0;
    if (!s->antis.by_namespace)
        return 0;
    auto_free const char **names = malloc(((size_t)s->n + 1) * sizeof(*names));
    s->namespaces = calloc((size_t)s->n + 1, sizeof(*s->namespaces));
    s->cluster.namespaces = s->namespaces;
    if (!names || !s->namespaces)
        return -ENOMEM;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (counts(e) && n < s->n)
            names[n++] = e->job->job.namespace_;
    qsort(names, (size_t)n, sizeof(*names), by_text);
    for (int i = 0; i < n; i++) {
        struct fit_namespace *to = &s->namespaces[s->cluster.nnamespaces];
        const struct labels *labels = informer_get(d->namespaces, names[i]);
        if (!labels || (i > 0 && strcmp(names[i], names[i - 1]) == 0))
            continue;
        if (labels_copy(labels, &to->labels) < 0)
            return -ENOMEM;
        to->name = names[i]; /* of the job, which the snapshot holds */
        s->cluster.nnamespaces++;
    }
    return 0;
}

int snapshot_take(struct driver *d, struct snapshot **ret)
{
    bool blind = !d->nodes || !informer_synced(d->nodes) || !informer_synced(d->others);
    struct snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->began = clock_ns();
    s->now = driver_now();
    s->stuck_again = INT64_MAX;
    int rc = blind ? 0 : take_nodes(d, s);
    rc = rc < 0 ? rc : take_quotas(d, s);
    rc = rc < 0 ? rc : take_jobs(d, s);
    rc = rc < 0 ? rc : take_ports(d, s);
    rc = rc < 0 ? rc : take_namespaces(d, s);
    s->in = (struct queue_input){.jobs = s->jobs,
                                 .n = s->n,
                                 .cluster = blind ? NULL : &s->cluster,
                                 .freeing = s->freeing,
                                 .stuck = s->stuck,
                                 .nstuck = s->nstuck,
                                 .foreign = blind ? NULL : s->foreign,
                                 .quotas = s->quotas,
                                 .nquotas = s->nquotas,
                                 .policy = d->config.policy,
                                 .now = s->now};
    rc = rc < 0 ? rc : queue_begin(&s->queue, &s->in);
    if (rc < 0) {
        snapshot_drop(s);
        return rc;
    }
    s->spent = clock_ns() - s->began;
    *ret = s;
    return 0;
}
