/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_pods: from a phase to pods. Which of them are deleted, which are let go, which are
 * made.
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

/* Has this worker a later pod that ended? Pods are sorted. */
static bool superseded(const struct reconciling *r, int i)
{
    for (int k = i + 1; k < r->w.n && r->w.mine[k]->worker == r->w.mine[i]->worker; k++)
        if (pod_over(r->w.mine[k]))
            return true;
    return false;
}

/* Of what is past the last pod of each worker that ended stays: its log says why. */
static int delete_past(struct reconciling *r)
{
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        bool old = worker_past(r->st, p);
        bool keep = pod_over(p) && r->job->clean != CLEAN_ALL && !superseded(r, i);
        if (p->deleting || !old || keep)
            continue;
        int rc = add(r, ACTION_DELETE_POD, p, pod_over(p) ? "replaced" : "of a former round");
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

/* Who goes first when there are too many: who holds least, then who came last. */
static int by_worth(const void *a, const void *b)
{
    const struct pod *p = *(const struct pod *const *)a, *q = *(const struct pod *const *)b;
    int p_worth = (p->node != NULL) + (p->phase == POD_RUNNING);
    int q_worth = (q->node != NULL) + (q->phase == POD_RUNNING);
    if (p_worth != q_worth)
        return p_worth - q_worth;
    return q->worker - p->worker;
}

static int delete_surplus(struct reconciling *r, int surplus)
{
    int rc = 0, n = 0;
    const struct pod **alive = malloc(((size_t)r->w.n + 1) * sizeof(*alive));
    if (!alive)
        return err_set(r->err, ENOMEM, "no memory");
    for (int i = 0; i < r->w.n; i++)
        if (worker_alive(r->st, r->w.mine[i]))
            alive[n++] = r->w.mine[i];
    qsort(alive, (size_t)n, sizeof(*alive), by_worth);
    for (int i = 0; i < surplus && i < n && rc == 0; i++)
        rc = add(r, ACTION_DELETE_POD, alive[i], "more workers than spec.workers");
    free(alive);
    return rc;
}

/* ---- making --------------------------------------------------------------------------------- */

/* A pod that is not ours and has this name: nothing is done to it, and we wait until it is gone. */
static bool is_foreign(struct reconciling *r, int worker, int attempt)
{
    char name[NAMES_MAX];
    names_pod(r->job, worker, attempt, name);
    for (int i = 0; i < r->in->npods && r->w.foreign; i++) {
        const struct pod *p = r->in->pods[i];
        if (strcmp(p->name, name) != 0 || strcmp(p->owner, r->job->uid) == 0)
            continue;
        snprintf(r->blocked, sizeof(r->blocked),
                 "pod %.100s has the name of worker %d and belongs to %s; delete that pod, or give "
                 "the job another name",
                 name, worker, p->owner[0] ? "another object" : "nobody");
        return true;
    }
    return false;
}

/* The first attempt of a worker whose name no pod of ours has. *pos: where its pods begin. */
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

/* Workers with the lowest numbers that are free. */
static int create(struct reconciling *r, int missing, bool gated)
{
    int pos = 0;
    for (int worker = 0; missing > 0 && worker < r->job->workers + r->w.n; worker++) {
        if (has_alive(r, worker, pos))
            continue;
        missing--; /* a name that is taken is no reason to go on to higher numbers */
        int attempt = free_attempt(r, worker, &pos);
        if (is_foreign(r, worker, attempt))
            continue;
        r->st->restarts += attempt > hvdjob_status_attempt(r->st, worker);
        int rc = hvdjob_status_raise(r->st, worker, attempt, r->err);
        if (rc == 0)
            rc = actions_add(r->ret,
                             (struct action){.kind = ACTION_CREATE_POD,
                                             .worker = worker,
                                             .attempt = attempt,
                                             .gated = gated},
                             r->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int lift(struct reconciling *r)
{
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        int rc = worker_alive(r->st, p) && p->gated ? add(r, ACTION_LIFT_GATE, p, "admitted") : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* As many workers as spec.workers says, with gates or without. */
static int have_workers(struct reconciling *r, bool gated)
{
    int missing = r->job->workers - r->w.alive, rc = 0;
    int64_t pause = reconcile_pause(r);
    if (missing < 0 && !r->job->refused)
        return delete_surplus(r, -missing);
    if (missing <= 0 || r->held || r->job->refused || !r->in->gang)
        return 0;
    if (pause != MOMENT_NONE) {
        actions_again(r->ret, pause);
        return 0;
    }
    if (!r->st->shape[0])
        snprintf(r->st->shape, sizeof(r->st->shape), "%s", r->job->shape);
    if (r->in->gang->group && !r->in->has_group)
        rc = actions_add(r->ret, (struct action){.kind = ACTION_CREATE_GROUP}, r->err);
    return rc < 0 ? rc : create(r, missing, gated);
}

/* ---- phases --------------------------------------------------------------------------------- */

/* Gates can only be taken away: a pod without one is no waiting pod. */
static int queue_pods(struct reconciling *r)
{
    if (!r->in->gang || r->in->gang->group)
        return 0;
    /* Whether it may go right now is not known yet: the queue is asked after this. */
    enum job_phase before = r->job->status.phase;
    if (!r->in->admission || r->in->admission->go || (before != JOB_QUEUED && before != JOB_NEW))
        return 0;
    actions_again(r->ret, r->in->admission->again);
    return have_workers(r, true);
}

static int finish_pods(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    int rc = r->job->clean == CLEAN_NONE ? 0 : delete_alive(r, true, "the job has ended");
    for (int i = 0; i < r->w.n && r->job->clean == CLEAN_ALL && rc == 0; i++)
        if (pod_over(r->w.mine[i]) && !r->w.mine[i]->deleting && !worker_past(st, r->w.mine[i]))
            rc = add(r, ACTION_DELETE_POD, r->w.mine[i], "the job has ended");
    if (rc < 0 || r->job->ttl < 0)
        return rc;
    int64_t at = st->completed + r->job->ttl * MOMENT_S;
    if (r->in->now >= at)
        return add(r, ACTION_DELETE_JOB, NULL, "ttlSecondsAfterFinished are over");
    actions_again(r->ret, at);
    return 0;
}

int reconcile_pods(struct reconciling *r)
{
    int rc = delete_past(r);
    if (rc < 0)
        return rc;
    switch (r->st->phase) {
    case JOB_QUEUED:
        return queue_pods(r);
    case JOB_STARTING:
    case JOB_RUNNING:
    case JOB_WAITING:
        rc = lift(r);
        return rc < 0 ? rc : have_workers(r, false);
    case JOB_COMPLETING:
        /* One that has not begun would begin anew what the others have ended. */
        return delete_alive(r, false, "the job is ending");
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
