/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_phase: which events of the table have happened, and what a change of phase does to the
 * status.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/words.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/reconcile_private.h"

/* Time for the garbage collector to delete the PodGroup of a former job of the same name. */
#define GROUP_GOES (10 * MOMENT_S)

static bool deadline_over(struct reconciling *r)
{
    if (r->job->deadline < 0 || r->st->started == MOMENT_NONE)
        return false;
    int64_t at = r->st->started + r->job->deadline * MOMENT_S;
    if (r->in->now < at)
        actions_again(r->ret, at);
    return r->in->now >= at;
}

int reconcile_gang_timeout(const struct reconciling *r)
{
    int most = r->in->gang_timeout_max;
    return most > 0 && r->job->gang_timeout > most ? most : r->job->gang_timeout;
}

/* Only with the back end "gates": with a PodGroup the scheduler binds all pods or none, so a
 * waiting gang holds no resources. */
static bool gang_timed_out(struct reconciling *r)
{
    int64_t at = r->st->admitted + reconcile_gang_timeout(r) * MOMENT_S;
    if (!r->in->gang || r->in->gang->group || r->w.bound >= r->job->min)
        return false;
    if (r->in->now < at)
        actions_again(r->ret, at);
    return r->in->now >= at;
}

static bool may_retry(struct reconciling *r)
{
    int64_t until = reconcile_pause(r);
    if (until != MOMENT_NONE)
        actions_again(r->ret, until);
    return r->w.alive == 0 && until == MOMENT_NONE;
}

static bool admitted(const struct reconciling *r)
{
    return r->in->gang && !r->job->refused && r->in->admission && r->in->admission->go;
}

/* in->refused may be older than the admission. */
static bool was_refused(struct reconciling *r)
{
    int64_t at = r->in->group_taken ? r->st->admitted + GROUP_GOES : r->in->now;
    if (r->job->status.phase != JOB_STARTING || !r->in->refused || r->w.alive >= r->job->min)
        return false;
    if (r->in->now < at)
        actions_again(r->ret, at);
    return r->in->now >= at;
}

static bool happens(struct reconciling *r, enum job_event event)
{
    const struct hvdjob *job = r->job;
    const struct workers *w = &r->w;
    switch (event) {
    case EVENT_ACCEPT:
        return !job->suspend && !job->refused;
    case EVENT_SUSPEND:
        return job->suspend;
    case EVENT_DEADLINE:
        return deadline_over(r);
    case EVENT_LIMIT:
        return r->st->failures > job->backoff_limit;
    case EVENT_RULE_FAILS:
        return r->ruled && r->ruled->action == FAILURE_FAIL_JOB;
    case EVENT_RULE_RESTARTS:
        return r->ruled && r->ruled->action == FAILURE_RESTART_GANG;
    case EVENT_ADMIT:
        return admitted(r);
    case EVENT_REFUSED:
        return was_refused(r);
    case EVENT_PREEMPTED:
        return r->in->admission && r->in->admission->preempted;
    case EVENT_TIMEOUT:
        return gang_timed_out(r);
    case EVENT_READY:
        return w->running >= job->min;
    case EVENT_BELOW:
        return w->running < job->min;
    case EVENT_EMPTY:
        return w->running == 0;
    case EVENT_DRAIN:
        return r->drain.restart;
    case EVENT_WORKER_LOST:
        return !job->elastic && w->alive != job->workers;
    case EVENT_ENDED:
        return w->ended > 0;
    case EVENT_RETRY:
        return may_retry(r);
    case EVENT_DONE:
        return w->alive == 0;
    case EVENT_FAILED_LATE:
        return w->alive == 0 && r->st->failed_late;
    case JOB_EVENTS:
        break;
    }
    return false;
}

static int new_round(struct reconciling *r)
{
    r->st->template_hash[0] = '\0';
    hvdjob_status_new_round(r->st, r->w.attempt_seen);
    workers_fini(&r->w);
    return workers_init(&r->w, r->job, r->st, r->in->pods, r->in->npods, r->err);
}

/* New names only if pods may have existed: the first pods are "NAME-0-0" and so on. */
static int enter_queue(struct reconciling *r)
{
    r->st->queued = moment_whole(r->in->now);
    job_drains_fini(&r->st->drains);
    r->st->drain_since = MOMENT_NONE;
    r->st->min_granted = 0;
    if (r->w.n > 0 || r->st->admitted != MOMENT_NONE)
        return new_round(r);
    r->st->template_hash[0] = '\0';
    return 0;
}

static int set_text(struct reconciling *r, char **dst, const char *text)
{
    return words_set(dst, text) < 0 ? err_set(r->err, ENOMEM, "no memory") : 0;
}

/* The gang has its nodes, or does not want any: what kept it from them is past. */
static int settle(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    st->rollbacks = st->refusals = 0;
    st->last_rollback = st->last_refusal = st->last_preemption = st->claimed = MOMENT_NONE;
    int rc = set_text(r, &st->refusal, NULL);
    return rc < 0 ? rc : set_text(r, &st->preempted_by, NULL);
}

static int act(struct reconciling *r, enum job_action action)
{
    struct hvdjob_status *st = r->st;
    int64_t now = moment_whole(r->in->now);
    switch (action) {
    case DO_QUEUE:
        return enter_queue(r);
    case DO_ADMIT:
        st->gang_restarts += st->admitted != MOMENT_NONE;
        st->admitted = now;
        st->min_granted = r->job->min;
        if (st->started == MOMENT_NONE)
            st->started = now;
        break;
    case DO_ROLLBACK:
        st->rollbacks++;
        st->last_rollback = now;
        break;
    case DO_REFUSE:
        st->refusals++;
        st->last_refusal = now;
        return set_text(r, &st->refusal, r->in->refused);
    case DO_PREEMPT:
        st->last_preemption = now;
        return set_text(r, &st->preempted_by, r->in->admission->by);
    case DO_SETTLE:
        return settle(r);
    case DO_SUSPEND:
        st->failures = st->losses = 0;
        st->last_loss = st->started = MOMENT_NONE;
        free(st->rule);
        st->rule = NULL;
        return settle(r);
    case DO_FINISH:
        st->completed = now;
        break;
    case DO_NOTHING:
    case JOB_ACTIONS:
        break;
    }
    return 0;
}

/* The first row of the current phase whose event has happened. NULL: the phase stays. */
static const struct phase_row *next_row(struct reconciling *r)
{
    size_t n;
    const struct phase_row *rows = phase_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].phase == r->st->phase && happens(r, rows[i].event))
            return &rows[i];
    return NULL;
}

/* What the queue's last decision adds to the status. */
static void take_decision(struct reconciling *r)
{
    const struct admission *a = r->in->admission;
    struct hvdjob_status *st = r->st;
    bool waits = st->phase == JOB_NEW || st->phase == JOB_QUEUED;
    if (a && waits && a->claimed > st->claimed)
        st->claimed = a->claimed;
    if (waits) /* no workers exist; see delete_gated() */
        st->template_hash[0] = '\0';
    if (st->min_granted > r->job->min || (a && st->min_granted > 0 && a->workers >= r->job->min))
        st->min_granted = r->job->min;
}

/* At most JOB_PHASES changes in one call, so that a cycle in the table cannot loop for ever. */
int reconcile_phase(struct reconciling *r)
{
    const struct phase_row *row;
    take_decision(r);
    for (int i = 0; i < JOB_PHASES && (row = next_row(r)); i++) {
        struct actions *a = r->ret;
        /* The queue has decided only about jobs that were New or Queued: reconcile again. */
        bool undecided = row->next == JOB_QUEUED && r->job->status.phase != JOB_NEW;
        r->st->phase = row->next;
        int rc = act(r, row->action);
        if (rc < 0)
            return rc;
        struct action_event *say = &a->events[ACTION_EVENT_PHASE];
        snprintf(say->reason, sizeof(say->reason), "%s", job_phase_name(row->next));
        say->warning =
            row->next == JOB_FAILED || row->next == JOB_RESTARTING || row->next == JOB_WAITING;
        if (undecided) { /* the Event follows with the decision */
            say->reason[0] = '\0';
            actions_again(a, r->in->now);
            break;
        }
    }
    return 0;
}
