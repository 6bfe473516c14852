/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: see queue.h.
 */
#include "operator/reconcile/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/backoff.h"

struct queue {
    struct cluster *cluster;
    int64_t now;
    const struct hvdjob *tried; /* the one admitted gang of which fitting is unknown, NULL: none */
    const struct hvdjob *first; /* has waited QUEUE_PATIENCE: blocks younger jobs; NULL: none */
};

static int64_t waits_since(const struct hvdjob *job)
{
    return job->status.queued != MOMENT_NONE ? job->status.queued : job->created;
}

static int by_turn(const void *a, const void *b)
{
    const struct hvdjob *p = ((const struct queue_job *)a)->job;
    const struct hvdjob *q = ((const struct queue_job *)b)->job;
    if (waits_since(p) != waits_since(q))
        return waits_since(p) < waits_since(q) ? -1 : 1;
    if (p->created != q->created)
        return p->created < q->created ? -1 : 1;
    return strcmp(p->uid, q->uid);
}

/* Is fit.h's result reliable for this job? */
static bool certain(const struct queue *q, const struct hvdjob *job)
{
    return q->cluster && !job->podspec.unjudged && job->status.rollbacks == 0;
}

/* Reserves for workers that the scheduler may place at any time, and for the missing workers of an
 * admitted gang, also before their pods exist. */
static void reserve_admitted(struct queue *q, const struct queue_job *j)
{
    bool starting = j->gates && j->job->status.phase == JOB_STARTING && !j->job->deleting;
    int missing = starting ? j->job->min - j->bound : 0;
    bool fits = q->cluster && fit_count(q->cluster, &j->job->podspec, missing) >= missing;
    if (missing > 0 && (!fits || !certain(q, j->job)) && !q->tried)
        q->tried = j->job;
    if (q->cluster)
        fit_reserve(q->cluster, &j->job->podspec, j->unbound > missing ? j->unbound : missing);
}

static void wait(struct queue_job *j, int64_t again)
{
    j->ret.go = false;
    if (again < j->ret.again)
        j->ret.again = again;
}

static void go(struct queue *q, struct queue_job *j, bool sure)
{
    j->ret.go = true;
    if (!sure)
        q->tried = j->job;
    if (q->cluster)
        fit_reserve(q->cluster, &j->job->podspec, j->job->workers);
}

static void wait_for_try(const struct queue *q, struct queue_job *j, const char *reason)
{
    snprintf(j->ret.why, sizeof(j->ret.why),
             "it is not known whether its workers fit (%s); such jobs are tried one at a time, and "
             "job %.63s/%.63s is being tried",
             reason, q->tried->namespace_, q->tried->name);
    wait(j, INT64_MAX);
}

static const char *doubt(const struct queue *q, const struct hvdjob *job)
{
    if (!q->cluster)
        return "the operator may not list nodes";
    return job->podspec.unjudged ? job->podspec.unjudged : "they did not fit before";
}

/* For a gang that does not fit now: admits it as a trial after gang.probeSeconds, else lets it wait
 * and says why. */
static void wait_for_room(struct queue *q, struct queue_job *j)
{
    const struct hvdjob *job = j->job;
    int64_t since = waits_since(job), probe = since + job->probe * MOMENT_S;
    if (job->probe > 0 && q->now >= probe && !q->tried) {
        go(q, j, false);
        return;
    }
    fit_explain(q->cluster, &job->podspec, job->min, j->ret.why, sizeof(j->ret.why));
    wait(j, job->probe > 0 && probe > q->now ? probe : INT64_MAX);
    bool possible = fit_count_empty(q->cluster, &job->podspec, job->min) >= job->min;
    if (possible && q->now >= since + QUEUE_PATIENCE && !q->first)
        q->first = job;
    else if (possible)
        wait(j, since + QUEUE_PATIENCE > q->now ? since + QUEUE_PATIENCE : INT64_MAX);
}

static void decide(struct queue *q, struct queue_job *j)
{
    const struct hvdjob *job = j->job;
    int64_t pause = backoff(job->status.rollbacks, BACKOFF_GANG, BACKOFF_GANG_MAX);
    if (job->status.rollbacks > 0 && q->now < job->status.last_rollback + pause) {
        snprintf(
            j->ret.why, sizeof(j->ret.why),
            "fewer than %d of its workers got a node within %d s, so all were deleted; the job is "
            "tried again %" PRId64 " s after that",
            job->min, job->gang_timeout, pause / MOMENT_S);
        wait(j, job->status.last_rollback + pause);
        return;
    }
    if (q->first) {
        snprintf(j->ret.why, sizeof(j->ret.why),
                 "job %.63s/%.63s is older and has waited longer than %d s: it is admitted first",
                 q->first->namespace_, q->first->name, (int)(QUEUE_PATIENCE / MOMENT_S));
        wait(j, INT64_MAX);
        return;
    }
    bool fits = !q->cluster || fit_count(q->cluster, &job->podspec, job->min) >= job->min;
    if (!fits)
        wait_for_room(q, j);
    else if (certain(q, job))
        go(q, j, true);
    else if (!q->tried)
        go(q, j, false);
    else
        wait_for_try(q, j, doubt(q, job));
}

void queue_decide(struct queue_job *jobs, int n, struct cluster *cluster, int64_t now)
{
    struct queue q = {.cluster = cluster, .now = now};
    if (n > 1)
        qsort(jobs, (size_t)n, sizeof(*jobs), by_turn);
    for (int i = 0; i < n; i++) {
        jobs[i].ret = (struct admission){.again = INT64_MAX};
        reserve_admitted(&q, &jobs[i]);
    }
    for (int i = 0; i < n; i++) {
        const struct hvdjob *job = jobs[i].job;
        bool waits = job->status.phase == JOB_QUEUED || job->status.phase == JOB_NEW;
        if (!waits || job->deleting || job->suspend || job->refused)
            continue;
        if (jobs[i].gates)
            decide(&q, &jobs[i]);
        else
            jobs[i].ret.go = true;
    }
}
