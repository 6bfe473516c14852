/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_preempt: makes room for a gang by taking workers from gangs of a lower priority: first
 * those of elastic gangs beyond minWorkers, then whole gangs; the lowest priority and the last
 * admitted first. All or nothing: if the gang would not fit without them either, none is taken. A
 * gang with host ports preempts none: which ports become free is not computed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"

struct victim {
    struct queue_job *job;
    int given; /* bound workers that it gives up: the last so many of at */
};

struct plan {
    struct queue *q;
    const struct queue_job *for_;
    struct cluster after; /* q->later without the workers that victims give up */
    struct victim *victims;
    int n;
};

static int by_worth(const void *a, const void *b)
{
    const struct queue_job *p = ((const struct victim *)a)->job;
    const struct queue_job *q = ((const struct victim *)b)->job;
    if (p->priority != q->priority)
        return p->priority < q->priority ? -1 : 1;
    if (p->job->status.admitted != q->job->status.admitted)
        return p->job->status.admitted > q->job->status.admitted ? -1 : 1;
    return strcmp(p->job->uid, q->job->uid);
}

static bool may_be_preempted(const struct queue_job *j, int priority)
{
    enum job_phase phase = j->job->status.phase;
    return j->gates && j->priority < priority && !j->job->deleting && !j->ret.preempted &&
           (phase == JOB_STARTING || phase == JOB_RUNNING || phase == JOB_WAITING);
}

static bool fits(const struct plan *p)
{
    int min = p->for_->job->min;
    return fit_count(&p->after, &p->for_->demand->spec, min) >= min;
}

/* Sets how many bound workers the victim gives up. */
static void give(struct plan *p, struct victim *v, int n)
{
    const struct podspec *spec = &v->job->demand->spec;
    for (; v->given < n; v->given++)
        fit_place(&p->after, v->job->at[v->job->nat - 1 - v->given], spec, -1);
    for (; v->given > n; v->given--)
        fit_place(&p->after, v->job->at[v->job->nat - v->given], spec, 1);
}

/* Bound workers beyond minWorkers. Workers without a node are deleted before them. */
static int surplus(const struct victim *v)
{
    int n = v->job->job->elastic ? v->job->nat - v->job->job->min : 0;
    return n > 0 ? n : 0;
}

static int plan_init(struct plan *p, struct queue *q, const struct queue_job *j)
{
    *p = (struct plan){.q = q, .for_ = j, .after = q->later};
    p->after.used = queue_used_copy(&q->later, q->later.used);
    p->victims = calloc((size_t)q->in->n + 1, sizeof(*p->victims));
    if (!p->after.used || !p->victims)
        return -ENOMEM;
    for (int i = 0; i < q->in->n; i++)
        if (may_be_preempted(&q->in->jobs[i], j->priority) && j->demand->preempts)
            p->victims[p->n++].job = &q->in->jobs[i];
    if (p->n > 1)
        qsort(p->victims, (size_t)p->n, sizeof(*p->victims), by_worth);
    return 0;
}

static void plan_fini(struct plan *p)
{
    queue_used_free(p->after.used, p->after.n);
    free(p->victims);
}

/* The first steps of taking workers: of each victim its surplus, then of each all workers. */
static void take(struct plan *p, int steps)
{
    for (int i = 0; i < p->n; i++) {
        struct victim *v = &p->victims[i];
        give(p, v, i < steps - p->n ? v->job->nat : i < steps ? surplus(v) : 0);
    }
}

/* True: the gang fits. A victim gives up nothing, its surplus or all workers: the least of these
 * with which the gang fits. */
static bool choose(struct plan *p)
{
    int low = 0, high = 2 * p->n;
    take(p, high);
    if (!fits(p))
        return false;
    while (low < high) { /* fewest steps */
        int middle = (low + high) / 2;
        take(p, middle);
        if (fits(p))
            high = middle;
        else
            low = middle + 1;
    }
    take(p, low);
    for (int i = p->n - 1; i >= 0; i--) {
        struct victim *v = &p->victims[i];
        int given = v->given, less[] = {0, surplus(v)};
        for (int k = 0; k < 2 && v->given == given && less[k] < given; k++) {
            give(p, v, less[k]);
            if (!fits(p))
                give(p, v, given);
        }
    }
    return true;
}

static void tell(struct plan *p, struct victim *v)
{
    const struct hvdjob *by = p->for_->job;
    struct admission *ret = &v->job->ret;
    bool whole = v->given > surplus(v);
    snprintf(ret->why, sizeof(ret->why), "%.63s/%.63s", by->namespace_, by->name);
    ret->preempted = whole;
    ret->workers = whole ? 0 : v->job->job->min;
    p->q->frees = true;
    for (int i = 0; i < v->given; i++)
        fit_place(&p->q->later, v->job->at[v->job->nat - 1 - i], &v->job->demand->spec, -1);
}

/* "preempts job ml/small (priority 0) and 2 others; waits for their workers to end" */
static void say(const struct plan *p, struct queue_job *j, int n)
{
    const struct victim *first = p->victims;
    char others[32] = "";
    while (n > 0 && first->given == 0)
        first++;
    if (n > 1)
        snprintf(others, sizeof(others), " and %d more", n - 1);
    if (n == 0)
        snprintf(j->ret.why, sizeof(j->ret.why),
                 "its room is being made free: waits for workers of "
                 "other jobs to end");
    else
        snprintf(
            j->ret.why, sizeof(j->ret.why),
            "preempts job %.63s/%.63s (priority %d, this one has %d)%s; waits for their workers "
            "to end",
            first->job->job->namespace_, first->job->job->name, first->job->priority, j->priority,
            others);
}

bool queue_preempt(struct queue *q, struct queue_job *j)
{
    struct plan p;
    int n = 0;
    bool room = q->frees || (j->demand->preempts && q->lowest < j->priority);
    bool may = room && queue_certain(q, j) && j->demand->spec.ports.n == 0;
    bool done = may && plan_init(&p, q, j) == 0 && choose(&p);
    if (done) {
        for (int i = 0; i < p.n; i++) {
            if (p.victims[i].given == 0)
                continue;
            tell(&p, &p.victims[i]);
            n++;
        }
        say(&p, j, n);
        queue_reserve_later(q, j, n > 0);
    }
    if (may)
        plan_fini(&p);
    return done;
}
