/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_room: what is reserved on nodes, and which gangs are in probe.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"
#include "operator/reconcile/workers.h"

/* How long after the last preemption a gang claims the nodes that are made free for it, if it does
 * not start before: preempted workers end within their terminationGracePeriodSeconds, on a node
 * that is lost never. */
#define CLAIM (120 * MOMENT_S)

void queue_used_free(struct resources *used, int n)
{
    for (int i = 0; i < n && used; i++)
        resources_fini(&used[i]);
    free(used);
}

struct resources *queue_used_copy(const struct cluster *c, const struct resources *used)
{
    struct resources *copy = calloc((size_t)c->n + 1, sizeof(*copy));
    for (int i = 0; i < c->n && copy; i++)
        if (resources_copy(&used[i], &copy[i]) < 0) {
            queue_used_free(copy, i);
            copy = NULL;
        }
    return copy;
}

static int hold_nothing(struct queue *q)
{
    const struct cluster *c = q->in->cluster;
    if (q->in->foreign) {
        q->held = queue_used_copy(c, q->in->foreign);
        return q->held ? 0 : -ENOMEM;
    }
    q->held = calloc((size_t)c->n + 1, sizeof(*q->held));
    for (int i = 0; i < c->n && q->held; i++)
        if (resources_zero_like(&c->used[i], &q->held[i]) < 0)
            return -ENOMEM;
    return q->held ? 0 : -ENOMEM;
}

/* Kinds beyond RESOURCES_OTHERS_MAX in the cluster have no total: no share is counted of them. */
static void add_total(struct queue *q, const struct resources *allocatable)
{
    if (resources_add(&q->total, allocatable, NULL) < 0)
        resources_count(&q->total, allocatable, 1);
}

int queue_room_init(struct queue *q)
{
    const struct cluster *c = q->in->cluster;
    int rc = 0;
    for (int i = 0; c && i < c->n; i++)
        add_total(q, &c->nodes[i].allocatable);
    for (int i = 0; i < q->ntenants && rc == 0; i++)
        rc = resources_zero_like(&q->total, &q->tenants[i].holds) < 0
                 ? -ENOMEM
                 : resources_zero_like(&q->total, &q->tenants[i].loose);
    if (!c || rc < 0)
        return rc;
    q->later = *c;
    q->later.ports = NULL;
    q->later.used = queue_used_copy(c, c->used);
    q->counts = calloc((size_t)c->n + 1, sizeof(*q->counts));
    q->claimed_nodes = calloc((size_t)c->n + 1, sizeof(*q->claimed_nodes));
    q->claimed = (struct cluster){.nodes = q->claimed_nodes,
                                  .used = calloc((size_t)c->n + 1, sizeof(*q->claimed.used))};
    if (!q->later.used || !q->counts || !q->claimed_nodes || !q->claimed.used)
        return -ENOMEM;
    for (int i = 0; i < c->n && q->in->freeing; i++) {
        resources_count(&q->later.used[i], &q->in->freeing[i], -1);
        q->frees |= q->in->freeing[i].amount[RESOURCES_CPU] > 0 ||
                    q->in->freeing[i].amount[RESOURCES_PODS] > 0;
    }
    return hold_nothing(q);
}

void queue_room_fini(struct queue *q)
{
    int n = q->in->cluster ? q->in->cluster->n : 0;
    queue_used_free(q->later.used, n);
    queue_used_free(q->held, n);
    queue_used_free(q->claimed.used, q->claimed.n);
    free(q->claimed_nodes);
    free(q->counts);
    resources_fini(&q->total);
    for (int i = 0; i < q->ntenants; i++) {
        resources_fini(&q->tenants[i].holds);
        resources_fini(&q->tenants[i].loose);
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

bool queue_is_admitted(const struct hvdjob *job)
{
    enum job_phase phase = job->status.phase;
    return (phase == JOB_STARTING || phase == JOB_RUNNING || phase == JOB_WAITING) &&
           !job->deleting;
}

bool queue_is_waiting(const struct hvdjob *job)
{
    enum job_phase phase = job->status.phase;
    return (phase == JOB_NEW || phase == JOB_QUEUED) && !job->deleting && !job->suspend &&
           !job->refused;
}

int queue_min(const struct queue_job *j)
{
    int granted = queue_is_admitted(j->job) ? j->job->status.min_granted : 0;
    return granted > 0 && granted < j->job->min ? granted : j->job->min;
}

int queue_held(const struct queue_job *j)
{
    int n = j->bound + queue_pending(j);
    return queue_is_admitted(j->job) && !queue_is_frozen(j) && n < queue_min(j) ? queue_min(j) : n;
}

int queue_loose(const struct queue_job *j)
{
    int n = j->alive;
    bool grows = queue_is_admitted(j->job) && !queue_is_frozen(j);
    n = (grows && n < j->granted ? j->granted : n) - queue_held(j);
    return n > 0 ? n : 0;
}

/* ---- reservations ---------------------------------------------------------------------------- */

bool queue_certain(const struct queue *q, const struct queue_job *j)
{
    return q->in->cluster && !j->demand->spec.unjudged && j->job->status.rollbacks == 0;
}

/* Reserves in both views of the cluster what fit_plan() has put into q->counts. */
static void place(struct queue *q, const struct podspec *spec)
{
    for (int i = 0; i < q->later.n; i++) {
        fit_place(q->in->cluster, i, spec, q->counts[i]);
        fit_place(&q->later, i, spec, q->counts[i]);
    }
}

/* Claims the nodes of q->counts for j, if it claims any. used: what is used there without j. */
static void claim(struct queue *q, const struct queue_job *j, const struct resources *used)
{
    const struct cluster *c = q->in->cluster;
    if (j->ret.claimed == MOMENT_NONE)
        return;
    q->claimer = j->job;
    for (int i = 0; i < c->n && q->claimed.n < c->n; i++) {
        if (q->counts[i] == 0 || resources_copy(&used[i], &q->claimed.used[q->claimed.n]) < 0)
            continue;
        q->claimed_nodes[q->claimed.n++] = c->nodes[i];
    }
}

static void reserve(struct queue *q, const struct queue_job *j, int n)
{
    const struct cluster *c = q->in->cluster;
    if (!c || n <= 0)
        return;
    fit_plan(c, &j->demand->spec, n, q->counts);
    claim(q, j, c->used);
    place(q, &j->demand->spec);
}

void queue_reserve(struct queue *q, struct queue_job *j, int n)
{
    if (j->gates)
        reserve(q, j, n);
    queue_hold_share(q, j, n);
}

bool queue_is_frozen(const struct queue_job *j)
{
    return j->job->refused || hvdjob_template_changed(j->job, &j->job->status);
}

int queue_pending(const struct queue_job *j)
{
    int missing = queue_min(j) > j->bound ? queue_min(j) - j->bound : 0;
    int unbound = j->alive - j->bound;
    if (queue_is_frozen(j))
        return unbound;
    if (j->gates && queue_is_admitted(j->job))
        return j->job->elastic || unbound < missing ? missing : unbound;
    return j->job->elastic && unbound > missing ? missing : unbound;
}

void queue_reserve_admitted(struct queue *q, struct queue_job *j)
{
    const struct cluster *c = q->in->cluster;
    bool starting = j->gates && j->job->status.phase == JOB_STARTING && !j->job->deleting;
    int n = queue_pending(j);
    int missing = starting && !queue_is_frozen(j) ? queue_min(j) - j->bound : 0;
    if (missing > 0) {
        bool fits = c && fit_count(c, &j->demand->spec, missing) >= missing;
        if (!fits || !queue_certain(q, j))
            queue_note_probe(q, j);
        queue_crowd(q, j->priority);
    }
    reserve(q, j, n);
    queue_hold_share(q, j, queue_held(j));
    queue_loosen(q, j, queue_loose(j));
}

void queue_reserve_later(struct queue *q, const struct queue_job *j)
{
    fit_plan(&q->later, &j->demand->spec, j->job->min, q->counts);
    claim(q, j, q->later.used);
    place(q, &j->demand->spec);
}

bool queue_possible(const struct queue *q, const struct queue_job *j)
{
    const struct podspec *spec = &j->demand->spec;
    int min = j->job->min;
    struct cluster bare = {
        .n = q->in->cluster->n, .nodes = q->in->cluster->nodes, .used = q->in->foreign};
    return (bare.used ? fit_count(&bare, spec, min) : fit_count_empty(q->in->cluster, spec, min)) >=
           min;
}

/* ---- claims ---------------------------------------------------------------------------------- */

int64_t queue_claim_of(const struct queue *q, const struct queue_job *j)
{
    bool wants = queue_is_waiting(j->job) || j->job->status.phase == JOB_STARTING;
    return wants && q->in->now < j->claimed + CLAIM ? j->claimed : MOMENT_NONE;
}

static bool is_named(const struct hvdjob *job, const char *key)
{
    size_t n = strlen(job->namespace_);
    return strncmp(job->namespace_, key, n) == 0 && key[n] == '/' &&
           strcmp(job->name, key + n + 1) == 0;
}

struct queue_job *queue_preemptor(const struct queue *q, const struct queue_job *j)
{
    const struct hvdjob_status *st = &j->job->status;
    if (!st->preempted_by || q->in->now >= st->last_preemption + CLAIM)
        return NULL;
    for (int i = 0; i < q->in->n; i++) {
        struct queue_job *by = &q->in->jobs[i];
        if (is_named(by->job, st->preempted_by))
            return queue_is_waiting(by->job) && queue_waits_since(by->job) <= st->last_preemption
                       ? by
                       : NULL;
    }
    return NULL;
}

bool queue_is_claimed(const struct queue *q, const struct queue_job *j)
{
    return j->gates && q->claimed.n > 0 && fit_count(&q->claimed, &j->demand->spec, 1) > 0;
}

/* First the workers that fit now, then the others on nodes that they will fit on. */
void queue_hold(struct queue *q, const struct queue_job *j)
{
    const struct podspec *spec = &j->demand->spec;
    struct cluster empty = *q->in->cluster;
    q->holder = j->job;
    int n = fit_plan(q->in->cluster, spec, j->job->min, q->counts);
    place(q, spec);
    empty.used = q->held;
    empty.ports = NULL;
    fit_plan(&empty, spec, j->job->min - n, q->counts);
    place(q, spec);
    for (int i = 0; i < empty.n; i++)
        fit_place(&empty, i, spec, q->counts[i]);
}

/* ---- stuck pods ------------------------------------------------------------------------------ */

/* Would a worker of j fit on the pod's node if the pod were gone? */
static bool keeps_away(const struct queue *q, const struct queue_job *j,
                       const struct queue_stuck *s)
{
    const struct cluster *c = q->in->cluster;
    const struct cluster one = {.n = 1, .nodes = &c->nodes[s->node], .used = &c->used[s->node]};
    if (fit_count(&one, &j->demand->spec, 1) > 0)
        return false;
    resources_count(one.used, &s->requests, -1);
    bool fits = fit_count(&one, &j->demand->spec, 1) > 0;
    resources_count(one.used, &s->requests, 1);
    return fits;
}

void queue_say_stuck(const struct queue *q, struct queue_job *j)
{
    char text[512];
    for (int i = 0; i < q->in->nstuck; i++) {
        const struct queue_stuck *s = &q->in->stuck[i];
        if (!keeps_away(q, j, s))
            continue;
        workers_say_terminating(s->pod, q->in->cluster->nodes[s->node].name, s->leaves_by, text,
                                sizeof(text));
        queue_say(j, "; %s", text);
        return;
    }
}

/* ---- gangs in probe -------------------------------------------------------------------------- */

static uint64_t pool_of(const struct queue_job *j)
{
    uint64_t h = 0;
    for (const char *p = j->demand->spec.selector.text; p && *p; p += strlen(p) + 1)
        h = h * 31 + hash_str(p);
    return h;
}

void queue_note_probe(struct queue *q, const struct queue_job *j)
{
    if (q->nprobes < QUEUE_PROBES_MAX)
        q->probes[q->nprobes++] = (struct probe){j->job, pool_of(j)};
}

const struct hvdjob *queue_probe_of(const struct queue *q, const struct queue_job *j, bool *full)
{
    int most = q->in->policy.probes < QUEUE_PROBES_MAX ? q->in->policy.probes : QUEUE_PROBES_MAX;
    const struct hvdjob *own = NULL;
    int nown = 0;
    for (int i = 0; i < q->nprobes; i++) {
        const struct probe *p = &q->probes[i];
        if (strcmp(p->job->namespace_, j->job->namespace_) != 0)
            continue;
        own = p->job;
        nown++;
        *full = false;
        if (p->pool == pool_of(j))
            return own;
    }
    *full = q->nprobes >= most || (own && nown >= most / 2);
    return *full ? own ? own : q->probes[0].job : NULL;
}
