/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_preempt: makes room for a gang by taking workers from gangs of a lower priority: first
 * those of elastic gangs beyond minWorkers, then whole gangs; the lowest priority and the last
 * admitted first. Workers without which the gang fits all the same are not taken. All or
 * nothing: if the gang would not fit without all of them either, none is taken. A gang with host
 * ports preempts none: which ports become free is not computed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"

struct victim {
    struct queue_job *job;
    int surplus; /* bound workers beyond minWorkers: the last so many of at */
    bool whole;  /* it gives up all workers */
    int each;    /* so many of its workers take the room of one of the new gang; see yields() */
    bool *given; /* [nat] it gives up this worker */
    int ngiven;
};

struct plan {
    struct queue *q;
    const struct queue_job *for_;
    struct cluster after; /* q->later without the workers that victims give up */
    struct victim *victims;
    int n;
    bool *given; /* of all victims' workers */
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

/* The order in which workers are kept: those of higher priorities, then those of which more would
 * have to go, then those that are given up last. */
static int by_yield(const void *a, const void *b)
{
    const struct victim *p = a, *q = b;
    if (p->job->priority != q->job->priority)
        return p->job->priority > q->job->priority ? -1 : 1;
    if (p->each != q->each)
        return p->each > q->each ? -1 : 1;
    return by_worth(b, a);
}

/* Of a gang that has given up workers in this run no others are taken: later runs see which are
 * left. */
static bool may_be_preempted(const struct queue_job *j, int priority)
{
    enum job_phase phase = j->job->status.phase;
    return j->gates && j->priority < priority && !j->job->deleting && !j->ret.preempted &&
           j->ret.workers == 0 &&
           (phase == JOB_STARTING || phase == JOB_RUNNING || phase == JOB_WAITING);
}

static bool fits(const struct plan *p)
{
    int min = p->for_->job->min;
    return fit_count(&p->after, &p->for_->demand->spec, min) >= min;
}

static void give(struct plan *p, struct victim *v, int worker, bool given)
{
    if (v->given[worker] == given)
        return;
    v->given[worker] = given;
    v->ngiven += given ? 1 : -1;
    fit_place(&p->after, v->job->at[worker], &v->job->demand->spec, given ? -1 : 1);
}

/* ---- a plan ---------------------------------------------------------------------------------- */

/* A job with an invalid spec deletes no workers; it can only be preempted as a whole. */
static int surplus_of(const struct queue_job *j)
{
    int n = j->job->elastic && !j->job->refused ? j->nat - queue_min(j) : 0;
    return n > 0 ? n : 0;
}

/* How many workers of the victim request as much as one of the new gang, of each resource;
 * INT32_MAX: no number of them does. */
static int yields(const struct queue_job *victim, const struct queue_job *for_)
{
    const struct resources *need = &for_->demand->spec.requests;
    resources_sum most = 1;
    for (size_t k = 0; k < resources_kinds(need); k++) {
        resources_sum want = resources_at(need, k);
        resources_sum has = resources_same(need, k, &victim->demand->spec.requests);
        resources_sum n = want <= 0 ? 1 : has <= 0 ? INT32_MAX : (want + has - 1) / has;
        most = n > most ? n : most;
    }
    return most < INT32_MAX ? (int)most : INT32_MAX;
}

static int plan_init(struct plan *p, struct queue *q, const struct queue_job *j)
{
    size_t workers = 0;
    *p = (struct plan){.q = q, .for_ = j, .after = q->later};
    p->after.used = queue_used_copy(&q->later, q->later.used);
    p->victims = calloc((size_t)q->in->n + 1, sizeof(*p->victims));
    if (!p->after.used || !p->victims)
        return -ENOMEM;
    for (int i = 0; i < q->in->n; i++) {
        if (!may_be_preempted(&q->in->jobs[i], j->priority) || !j->demand->preempts)
            continue;
        p->victims[p->n++].job = &q->in->jobs[i];
        workers += (size_t)q->in->jobs[i].nat;
    }
    if (p->n > 1)
        qsort(p->victims, (size_t)p->n, sizeof(*p->victims), by_worth);
    p->given = calloc(workers + 1, sizeof(*p->given));
    if (!p->given)
        return -ENOMEM;
    bool *next = p->given;
    for (int i = 0; i < p->n; i++) {
        struct victim *v = &p->victims[i];
        v->surplus = surplus_of(v->job);
        v->each = yields(v->job, j);
        v->given = next;
        next += v->job->nat;
    }
    return 0;
}

static void plan_fini(struct plan *p)
{
    queue_used_free(p->after.used, p->after.n);
    free(p->victims);
    free(p->given);
}

/* The first steps of taking workers: of each victim its surplus, then of each all workers. */
static void take(struct plan *p, int steps)
{
    for (int i = 0; i < p->n; i++) {
        struct victim *v = &p->victims[i];
        v->whole = i < steps - p->n;
        for (int k = 0; k < v->job->nat; k++)
            give(p, v, k, v->whole || (i < steps && k >= v->job->nat - v->surplus));
    }
}

/* Keeps whole gangs that would be preempted in vain: these give up their surplus only. The most
 * valuable is kept first. */
static void keep_gangs(struct plan *p)
{
    for (int i = p->n - 1; i >= 0; i--) {
        struct victim *v = &p->victims[i];
        for (int k = 0; v->whole && k < v->job->nat - v->surplus; k++)
            give(p, v, k, false);
        if (v->whole && fits(p))
            v->whole = false;
        for (int k = 0; v->whole && k < v->job->nat; k++)
            give(p, v, k, true);
    }
}

/* The same for single workers. room: how many workers of the new gang each node has room for, total
 * in all. Only the node of the kept worker changes. */
static void keep_workers(struct plan *p, struct victim *v, int *room, int *total)
{
    const struct podspec *spec = &p->for_->demand->spec;
    for (int k = v->job->nat - v->surplus; !v->whole && k < v->job->nat; k++) {
        int node = v->job->at[k];
        const struct cluster one = {
            .n = 1, .nodes = &p->after.nodes[node], .used = &p->after.used[node]};
        if (!v->given[k])
            continue;
        give(p, v, k, false);
        int n = room[node] > 0 ? fit_count(&one, spec, room[node]) : 0;
        if (*total - room[node] + n < p->for_->job->min) {
            give(p, v, k, true);
            continue;
        }
        *total += n - room[node];
        room[node] = n;
    }
}

/* True: the gang fits without the workers that are given up, and needs each of them. */
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
    while (low > 0 && low < p->n &&
           p->victims[low].job->priority == p->victims[low - 1].job->priority)
        low++; /* of one priority those that lose the fewest workers */
    take(p, low);
    keep_gangs(p);
    int *room = p->q->counts;
    int total = fit_plan(&p->after, &p->for_->demand->spec, INT32_MAX / 2, room);
    qsort(p->victims, (size_t)p->n, sizeof(*p->victims), by_yield);
    for (int i = 0; i < p->n; i++)
        keep_workers(p, &p->victims[i], room, &total);
    qsort(p->victims, (size_t)p->n, sizeof(*p->victims), by_worth);
    return true;
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Without memory for the list the job loses as many of its last workers. */
static void tell(struct plan *p, struct victim *v)
{
    const struct hvdjob *by = p->for_->job;
    const struct queue_job *j = v->job;
    struct admission *ret = &v->job->ret;
    ret->preempted = v->whole;
    ret->workers = v->whole ? 0 : j->bound - v->ngiven;
    snprintf(ret->by, sizeof(ret->by), "%.63s/%.63s", by->namespace_, by->name);
    if (!v->whole) {
        ret->taken = calloc((size_t)v->ngiven, sizeof(*ret->taken));
        queue_say(v->job, "it gives up %d worker%s to job %s, which has a higher priority",
                  v->ngiven, v->ngiven == 1 ? "" : "s", ret->by);
    }
    p->q->frees = true;
    for (int k = 0; k < j->nat; k++) {
        if (!v->given[k])
            continue;
        fit_place(&p->q->later, j->at[k], &j->demand->spec, -1);
        if (ret->taken && j->numbers)
            ret->taken[ret->ntaken++] = j->numbers[k];
    }
}

/* "preempts job ml/small (priority 0) and 2 others; waits for their workers to end" */
static void say(const struct plan *p, struct queue_job *j, int n)
{
    const struct victim *first = p->victims;
    char others[32] = "";
    while (n > 0 && first->ngiven == 0)
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
            if (p.victims[i].ngiven == 0)
                continue;
            tell(&p, &p.victims[i]);
            n++;
        }
        say(&p, j, n);
        if (n > 0)
            j->ret.claimed = moment_whole(q->in->now);
        queue_reserve_later(q, j);
    }
    if (may)
        plan_fini(&p);
    return done;
}
