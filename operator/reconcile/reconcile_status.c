/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_status: counts, conditions and the message of a job's status. The message of each
 * phase in which a job waits says what it waits for.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/words.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/reconcile_private.h"

#define UNAPPLIED                                                                                  \
    "the change of spec.template, slotsPerWorker or gang.backend is not applied: the workers "     \
    "train "                                                                                       \
    "on as they are, but none is replaced or added. Change it back, or suspend and resume the job"

static void count(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    int left = r->job->backoff_limit - st->failures;
    st->generation = r->job->generation;
    st->workers = r->w.alive;
    st->ready = r->w.running;
    st->pending = r->w.alive - r->w.running;
    st->attempts_left = left > 0 ? left : 0;
    if (r->in->facts && r->in->facts->epoch > 0)
        st->epoch = r->in->facts->epoch;
}

/* Appends what the roster waits for: "; waiting for ranks to begin with: 1 of 3 ready". */
static void add_roster(const struct reconciling *r, char *dst, size_t size)
{
    size_t n = strlen(dst);
    if (r->in->facts && r->in->facts->known && r->in->facts->waiting_for[0])
        snprintf(dst + n, size - n, "; waiting for %s", r->in->facts->waiting_for);
}

/* Appends the doctor's worst failure. Only with the policy "fail", which starts no rank in such a
 * pod. */
static void add_refused(const struct reconciling *r, char *dst, size_t size)
{
    const struct job_finding *f = job_findings_failure(&r->st->findings);
    size_t n = strlen(dst);
    char text[700];
    if (!f || strcmp(r->job->doctor, "fail") != 0)
        return;
    job_finding_say(f, text, sizeof(text));
    snprintf(dst + n, size - n, "; the doctor refuses %d pod%s (%s%s): %s", f->npods,
             f->npods == 1 ? "" : "s", f->pods[0], f->npods == 1 ? "" : " ...", text);
}

/* Nobody has said anything about the pod: neither the scheduler nor the kubelet of its node. */
static void add_silent(const struct reconciling *r, char *dst, size_t size)
{
    const struct pod *p = workers_pending(&r->w, r->st);
    if (p && p->node)
        snprintf(dst, size,
                 "; worker %d (pod %.80s) is on node %.80s, whose kubelet has not started it yet",
                 p->worker, p->name, p->node);
    else if (p)
        snprintf(dst, size, "; worker %d (pod %.80s) waits for the scheduler", p->worker, p->name);
}

/* Appends why pods do not start, such as "; worker 2 (pod x) waits: ...". */
static void add_stuck(const struct reconciling *r, char *dst, size_t size)
{
    const struct pod *p = workers_stuck(&r->w, r->st);
    size_t n = strlen(dst);
    if (r->in->refused)
        snprintf(dst + n, size - n, "; the API server refuses a worker's pod: %.500s",
                 r->in->refused); /* the refusal may also concern the job's Secret or PodGroup */
    else if (r->in->group_pending)
        snprintf(dst + n, size - n, "; the scheduler says: %.500s", r->in->group_pending);
    else if (p)
        snprintf(dst + n, size - n, "; worker %d (pod %.80s) waits: %.500s", p->worker, p->name,
                 p->why);
    else
        add_silent(r, dst + n, size - n);
}

static void add_budget(const struct reconciling *r, char *dst, size_t size)
{
    size_t n = strlen(dst);
    if (r->in->budget_problem)
        snprintf(
            dst + n, size - n,
            "; evictions are not limited: the API server refuses its PodDisruptionBudget: %.300s",
            r->in->budget_problem);
}

/* Appends what happens to workers on nodes that are drained. */
static void add_drain(const struct reconciling *r, char *dst, size_t size)
{
    size_t n = strlen(dst);
    if (r->drain.text[0])
        snprintf(dst + n, size - n, "; %s", r->drain.text);
}

/* Appends which deleted pod does not end. */
static void add_terminating(struct reconciling *r, char *dst, size_t size)
{
    const struct pod *p = workers_terminating(&r->w, r->in->now, &r->ret->again);
    size_t n = strlen(dst);
    if (!p || size - n < 3)
        return;
    snprintf(dst + n, size - n, "; ");
    workers_say_terminating(p->name, p->node, p->leaves_by, dst + n + 2, size - n - 2);
}

/* Appends why an elastic job has not all its workers. */
static void add_growth(const struct reconciling *r, char *dst, size_t size)
{
    const struct admission *a = r->in->admission;
    size_t n = strlen(dst);
    if (a && a->why[0] && a->workers > 0 && a->workers < r->job->workers)
        snprintf(dst + n, size - n, "; %d are not created: %s", r->job->workers - a->workers,
                 a->why);
}

/* Appends which pods are replaced because their labels were changed. */
static void add_strayed(const struct reconciling *r, char *dst, size_t size)
{
    const struct pod *first = NULL;
    char more[32] = "";
    size_t n = strlen(dst);
    int strayed = 0;
    for (int i = 0; i < r->w.n; i++)
        if (worker_strayed(r->w.mine[i]) && strayed++ == 0)
            first = r->w.mine[i];
    if (strayed > 1)
        snprintf(more, sizeof(more), " and %d more", strayed - 1);
    if (first)
        snprintf(dst + n, size - n,
                 "; worker %d (pod %.80s)%s: " WORKERS_STRAYED "; such pods are deleted and their "
                 "workers replaced",
                 first->worker, first->name, more);
}

/* Has the job workers of another template, which a change does not reach? */
static bool is_held(const struct reconciling *r)
{
    enum job_phase phase = r->st->phase;
    return r->held && !job_phase_finished(phase) && phase != JOB_SUSPENDED;
}

/* Appends which change of the spec is not applied. */
static void add_unapplied(const struct reconciling *r, char *dst, size_t size)
{
    size_t n = strlen(dst);
    if (r->job->refused && r->st->phase != JOB_NEW)
        snprintf(dst + n, size - n, "; the changed spec is invalid and not applied: %.500s",
                 r->job->refused);
    else if (!r->job->refused && is_held(r))
        snprintf(dst + n, size - n, "; %s", UNAPPLIED);
}

/* Appends every reason why the job may not train, or not for long. */
static void add_waits(const struct reconciling *r, char *dst, size_t size)
{
    if (r->w.running < r->job->workers)
        add_stuck(r, dst, size);
    add_growth(r, dst, size);
    add_strayed(r, dst, size);
    add_roster(r, dst, size);
    add_refused(r, dst, size);
    add_budget(r, dst, size);
    add_drain(r, dst, size);
}

/* Appends "; first failure: rank 1 of worker 1 (pod p, node n): OOMKilled, exit code 137". */
static void add_first(const struct reconciling *r, char *dst, size_t size)
{
    const struct job_first_failure *f = r->st->first;
    size_t n = strlen(dst);
    char rank[32] = "";
    if (f && f->rank >= 0)
        snprintf(rank, sizeof(rank), "rank %d of ", f->rank);
    if (f)
        snprintf(dst + n, size - n,
                 "; first failure: %sworker %d (pod %.80s, node %.80s): %s, exit code %d", rank,
                 f->worker, f->pod, f->node,
                 f->message[0]  ? f->message
                 : f->reason[0] ? f->reason
                                : "ended",
                 f->exit_code);
}

/* Did the rule decide the last event? Those without a rule come after it. */
static bool is_ruled(const struct reconciling *r, enum job_failure_action action)
{
    const struct job_failure_rule *rule = r->st->rule;
    return rule && rule->action == action && rule->at >= r->st->last_loss;
}

/* "failed by the rule "oom" of runPolicy.failurePolicy: pod digits-3-0: exit code 137 of container
 * main". */
static void say_rule(const struct reconciling *r, char *dst, size_t size, const char *effect)
{
    const struct job_failure_rule *rule = r->st->rule;
    snprintf(dst, size, "%s by the rule \"%s\" of runPolicy.failurePolicy: pod %.80s%s%s", effect,
             rule->name, rule->pod, rule->cause[0] ? ": " : "", rule->cause);
}

static void say_failed(const struct reconciling *r, char *dst, size_t size)
{
    const struct hvdjob_status *st = r->st;
    if (is_ruled(r, FAILURE_FAIL_JOB))
        say_rule(r, dst, size, "failed");
    else if (st->failed_late)
        snprintf(dst, size, "a worker failed after another had succeeded");
    else if (st->failures > r->job->backoff_limit)
        snprintf(dst, size, "%d failure%s of workers, backoffLimit is %d", st->failures,
                 st->failures == 1 ? "" : "s", r->job->backoff_limit);
    else
        snprintf(dst, size, "not finished within activeDeadlineSeconds (%d s)", r->job->deadline);
    add_first(r, dst, size);
}

static const char *failed_reason(const struct reconciling *r)
{
    if (is_ruled(r, FAILURE_FAIL_JOB))
        return "FailurePolicy";
    if (r->st->failed_late)
        return "WorkerFailed";
    return r->st->failures > r->job->backoff_limit ? "BackoffLimitExceeded" : "DeadlineExceeded";
}

/* What the queue lets the job wait for. A decision on an earlier phase does not count. */
static enum wait waits_for(const struct reconciling *r)
{
    enum job_phase before = r->job->status.phase;
    bool decided = r->in->admission && (before == JOB_NEW || before == JOB_QUEUED);
    return decided && r->in->gang && r->st->phase == JOB_QUEUED ? r->in->admission->wait
                                                                : WAIT_UNDECIDED;
}

static void say_queued(const struct reconciling *r, char *dst, size_t size)
{
    if (!r->in->gang)
        snprintf(dst, size, "%s", r->in->gang_missing ? r->in->gang_missing : "no gang back end");
    else if (waits_for(r) != WAIT_UNDECIDED)
        snprintf(dst, size, "%s", r->in->admission->why);
    else
        snprintf(dst, size, "the queue has not decided on it yet");
}

/* Is this the last moment at which the job's workers were lost or taken away? */
static bool is_last(const struct hvdjob_status *st, int64_t at)
{
    return at != MOMENT_NONE && at >= st->last_loss && at >= st->last_rollback &&
           at >= st->last_refusal && at >= st->last_preemption;
}

static void say_restarting(const struct reconciling *r, char *dst, size_t size)
{
    const struct hvdjob_status *st = r->st;
    if (st->preempted_by && is_last(st, st->last_preemption))
        snprintf(dst, size,
                 "preempted by job %.140s, which has a higher priority; all workers are deleted "
                 "and queued again",
                 st->preempted_by);
    else if (st->refusals > 0 && is_last(st, st->last_refusal))
        snprintf(dst, size,
                 "the API server refuses a worker's pod: %.500s; all are deleted, so that other "
                 "jobs can use their resources, and the job is tried again",
                 words(st->refusal));
    else if (st->rollbacks > 0 && is_last(st, st->last_rollback))
        snprintf(
            dst, size,
            "fewer than %d workers got a node within %d s; all are deleted, so that other jobs "
            "can use their resources, and the job is tried again",
            r->job->min, reconcile_gang_timeout(r));
    else if (is_ruled(r, FAILURE_RESTART_GANG))
        say_rule(r, dst, size, "all workers start again");
    else if (st->drain_since != MOMENT_NONE)
        snprintf(dst, size, "a node with workers of the job is drained; all workers start again");
    else
        snprintf(dst, size, "%s; all workers start again",
                 r->job->elastic ? "all workers were lost, and the state in memory with them"
                                 : "a worker was lost and the job is not elastic");
    add_first(r, dst, size);
}

static void say_phase(const struct reconciling *r, char *dst, size_t size)
{
    const struct hvdjob *job = r->job;
    const struct workers *w = &r->w;
    switch (r->st->phase) {
    case JOB_NEW:
        snprintf(dst, size, "%s", job->refused ? job->refused : "new");
        break;
    case JOB_SUSPENDED:
        snprintf(dst, size, "suspended by spec.runPolicy.suspend");
        break;
    case JOB_QUEUED:
        say_queued(r, dst, size);
        if (r->in->refused)
            add_stuck(r, dst, size);
        break;
    case JOB_STARTING:
        snprintf(dst, size, "%d of %d workers run, %d have a node; training starts with %d",
                 w->running, job->workers, w->bound, job->min);
        add_waits(r, dst, size);
        break;
    case JOB_RUNNING:
        snprintf(dst, size, "%d of %d workers run", w->running, job->workers);
        add_waits(r, dst, size);
        break;
    case JOB_WAITING:
        snprintf(
            dst, size,
            "%d workers run, minWorkers is %d; the running ones wait with their state in memory",
            w->running, job->min);
        add_waits(r, dst, size);
        break;
    case JOB_RESTARTING:
        say_restarting(r, dst, size);
        break;
    case JOB_COMPLETING:
        snprintf(dst, size, "%d workers have succeeded, %d have not finished yet", w->ended,
                 w->alive);
        break;
    case JOB_SUCCEEDED:
        snprintf(dst, size, "all workers have succeeded");
        break;
    case JOB_FAILED:
        say_failed(r, dst, size);
        break;
    case JOB_PHASES:
        break;
    }
}

static int set(struct reconciling *r, enum condition_type type, bool status, const char *reason,
               const char *message)
{
    int rc = condition_set(&r->st->conditions[type], status, reason, message, r->job->generation,
                           r->in->now);
    return rc < 0 ? err_set(r->err, ENOMEM, "no memory") : 0;
}

/* The condition Valid becomes False. An Event for each change: of a spec that was invalid before,
 * if it is another spec. */
static int set_invalid(struct reconciling *r, const char *reason, const char *text)
{
    const struct condition *was = &r->job->status.conditions[CONDITION_VALID];
    struct action_event *say = &r->ret->events[ACTION_EVENT_SPEC];
    bool same = was->status == CONDITION_FALSE && strcmp(was->reason, reason) == 0 &&
                (!r->job->refused || was->generation == r->job->generation);
    if (!same) {
        say->warning = true;
        snprintf(say->reason, sizeof(say->reason), "%s", reason);
        snprintf(say->text, sizeof(say->text), "%s", text);
    }
    return set(r, CONDITION_VALID, false, reason, text);
}

static int set_valid(struct reconciling *r)
{
    if (r->job->refused)
        return set_invalid(r, "InvalidSpec", r->job->refused);
    if (is_held(r))
        return set_invalid(r, "TemplateChanged", UNAPPLIED);
    return set(r, CONDITION_VALID, true, "Accepted", "the spec is valid");
}

static int set_conditions(struct reconciling *r, const char *text)
{
    enum job_phase phase = r->st->phase;
    const char *reason = job_phase_name(phase);
    bool admitted = phase >= JOB_STARTING && phase <= JOB_COMPLETING && phase != JOB_RESTARTING;
    bool ready = r->w.running >= r->job->min && !job_phase_finished(phase);
    bool suspended = phase == JOB_SUSPENDED;
    int rc = set_valid(r);
    rc = rc < 0
             ? rc
             : set(r, CONDITION_SUSPENDED, suspended, reason, suspended ? text : "not suspended");
    rc = rc < 0 ? rc
                : set(r, CONDITION_ADMITTED, admitted,
                      phase == JOB_QUEUED ? wait_name(waits_for(r)) : reason,
                      admitted ? "its workers may be scheduled" : text);
    rc = rc < 0 ? rc : set(r, CONDITION_READY, ready, reason, text);
    if (rc == 0 && phase == JOB_SUCCEEDED)
        rc = set(r, CONDITION_COMPLETE, true, "WorkersEnded", text);
    if (rc == 0 && phase == JOB_FAILED)
        rc = set(r, CONDITION_FAILED, true, failed_reason(r), text);
    return rc;
}

static void note_drain(struct reconciling *r)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_DRAIN];
    snprintf(say->reason, sizeof(say->reason), "NodeDrained");
    snprintf(say->text, sizeof(say->text), "%s", r->drain.text);
}

/* A queued job waits for something of another kind than the status says. */
static void note_wait(struct reconciling *r)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_PHASE];
    enum wait wait = waits_for(r);
    if (r->job->status.phase == JOB_QUEUED && wait != WAIT_UNDECIDED &&
        strcmp(r->job->status.conditions[CONDITION_ADMITTED].reason, wait_name(wait)) != 0)
        snprintf(say->reason, sizeof(say->reason), "%s", job_phase_name(JOB_QUEUED));
}

int reconcile_status(struct reconciling *r)
{
    char text[WORDS_MAX + 1] = "";
    /* The messages of a finished job stay, whatever happens to its pods. */
    bool finished = job_phase_finished(r->job->status.phase);
    count(r);
    if (finished)
        return 0;
    say_phase(r, text, sizeof(text));
    add_unapplied(r, text, sizeof(text));
    add_terminating(r, text, sizeof(text));
    note_wait(r);
    struct action_event *say = &r->ret->events[ACTION_EVENT_PHASE];
    if (say->reason[0])
        snprintf(say->text, sizeof(say->text), "%s", text);
    if (r->drain.say)
        note_drain(r);
    return words_set(&r->st->message, text) < 0 ? err_set(r->err, ENOMEM, "no memory")
                                                : set_conditions(r, text);
}
