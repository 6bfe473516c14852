/* SPDX-License-Identifier: Apache-2.0
 *
 * drain: see drain.h. Evictions by others are limited by the job's PodDisruptionBudget (budget.c);
 * the workers that the operator moves itself are chosen here.
 */
#include "operator/reconcile/drain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/reconcile_private.h"

static int by_name(const void *key, const void *node)
{
    return strcmp(key, ((const struct drain_node *)node)->name);
}

const struct drain_node *drains_find(const struct drains *d, const char *node)
{
    return d && d->n > 0 && node ? bsearch(node, d->all, (size_t)d->n, sizeof(*d->all), by_name)
                                 : NULL;
}

bool drain_over(const struct hvdjob_status *st, int64_t limit, int64_t now)
{
    return st->drain_since != MOMENT_NONE && now >= st->drain_since + limit;
}

/* ---- which workers leave --------------------------------------------------------------------- */

static enum signal_action action_of(const struct reconciling *r, const struct pod *p)
{
    const struct drain_node *d = drains_find(r->in->drains, p->node);
    return d ? d->drain.action : SIGNAL_NONE;
}

/* Is the pod being deleted, and not replaced yet? */
static bool is_leaving(const struct reconciling *r, const struct pod *p)
{
    return p->deleting && !pod_finished(p) && !worker_superseded(r->st, p);
}

/* May an elastic job give up this worker now, so that one after the other is replaced while the
 * others train? */
static bool is_next(const struct reconciling *r, const struct pod *p)
{
    return p == r->drain.first && r->job->elastic && r->w.running > r->job->min &&
           r->w.running == r->job->workers && r->w.leaving == 0;
}

bool drain_moves(const struct reconciling *r, const struct pod *p)
{
    enum signal_action action = worker_alive(r->st, p) ? action_of(r, p) : SIGNAL_NONE;
    if (action < SIGNAL_REPLACE)
        return false;
    if (action == SIGNAL_LEAVE || r->drain.over)
        return true;
    switch (r->job->drain) {
    case DRAIN_SHRINK:
    case DRAIN_RESTART:
        return true;
    case DRAIN_WAIT:
        return is_next(r, p);
    case DRAIN_BLOCK:
        break;
    }
    return false;
}

/* Does the whole job start again? Yes if its policy is Restart, or Shrink and fewer than minWorkers
 * would be left, once a worker leaves such a node by an eviction or is moved. */
static bool restarts(const struct reconciling *r)
{
    int moving = 0, leaving = 0;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        moving += drain_moves(r, p);
        leaving += is_leaving(r, p) && action_of(r, p) >= SIGNAL_EVICT;
    }
    bool lost = leaving > 0 && r->w.alive < r->job->workers; /* else a scale-down deletes it */
    if (moving == 0 && !lost)
        return false;
    return r->job->drain == DRAIN_RESTART ||
           (r->job->drain == DRAIN_SHRINK && r->w.alive - moving < r->job->min);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What happens to workers on a node that the operator does not move now. */
static void say_policy(const struct reconciling *r, enum signal_action action, char *dst,
                       size_t size)
{
    char until[MOMENT_SIZE];
    const struct hvdjob *job = r->job;
    moment_write(r->st->drain_since + r->in->drains->limit, until);
    bool open = job->drain == DRAIN_SHRINK || job->drain == DRAIN_RESTART;
    if (action == SIGNAL_NOTE)
        snprintf(dst, size, "may be drained");
    else if (action == SIGNAL_REPLACE)
        snprintf(dst, size, "will be moved before %s", until);
    else if (r->drain.over || open)
        snprintf(dst, size, "may be evicted");
    else if (job->drain == DRAIN_BLOCK)
        snprintf(dst, size, "may not be evicted before %s", until);
    else if (job->max > job->min)
        snprintf(dst, size, "may be evicted while more than %d run, and in any case from %s",
                 job->min, until);
    else
        snprintf(dst, size, "may be evicted, which makes all workers start again");
}

/* Writes what happens to workers on nodes with a signal; "": there are none. */
static void say(const struct reconciling *r, char *dst, size_t size)
{
    const struct drain_node *worst = NULL;
    const struct pod *first = NULL;
    int workers = 0;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        const struct drain_node *d = drains_find(r->in->drains, p->node);
        if (!d || pod_finished(p) || worker_superseded(r->st, p))
            continue;
        workers++;
        if (worst && d->drain.action <= worst->drain.action)
            continue;
        worst = d;
        first = p;
    }
    dst[0] = '\0';
    if (!worst)
        return;
    char more[32] = "", then[160] = "will leave at the next step boundary";
    if (workers > 1)
        snprintf(more, sizeof(more), " and %d more", workers - 1);
    if (r->drain.restart)
        snprintf(then, sizeof(then),
                 "must leave; all workers leave at the next step boundary and start again");
    else if (!is_leaving(r, first) && !drain_moves(r, first))
        say_policy(r, worst->drain.action, then, sizeof(then));
    snprintf(dst, size, "node %.80s (%.200s): worker %d%s %s", worst->name, worst->drain.what,
             first->worker, more, then);
}

/* ---- since when ------------------------------------------------------------------------------ */

void drain_look(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    int on = 0;
    if (!r->in->drains)
        return;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        bool alive = worker_alive(st, p);
        enum signal_action action = alive || is_leaving(r, p) ? action_of(r, p) : SIGNAL_NONE;
        on += action >= SIGNAL_EVICT;
        if (alive && action == SIGNAL_REPLACE && !r->drain.first)
            r->drain.first = p;
    }
    /* While the job restarts, its message still says why. */
    bool ends = job_phase_finished(st->phase) || (on == 0 && st->phase != JOB_RESTARTING);
    /* In the future: the clock was set back, or somebody edited the status. */
    bool began =
        !ends && on > 0 && (st->drain_since == MOMENT_NONE || st->drain_since > r->in->now);
    if (ends || began)
        st->drain_since = began ? moment_whole(r->in->now) : MOMENT_NONE;
    r->drain.over = drain_over(st, r->in->drains->limit, r->in->now);
    r->drain.restart = (st->phase == JOB_RUNNING || st->phase == JOB_WAITING) && restarts(r);
    r->drain.say = began || r->drain.restart;
    say(r, r->drain.text, sizeof(r->drain.text));
    if (st->drain_since != MOMENT_NONE && !r->drain.over)
        actions_again(r->ret, st->drain_since + r->in->drains->limit);
}

int drain_move(struct reconciling *r, int *ret_n)
{
    *ret_n = 0;
    for (int i = 0; i < r->w.n; i++) {
        struct action delete = {
            .kind = ACTION_DELETE_POD, .pod = r->w.mine[i], .why = "its node is drained"};
        if (!drain_moves(r, r->w.mine[i]))
            continue;
        int rc = actions_add(r->ret, delete, r->err);
        if (rc < 0)
            return rc;
        (*ret_n)++;
    }
    r->drain.say |= *ret_n > 0;
    return 0;
}
