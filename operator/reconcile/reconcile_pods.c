/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_pods: which pods the current phase creates, ungates and deletes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/names.h"
#include "operator/reconcile/reconcile_private.h"

static int add(struct reconciling *r, enum action_kind kind, const struct pod *p, const char *why)
{
    return actions_add(r->ret, (struct action){.kind = kind, .pod = p, .why = why}, r->err);
}

/* ---- deleting ------------------------------------------------------------------------------- */

/* Has the worker of pod i a later pod that has finished? Pods are sorted by worker and attempt. */
static bool has_later_finished(const struct reconciling *r, int i)
{
    for (int k = i + 1; k < r->w.n && r->w.mine[k]->worker == r->w.mine[i]->worker; k++)
        if (pod_finished(r->w.mine[k]))
            return true;
    return false;
}

/* Deletes superseded pods, except the last finished one of each worker: its log says why it
 * ended. Of a finished job strayed pods, too: nothing supersedes them any more. */
static int delete_superseded(struct reconciling *r)
{
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        bool old =
            worker_superseded(r->st, p) || (worker_strayed(p) && r->job->clean != CLEAN_NONE);
        bool keep = pod_finished(p) && r->job->clean != CLEAN_ALL && !has_later_finished(r, i);
        if (p->deleting || !old || keep)
            continue;
        int rc = add(r, ACTION_DELETE_POD, p, pod_finished(p) ? "replaced" : "superseded");
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int delete_alive(struct reconciling *r, bool running_too, const char *why)
{
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!worker_alive(r->st, p) || (!running_too && p->phase == POD_RUNNING))
            continue;
        int rc = add(r, ACTION_DELETE_POD, p, why);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct candidate {
    const struct pod *pod;
    int worth; /* the lowest is deleted first */
};

static int by_worth(const void *a, const void *b)
{
    const struct candidate *p = a, *q = b;
    return p->worth != q->worth ? p->worth - q->worth : q->pod->worker - p->pod->worker;
}

/* If there are too many workers, first those without a node are deleted, then those on whose nodes
 * the queue needs room, then those that do not run, then the highest worker numbers. */
static int worth(const struct reconciling *r, const struct pod *p)
{
    return !p->node                                       ? 0
           : admission_takes(r->in->admission, p->worker) ? 1
                                                          : 2 + (p->phase == POD_RUNNING);
}

static void note_taken(struct reconciling *r, int n)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_TAKEN];
    snprintf(say->reason, sizeof(say->reason), "Preempted");
    snprintf(say->text, sizeof(say->text),
             "gives up %d worker%s to job %s, which has a higher priority", n, n == 1 ? "" : "s",
             r->in->admission->by);
}

static int delete_surplus(struct reconciling *r, int surplus)
{
    int rc = 0, n = 0, taken = 0;
    struct candidate *alive = malloc(((size_t)r->w.n + 1) * sizeof(*alive));
    if (!alive)
        return err_set(r->err, ENOMEM, "no memory");
    for (int i = 0; i < r->w.n; i++)
        if (worker_alive(r->st, r->w.mine[i]))
            alive[n++] = (struct candidate){r->w.mine[i], worth(r, r->w.mine[i])};
    qsort(alive, (size_t)n, sizeof(*alive), by_worth);
    for (int i = 0; i < surplus && i < n && rc == 0; i++) {
        taken += admission_takes(r->in->admission, alive[i].pod->worker);
        rc = add(r, ACTION_DELETE_POD, alive[i].pod, "more workers than the job is to have");
    }
    free(alive);
    if (taken > 0)
        note_taken(r, taken);
    return rc;
}

/* ---- making --------------------------------------------------------------------------------- */

/* Has a pod that is not this job's the name of this worker's pod? */
static bool is_taken(const struct reconciling *r, int worker, int attempt)
{
    char name[NAMES_MAX];
    if (!r->w.foreign)
        return false;
    names_pod(r->job, worker, attempt, name);
    for (int i = 0; i < r->in->npods; i++)
        if (strcmp(r->in->pods[i]->name, name) == 0 &&
            strcmp(r->in->pods[i]->owner, r->job->uid) != 0)
            return true;
    return false;
}

/* Returns the attempt of the worker's next pod: the status's, or one more than the highest of its
 * existing pods. *pos moves on to the worker's first pod in the sorted list. */
static int free_attempt(const struct reconciling *r, int worker, int *pos)
{
    int attempt = hvdjob_status_attempt(r->st, worker);
    while (*pos < r->w.n && r->w.mine[*pos]->worker < worker)
        (*pos)++;
    for (int i = *pos; i < r->w.n && r->w.mine[i]->worker == worker; i++)
        if (r->w.mine[i]->attempt >= attempt)
            attempt = r->w.mine[i]->attempt + 1;
    return attempt;
}

static bool has_alive(const struct reconciling *r, int worker, int pos)
{
    while (pos < r->w.n && r->w.mine[pos]->worker < worker)
        pos++;
    for (; pos < r->w.n && r->w.mine[pos]->worker == worker; pos++)
        if (worker_alive(r->st, r->w.mine[pos]))
            return true;
    return false;
}

/* Creates pods for the lowest worker numbers that have none alive. If somebody else's pod has the
 * name, the worker's next one is used: the gang must not hold room while it waits for others. */
static int create(struct reconciling *r, int missing)
{
    int pos = 0;
    for (int worker = 0; missing > 0 && worker < r->job->workers + r->w.n; worker++) {
        if (has_alive(r, worker, pos))
            continue;
        missing--;
        int attempt = free_attempt(r, worker, &pos);
        r->st->restarts += attempt > hvdjob_status_attempt(r->st, worker);
        while (is_taken(r, worker, attempt))
            attempt++;
        int rc = hvdjob_status_raise(r->st, worker, attempt, r->err);
        if (rc == 0)
            rc = actions_add(
                r->ret,
                (struct action){.kind = ACTION_CREATE_POD, .worker = worker, .attempt = attempt},
                r->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Earlier operators created the pods of a waiting gang, with a scheduling gate. */
static int delete_gated(struct reconciling *r, int *deleted)
{
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!p->gated || !worker_alive(r->st, p))
            continue;
        int rc = add(r, ACTION_DELETE_POD, p, "it has the scheduling gate of an earlier operator");
        if (rc < 0)
            return rc;
        ++*deleted;
    }
    return 0;
}

/* How many workers the job is to have: spec.workers, unless the queue gives an elastic job fewer.
 * Before the queue has decided, an elastic job does not grow. */
static int wanted_workers(const struct reconciling *r)
{
    const struct hvdjob *job = r->job;
    int most = !r->in->admission ? r->w.alive : r->in->admission->workers;
    if (!job->elastic || most >= job->workers || (r->in->admission && most == 0))
        return job->workers;
    int granted = r->st->min_granted,
        least = granted > 0 && granted < job->min ? granted : job->min;
    return most > least ? most : least;
}

/* Creates or deletes pods until so many are alive. */
static int have_workers(struct reconciling *r)
{
    int missing = wanted_workers(r) - r->w.alive, rc = 0;
    int64_t pause = reconcile_pause(r);
    if (missing < 0 && !r->job->refused)
        return delete_surplus(r, -missing);
    if (missing <= 0 || r->held || r->job->refused || !r->in->gang)
        return 0;
    if (pause != MOMENT_NONE) {
        actions_again(r->ret, pause);
        return 0;
    }
    if (!r->st->template_hash[0])
        snprintf(r->st->template_hash, sizeof(r->st->template_hash), "%s", r->job->template_hash);
    if (r->in->gang->group && !r->in->has_group)
        rc = actions_add(r->ret, (struct action){.kind = ACTION_CREATE_GROUP}, r->err);
    return rc < 0 ? rc : create(r, missing);
}

/* Moves workers away from nodes that are drained. Their replacements are created once the cache
 * shows the deletions, so that no worker of the same number is alive twice. */
static int keep_workers(struct reconciling *r)
{
    int moved = 0, rc = delete_gated(r, &moved);
    rc = rc < 0 || moved > 0 ? rc : drain_move(r, &moved);
    return rc < 0 || moved > 0 ? rc : have_workers(r);
}

/* ---- phases --------------------------------------------------------------------------------- */

static int finish_pods(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    int rc = r->job->clean == CLEAN_NONE ? 0 : delete_alive(r, true, "the job has finished");
    for (int i = 0; i < r->w.n && r->job->clean == CLEAN_ALL && rc == 0; i++)
        if (pod_finished(r->w.mine[i]) && !r->w.mine[i]->deleting &&
            !worker_superseded(st, r->w.mine[i]))
            rc = add(r, ACTION_DELETE_POD, r->w.mine[i], "the job has finished");
    if (rc < 0 || r->job->ttl < 0)
        return rc;
    int64_t at = st->completed + r->job->ttl * MOMENT_S;
    if (r->in->now >= at)
        return add(r, ACTION_DELETE_JOB, NULL, "ttlSecondsAfterFinished have passed");
    actions_again(r->ret, at);
    return 0;
}

int reconcile_pods(struct reconciling *r)
{
    int deleted = 0, rc = delete_superseded(r);
    if (rc < 0)
        return rc;
    switch (r->st->phase) {
    case JOB_QUEUED:
        return delete_gated(r, &deleted);
    case JOB_STARTING:
    case JOB_RUNNING:
    case JOB_WAITING:
        return keep_workers(r);
    case JOB_COMPLETING:
        /* A worker that starts now would repeat the training that the others have finished. */
        return delete_alive(r, false, "the job is completing");
    case JOB_SUCCEEDED:
    case JOB_FAILED:
        return finish_pods(r);
    case JOB_NEW:
    case JOB_SUSPENDED:
    case JOB_RESTARTING:
    case JOB_PHASES:
        break;
    }
    return delete_alive(r, true, job_phase_name(r->st->phase));
}
