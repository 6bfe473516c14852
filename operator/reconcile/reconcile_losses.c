/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_losses: pods that failed, each counted once: its worker's attempt is raised in the same
 * status that has the count.
 *
 * A program's failure uses up one of backoffLimit attempts, as does a pod that the doctor refuses.
 * What happens to a pod from outside (eviction, preemption, a lost node) does not; it only
 * lengthens the pause. Ten minutes without a loss forget both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/backoff.h"
#include "operator/reconcile/reconcile_private.h"

#define REFUSED_CODE   126 /* of an agent: agent/agent_pod.c */
#define REFUSED_REASON "DoctorRefused"

/* ---- what a loss is -------------------------------------------------------------------------- */

/* The code is the agent's own word for it, but it may be a program's, too. */
static bool was_refused(const struct reconciling *r, const struct pod *p)
{
    return p->exit_code == REFUSED_CODE && strcmp(r->job->doctor, "fail") == 0 &&
           (job_findings_failure(&r->st->findings) || (p->why && strstr(p->why, "hvd-doctor")));
}

/* What was found, or what the pod said at its end. */
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
    struct saying *say = &r->ret->says[SAY_REFUSED];
    char text[700];
    say_refusal(r, p, text, sizeof(text));
    say->warning = true;
    snprintf(say->reason, sizeof(say->reason), "%s", REFUSED_REASON);
    snprintf(say->text, sizeof(say->text), "worker %d (pod %.80s, node %.80s): the doctor found %s",
             p->worker, p->name, p->node ? p->node : "none", text);
}

static int note_first(struct reconciling *r, const struct pod *p)
{
    struct job_first_failure *f = r->st->first = calloc(1, sizeof(*f));
    const struct job_facts *facts = r->in->facts;
    bool refused = was_refused(r, p);
    bool told = facts && facts->known && facts->first.known && facts->first.worker == p->worker;
    if (!f)
        return err_set(r->err, ENOMEM, "no memory");
    f->worker = p->worker;
    f->rank = -1;
    f->exit_code = p->exit_code > 0 ? p->exit_code : 0;
    f->at = moment_whole(p->ended ? p->ended : r->in->now);
    snprintf(f->pod, sizeof(f->pod), "%s", p->name);
    snprintf(f->node, sizeof(f->node), "%s", p->node ? p->node : "");
    snprintf(f->reason, sizeof(f->reason), "%s", refused ? REFUSED_REASON : p->reason);
    if (told && !refused)
        f->rank = facts->first.rank;
    if (refused)
        say_refusal(r, p, f->message, sizeof(f->message));
    else if (told && strcmp(p->reason, "Error") == 0)
        snprintf(f->message, sizeof(f->message), "%s; %.150s", facts->first.text,
                 p->why ? p->why : "");
    else
        snprintf(f->message, sizeof(f->message), "%s", p->why ? p->why : "");
    return 0;
}

static bool is_news(const struct reconciling *r, const struct pod *p)
{
    return p->phase == POD_FAILED && !p->deleting && !worker_past(r->st, p);
}

/* Several may have failed since the last look: the coordinator knows who was first, else the clocks
 * of their nodes do. */
static const struct pod *first_failed(const struct reconciling *r)
{
    const struct job_facts *facts = r->in->facts;
    const struct pod *first = NULL;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!is_news(r, p) || p->disrupted)
            continue;
        if (facts && facts->known && facts->first.known && facts->first.worker == p->worker)
            return p;
        if (!first || (p->ended && p->ended < first->ended))
            first = p;
    }
    return first;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* So that attemptsLeft is true while nothing happens, too. */
static void forget(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    if (st->last_loss == MOMENT_NONE || (st->failures == 0 && st->losses == 0))
        return;
    if (r->in->now >= st->last_loss + BACKOFF_FORGET)
        st->failures = st->losses = 0;
    else
        actions_again(r->ret, st->last_loss + BACKOFF_FORGET);
}

static int count_loss(struct reconciling *r, const struct pod *p, bool at_end)
{
    struct hvdjob_status *st = r->st;
    if (was_refused(r, p))
        note_refusal(r, p);
    if (at_end) {
        st->spoilt |= !p->disrupted;
    } else {
        st->failures += !p->disrupted;
        st->losses++;
        st->restarts++;
        st->last_loss = moment_whole(r->in->now);
    }
    return hvdjob_status_raise(st, p->worker, p->attempt + 1, r->err);
}

/* After a worker has ended well, or in the phases behind that, a failure is not retried. */
int reconcile_losses(struct reconciling *r)
{
    enum job_phase phase = r->st->phase;
    bool at_end = phase == JOB_COMPLETING || r->w.ended > 0;
    bool any = false;
    if (job_phase_over(phase))
        return 0;
    forget(r);
    const struct pod *first = r->st->first ? NULL : first_failed(r);
    if (first && note_first(r, first) < 0)
        return -ENOMEM;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (!is_news(r, p))
            continue;
        int rc = count_loss(r, p, at_end);
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
