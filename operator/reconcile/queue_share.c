/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_share: what the gangs of each namespace hold, and the administrator's limit of that.
 */
#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"

void queue_hold_share(struct queue *q, const struct queue_job *j, int n)
{
    struct tenant *t = queue_tenant(q, j->job);
    resources_count(&t->holds, &j->demand->spec.requests, n);
    t->share = 0;
    for (size_t k = 0; k < resources_kinds(&q->total); k++) {
        double all = (double)resources_at(&q->total, k);
        double share = all > 0 ? (double)resources_same(&q->total, k, &t->holds) / all : 0;
        if (share > t->share)
            t->share = share;
    }
}

void queue_loosen(struct queue *q, const struct queue_job *j, int n)
{
    resources_count(&queue_tenant(q, j->job)->loose, &j->demand->spec.requests, n);
}

/* False: a share is not counted of this kind. A resource that no node has may come with an
 * autoscaler's nodes. */
static bool limit_of(const struct queue *q, const struct queue_job *j, size_t kind, bool loose,
                     struct queue_limit *ret)
{
    const struct tenant *t = queue_tenant(q, j->job);
    const struct resources *need = &j->demand->spec.requests;
    resources_sum all = resources_same(need, kind, &q->total);
    *ret = (struct queue_limit){.kind = kind,
                                .each = resources_at(need, kind),
                                .held = resources_same(need, kind, &t->holds) +
                                        (loose ? resources_same(need, kind, &t->loose) : 0),
                                .allowed = all * q->in->policy.share / 100};
    return q->in->policy.share < 100 && ret->each > 0 && all > 0;
}

int queue_share_allows(const struct queue *q, const struct queue_job *j, int limit, bool loose,
                       struct queue_limit *ret)
{
    for (size_t k = 0; k < resources_kinds(&j->demand->spec.requests); k++) {
        struct queue_limit of;
        if (!limit_of(q, j, k, loose, &of))
            continue;
        resources_sum left = of.allowed - of.held, n = left > 0 ? left / of.each : 0;
        if (n >= limit)
            continue;
        limit = (int)n;
        if (ret)
            *ret = of;
    }
    return limit;
}

static const char *amount(const struct queue_job *j, size_t kind, resources_sum of, char text[32])
{
    const struct podspec *spec = &j->demand->spec;
    resources_write_amount(&spec->requests, kind, spec->names, of, text, 32);
    return text;
}

void queue_say_share(const struct queue *q, struct queue_job *j, struct queue_limit limit, int n,
                     bool whole)
{
    const struct podspec *spec = &j->demand->spec;
    char asked[32], held[32], allowed[32];
    bool never = false;
    for (size_t k = 0; k < resources_kinds(&spec->requests) && whole && !never; k++) {
        struct queue_limit of;
        never = limit_of(q, j, k, false, &of) && n * of.each > of.allowed;
        limit = never ? of : limit;
    }
    amount(j, limit.kind, n * limit.each, asked);
    amount(j, limit.kind, limit.held, held);
    amount(j, limit.kind, limit.allowed, allowed);
    queue_say(j,
              "the jobs of a namespace may hold %d %% of the cluster's %s, and with %s those of "
              "%.63s would hold more: %s asked, %s held, %s allowed%s",
              q->in->policy.share, resources_name(&spec->requests, limit.kind, spec->names),
              whole ? "this job" : "more of its workers", j->job->namespace_, asked, held, allowed,
              never ? "; the job can never start" : "");
}
