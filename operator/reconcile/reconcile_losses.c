/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_losses: counts the losses of pods, by events. The same status write raises the count
 * and the worker's attempt, so no loss is counted twice.
 *
 * What is counted is an event and not a pod: when one rank crashes, the pods of the others often
 * fail, too. A loss belongs to the last event if the pod was there when that began, and if that is
 * less than EVENT ago. The first loss of an event decides: a failure of the program, or a refusal
 * by the doctor, uses up one of backoffLimit attempts; a disruption (eviction, preemption, lost
 * node, an operator that was away, labels that somebody changed) only lengthens the pause before
 * the replacement. Ten minutes after the beginning of the last event both are reset.
 *
 * A rule of runPolicy.failurePolicy takes precedence over this. The actions FailJob and RestartGang
 * apply also if another loss of the event was seen before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/failure_policy.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/backoff.h"
#include "operator/reconcile/reconcile_private.h"

#define REFUSED_CODE   126 /* exit code of an agent whose doctor refused: agent/agent_pod.c */
#define REFUSED_REASON "DoctorRefused"
#define EVENT          (120 * MOMENT_S)

/* ---- what a loss is -------------------------------------------------------------------------- */

/* Returns whether the doctor refused the pod. A program may exit with REFUSED_CODE, too, so there
 * must also be a finding or the agent's message. */
static bool was_refused(const struct reconciling *r, const struct pod *p)
{
    return p->exit_code == REFUSED_CODE && strcmp(r->job->doctor, "fail") == 0 &&
           (job_findings_failure(&r->st->findings) || (p->why && strstr(p->why, "hvd-doctor")));
}

/* Writes why the doctor refused the pod: the finding, or else the pod's termination message. */
static void say_refusal(const struct reconciling *r, const struct pod *p, char *dst, size_t size)
{
    const struct job_finding *f = job_findings_failure(&r->st->findings);
    if (f)
        job_finding_say(f, dst, size);
    else
        snprintf(dst, size, "%s", p->why ? p->why : "");
}

static void note_refusal(struct reconciling *r, const struct pod *p)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_REFUSED];
    char text[700];
    say_refusal(r, p, text, sizeof(text));
    say->warning = true;
    snprintf(say->reason, sizeof(say->reason), "%s", REFUSED_REASON);
    snprintf(say->text, sizeof(say->text), "worker %d (pod %.80s, node %.80s): the doctor found %s",
             p->worker, p->name, p->node ? p->node : "none", text);
}

static void note_agent(struct reconciling *r, const struct pod *p)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_AGENT];
    say->warning = true;
    snprintf(say->reason, sizeof(say->reason), "AgentEnded");
    snprintf(say->text, sizeof(say->text), "worker %d (pod %.80s, node %.80s): %.400s", p->worker,
             p->name, p->node ? p->node : "none", p->why ? p->why : "");
}

static void note_rule(struct reconciling *r, const struct pod *p)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_RULE];
    const struct job_failure_rule *rule = r->st->rule;
    say->warning = rule->action != FAILURE_IGNORE;
    snprintf(say->reason, sizeof(say->reason), "FailureRule");
    snprintf(say->text, sizeof(say->text),
             "rule \"%s\" of runPolicy.failurePolicy (%s): worker %d (pod %.80s, node %.80s): %s",
             rule->name, job_failure_action_name(rule->action), p->worker, p->name,
             p->node ? p->node : "none", rule->cause);
}

static int note_first(struct reconciling *r, const struct pod *p)
{
    struct job_first_failure *f = r->st->first = calloc(1, sizeof(*f));
    const struct job_facts *facts = r->in->facts;
    bool refused = was_refused(r, p);
    bool known = facts && facts->known && facts->first.known && facts->first.worker == p->worker;
    if (!f)
        return err_set(r->err, ENOMEM, "no memory");
    f->worker = p->worker;
    f->rank = -1;
    f->exit_code = p->exit_code > 0 ? p->exit_code : 0;
    f->at = moment_whole(p->ended ? p->ended : r->in->now);
    snprintf(f->pod, sizeof(f->pod), "%s", p->name);
    snprintf(f->node, sizeof(f->node), "%s", p->node ? p->node : "");
    snprintf(f->reason, sizeof(f->reason), "%s", refused ? REFUSED_REASON : p->reason);
    if (known && !refused)
        f->rank = facts->first.rank;
    if (refused)
        say_refusal(r, p, f->message, sizeof(f->message));
    else if (known && strcmp(p->reason, "Error") == 0)
        snprintf(f->message, sizeof(f->message), "%s; %.150s", facts->first.text,
                 p->why ? p->why : "");
    else
        snprintf(f->message, sizeof(f->message), "%s", p->why ? p->why : "");
    return 0;
}

/* Is the pod of a job that trains being evicted: by the eviction API, kube-scheduler, or the
 * controller that ends pods of lost nodes? Its worker is replaced at once. */
static bool is_new_eviction(const struct reconciling *r, const struct pod *p)
{
    enum job_phase phase = r->st->phase;
    bool trains = phase == JOB_STARTING || phase == JOB_RUNNING || phase == JOB_WAITING;
    return trains && p->deleting && p->disruption[0] && p->phase != POD_SUCCEEDED &&
           !worker_superseded(r->st, p);
}

static bool is_new_loss(const struct reconciling *r, const struct pod *p)
{
    bool lost = p->phase == POD_FAILED ? !p->deleting : worker_strayed(p);
    return lost && !worker_superseded(r->st, p);
}

/* Does the loss use up an attempt? */
static bool counts(const struct reconciling *r, const struct pod *p)
{
    struct job_failure_rule rule;
    if (failure_policy_match(r->job->failure_rules, p, &rule))
        return rule.action != FAILURE_IGNORE;
    return !p->disrupted && !p->strayed && !p->deleting;
}

static void say_loss(const struct pod *p, char *dst, size_t size)
{
    char code[32] = "";
    if (p->exit_code > 0)
        snprintf(code, sizeof(code), ", exit code %d", p->exit_code);
    snprintf(dst, size, "%.500s%s",
             worker_strayed(p)                 ? WORKERS_STRAYED
             : p->deleting && p->disruption[0] ? p->disruption
             : p->why                          ? p->why
             : p->reason[0]                    ? p->reason
                                               : "ended",
             code);
}

/* first: the loss that decided what the event is. */
static void note_event(struct reconciling *r, const struct pod *first)
{
    struct action_event *say = &r->ret->events[ACTION_EVENT_LOSS];
    int limit = r->job->backoff_limit, left = limit - r->st->failures;
    bool lost = first->disrupted || first->strayed || first->deleting;
    char cause[600], attempts[64] = "no attempt is used up";
    say_loss(first, cause, sizeof(cause));
    if (counts(r, first))
        snprintf(attempts, sizeof(attempts), "%d of %d attempts left", left > 0 ? left : 0, limit);
    say->warning = true;
    snprintf(say->reason, sizeof(say->reason), "%s", lost ? "WorkerLost" : "WorkerFailed");
    snprintf(say->text, sizeof(say->text), "worker %d (pod %.80s, node %.80s): %s; %s",
             first->worker, first->name, first->node ? first->node : "none", cause, attempts);
}

/* Several pods may have failed since the last reconciliation. The coordinator knows which was
 * first; without it the finish times decide. */
static const struct pod *first_failed(const struct reconciling *r)
{
    const struct job_facts *facts = r->in->facts;
    const struct pod *first = NULL;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!is_new_loss(r, p) || p->disrupted || !counts(r, p))
            continue;
        if (facts && facts->known && facts->first.known && facts->first.worker == p->worker)
            return p;
        if (!first || (p->ended && p->ended < first->ended))
            first = p;
    }
    return first;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Resets the counts once BACKOFF_FORGET has passed, at that moment and not only at the next loss,
 * so that status.attemptsLeft is right. */
static void reset_counts(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    if (st->last_loss == MOMENT_NONE || (st->failures == 0 && st->losses == 0))
        return;
    if (r->in->now >= st->last_loss + BACKOFF_FORGET)
        st->failures = st->losses = 0;
    else
        actions_again(r->ret, st->last_loss + BACKOFF_FORGET);
}

/* A replacement is made a second after the event at the earliest, so it is never in it. */
static bool is_of_last_event(const struct reconciling *r, const struct pod *p)
{
    int64_t last = r->st->last_loss;
    return last != MOMENT_NONE && p->created <= last && r->in->now < last + EVENT;
}

/* Did p end before q? Finish times are whole seconds. Of two in the same second, the one for which
 * the user wrote a rule: the other one is often its consequence. */
static bool ended_before(const struct reconciling *r, const struct pod *p, const struct pod *q)
{
    struct job_failure_rule rule;
    if (p->ended != q->ended)
        return p->ended != MOMENT_NONE && (q->ended == MOMENT_NONE || p->ended < q->ended);
    return failure_policy_match(r->job->failure_rules, p, &rule) &&
           !failure_policy_match(r->job->failure_rules, q, &rule);
}

/* All new losses of one look are one event: its first loss decides. */
static void count_event(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    const struct pod *first = NULL;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        bool lost = is_new_loss(r, p) || is_new_eviction(r, p);
        if (lost && !is_of_last_event(r, p) && (!first || ended_before(r, p, first)))
            first = p;
    }
    if (!first)
        return;
    st->failures += counts(r, first);
    st->losses += is_new_loss(r, first);
    st->last_loss = moment_whole(r->in->now);
    note_event(r, first);
}

/* Keeps the rule that matches p in the status. Of several in one look the strongest one stays. */
static int apply_rule(struct reconciling *r, const struct pod *p)
{
    struct job_failure_rule rule;
    if (!failure_policy_match(r->job->failure_rules, p, &rule) ||
        (r->ruled && r->ruled->action >= rule.action))
        return 0;
    if (!r->st->rule && !(r->st->rule = malloc(sizeof(rule))))
        return err_set(r->err, ENOMEM, "no memory");
    rule.at = moment_whole(r->in->now);
    *r->st->rule = rule;
    r->ruled = r->st->rule;
    note_rule(r, p);
    return 0;
}

static int take_loss(struct reconciling *r, const struct pod *p, bool at_end)
{
    struct hvdjob_status *st = r->st;
    int rc = apply_rule(r, p);
    if (rc < 0)
        return rc;
    if (was_refused(r, p))
        note_refusal(r, p);
    if (p->agent_end != AGENT_END_NONE)
        note_agent(r, p);
    if (at_end)
        st->failed_late |= counts(r, p);
    else
        st->restarts++;
    return hvdjob_status_raise(st, p->worker, p->attempt + 1, r->err);
}

/* Once a worker has succeeded, a failure of another is not retried. */
int reconcile_losses(struct reconciling *r)
{
    enum job_phase phase = r->st->phase;
    bool at_end = phase == JOB_COMPLETING || r->w.ended > 0;
    bool any = false;
    if (job_phase_finished(phase))
        return 0;
    reset_counts(r);
    const struct pod *first = r->st->first ? NULL : first_failed(r);
    if (first && note_first(r, first) < 0)
        return -ENOMEM;
    if (!at_end)
        count_event(r);
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!is_new_loss(r, p))
            continue;
        int rc = take_loss(r, p, at_end);
        if (rc < 0)
            return rc;
        any = true;
    }
    if (!any)
        return 0;
    workers_fini(&r->w);
    return workers_init(&r->w, r->job, r->st, r->in->pods, r->in->npods, r->err);
}

int64_t reconcile_pause(const struct reconciling *r)
{
    int64_t pause = backoff(r->st->losses, BACKOFF_LOSS, BACKOFF_LOSS_MAX);
    return r->st->losses > 0 && r->in->now < r->st->last_loss + pause ? r->st->last_loss + pause
                                                                      : MOMENT_NONE;
}
