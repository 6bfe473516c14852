/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_room: what is reserved on nodes, what each tenant holds, and which gangs are in probe.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"

int queue_room_init(struct queue *q)
{
    const struct cluster *c = q->in->cluster;
    if (!c)
        return 0;
    q->later = *c;
    q->later.used = calloc((size_t)c->n + 1, sizeof(*q->later.used));
    q->held = calloc((size_t)c->n + 1, sizeof(*q->held));
    if (!q->later.used || !q->held)
        return -ENOMEM;
    for (int i = 0; i < c->n; i++) {
        q->later.used[i] = c->used[i];
        if (q->in->freeing)
            resources_subtract(&q->later.used[i], &q->in->freeing[i]);
        resources_add(&q->total, &c->nodes[i].allocatable);
    }
    return 0;
}

void queue_room_fini(struct queue *q)
{
    free(q->later.used);
    free(q->held);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static int kinds(const struct queue *q)
{
    return q->in->cluster ? resources_count(q->in->cluster->kinds) : 0;
}

static void add_holding(struct queue *q, const struct queue_job *j, int n)
{
    struct tenant *t = queue_tenant(q, j->job);
    for (; n > 0; n--)
        resources_add(&t->holds, &j->demand->spec.requests);
    t->share = 0;
    for (int k = 0; k < kinds(q); k++) {
        double share =
            q->total.amount[k] > 0 ? (double)t->holds.amount[k] / (double)q->total.amount[k] : 0;
        if (k != RESOURCES_PODS && share > t->share)
            t->share = share;
    }
}

int queue_share_allows(const struct queue *q, const struct queue_job *j, int limit, int *ret_kind)
{
    const struct tenant *t = queue_tenant(q, j->job);
    const struct resources *need = &j->demand->spec.requests;
    for (int k = 0; k < kinds(q) && q->in->policy.share < 100; k++) {
        if (k == RESOURCES_PODS || need->amount[k] <= 0 || q->total.amount[k] <= 0)
            continue; /* a resource that no node has may come with an autoscaler's nodes */
        int64_t most = (int64_t)((double)q->total.amount[k] * q->in->policy.share / 100);
        int64_t left = most - t->holds.amount[k];
        int64_t n = left > 0 ? left / need->amount[k] : 0;
        if (n >= limit)
            continue;
        limit = (int)n;
        *ret_kind = k;
    }
    return limit;
}

/* ---- reservations ---------------------------------------------------------------------------- */

bool queue_certain(const struct queue *q, const struct queue_job *j)
{
    return q->in->cluster && !j->demand->spec.unjudged && j->job->status.rollbacks == 0;
}

/* Reserves in both views of the cluster. */
static void reserve(struct queue *q, const struct queue_job *j, int n)
{
    const struct podspec *spec = &j->demand->spec;
    struct cluster *c = q->in->cluster;
    for (int i = 0; c && i < c->n && n > 0; i++) {
        int k = fit_count_on(c, i, spec, n);
        fit_place(c, i, spec, k);
        fit_place(&q->later, i, spec, k);
        n -= k;
    }
}

void queue_reserve(struct queue *q, struct queue_job *j, int n)
{
    if (j->gates)
        reserve(q, j, n);
    add_holding(q, j, n);
}

void queue_reserve_admitted(struct queue *q, struct queue_job *j)
{
    bool starting = j->gates && j->job->status.phase == JOB_STARTING && !j->job->deleting;
    int missing = starting ? j->job->min - j->bound : 0;
    int n = j->unbound > missing ? j->unbound : missing;
    bool fits = q->in->cluster && fit_count(q->in->cluster, &j->demand->spec, missing) >= missing;
    if (missing > 0 && (!fits || !queue_certain(q, j)))
        queue_note_probe(q, j);
    if (missing > 0)
        queue_crowd(q, j->priority);
    reserve(q, j, n);
    add_holding(q, j, j->bound + (n > 0 ? n : 0));
}

void queue_reserve_later(struct queue *q, const struct queue_job *j)
{
    const struct podspec *spec = &j->demand->spec;
    int n = j->job->min;
    for (int i = 0; i < q->later.n && n > 0; i++) {
        int k = fit_count_on(&q->later, i, spec, n);
        fit_place(&q->later, i, spec, k);
        fit_place(q->in->cluster, i, spec, k);
        n -= k;
    }
}

/* First the workers that fit now, then the others on nodes that they will fit on. */
void queue_hold(struct queue *q, const struct queue_job *j)
{
    const struct podspec *spec = &j->demand->spec;
    struct cluster *c = q->in->cluster, empty = *c;
    int n = j->job->min;
    q->holder = j->job;
    for (int i = 0; i < c->n && n > 0; i++) {
        int k = fit_count_on(c, i, spec, n);
        fit_place(c, i, spec, k);
        fit_place(&q->later, i, spec, k);
        n -= k;
    }
    empty.used = q->held;
    for (int i = 0; i < c->n && n > 0; i++) {
        int k = fit_count_on(&empty, i, spec, n);
        fit_place(&empty, i, spec, k);
        fit_place(c, i, spec, k);
        fit_place(&q->later, i, spec, k);
        n -= k;
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
    int most = q->in->policy.probes;
    *full = false;
    for (int i = 0; i < q->nprobes; i++)
        if (q->probes[i].pool == pool_of(j) &&
            strcmp(q->probes[i].job->namespace_, j->job->namespace_) == 0)
            return q->probes[i].job;
    *full = q->nprobes >= (most < QUEUE_PROBES_MAX ? most : QUEUE_PROBES_MAX);
    return *full ? q->probes[0].job : NULL;
}
