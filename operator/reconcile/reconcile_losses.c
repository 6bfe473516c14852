/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_losses: pods that failed, each counted once: its worker's attempt is raised in the same
 * status that has the count.
 *
 * A program's failure uses up one of backoffLimit attempts. What happens to a pod from outside
 * (eviction, preemption, a lost node) does not; it only lengthens the pause. Ten minutes without a
 * loss forget both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/backoff.h"
#include "operator/reconcile/reconcile_private.h"

static int note_first(struct reconciling *r, const struct pod *p)
{
    if (r->st->first)
        return 0;
    struct job_first_failure *f = r->st->first = calloc(1, sizeof(*f));
    if (!f)
        return err_set(r->err, ENOMEM, "no memory");
    f->worker = p->worker;
    f->exit_code = p->exit_code > 0 ? p->exit_code : 0;
    f->at = moment_whole(p->ended ? p->ended : r->in->now);
    snprintf(f->pod, sizeof(f->pod), "%s", p->name);
    snprintf(f->node, sizeof(f->node), "%s", p->node ? p->node : "");
    snprintf(f->reason, sizeof(f->reason), "%s", p->reason);
    snprintf(f->message, sizeof(f->message), "%s", p->why ? p->why : "");
    return 0;
}

static int count_loss(struct reconciling *r, const struct pod *p, bool at_end)
{
    struct hvdjob_status *st = r->st;
    int64_t now = moment_whole(r->in->now);
    if (st->last_loss != MOMENT_NONE && now >= st->last_loss + BACKOFF_FORGET)
        st->failures = st->losses = 0;
    int rc = p->disrupted ? 0 : note_first(r, p);
    if (rc < 0)
        return rc;
    if (at_end) {
        st->spoilt |= !p->disrupted;
    } else {
        st->failures += !p->disrupted;
        st->losses++;
        st->restarts++;
        st->last_loss = now;
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
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (p->phase != POD_FAILED || p->deleting || worker_past(r->st, p))
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
