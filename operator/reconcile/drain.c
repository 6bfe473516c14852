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

bool drain_over(const struct hvdjob_status *st, const struct drains *d, const char *node)
{
    const struct drain_node *drained = drains_find(d, node);
    const struct job_drain *delayed = drained && drained->drain.action >= SIGNAL_EVICT
                                          ? job_drains_find(&st->drains, node)
                                          : NULL;
    return delayed && delayed->over;
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
    if (action == SIGNAL_LEAVE || drain_over(r->st, r->in->drains, p->node))
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
static void say_policy(const struct reconciling *r, const struct drain_node *node, char *dst,
                       size_t size)
{
    char until[MOMENT_SIZE];
    const struct hvdjob *job = r->job;
    enum signal_action action = node->drain.action;
    const struct job_drain *delayed = job_drains_find(&r->st->drains, node->name);
    moment_write(delayed ? delayed->since + r->in->drains->limit : r->in->now, until);
    bool open = job->drain == DRAIN_SHRINK || job->drain == DRAIN_RESTART;
    if (action == SIGNAL_NOTE)
        snprintf(dst, size, "may be drained");
    else if (action == SIGNAL_REPLACE)
        snprintf(dst, size, "will be moved before %s", until);
    else if (open || drain_over(r->st, r->in->drains, node->name))
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
        say_policy(r, worst, then, sizeof(then));
    snprintf(dst, size, "node %.80s (%.200s): worker %d%s %s", worst->name, worst->drain.what,
             first->worker, more, then);
}

/* ---- since when ------------------------------------------------------------------------------ */

/* Is the pod one that a drain of its node concerns? */
static bool is_drained(const struct reconciling *r, const struct pod *p)
{
    return (worker_alive(r->st, p) || is_leaving(r, p)) && action_of(r, p) >= SIGNAL_EVICT;
}

static bool has_drained(const struct reconciling *r, const char *node)
{
    for (int i = 0; i < r->w.n; i++)
        if (is_drained(r, r->w.mine[i]) && strcmp(r->w.mine[i]->node, node) == 0)
            return true;
    return false;
}

/* Removes drains that have ended. While the job restarts they stay: its message still says why. */
static void remove_ended(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    if (job_phase_finished(st->phase))
        job_drains_fini(&st->drains);
    for (int i = st->drains.n - 1; i >= 0 && st->phase != JOB_RESTARTING; i--)
        if (!has_drained(r, st->drains.all[i].node))
            job_drains_remove(&st->drains, i);
}

/* Adds drains that have begun. earlier: when they did, for a status of an earlier version;
 * MOMENT_NONE: now. */
static int add_begun(struct reconciling *r, int64_t earlier)
{
    struct hvdjob_status *st = r->st;
    int64_t since = earlier != MOMENT_NONE ? earlier : moment_whole(r->in->now);
    int n = st->drains.n;
    for (int i = 0; i < r->w.n; i++) {
        const struct pod *p = r->w.mine[i];
        if (is_drained(r, p) && job_drains_add(&st->drains, p->node, since) < 0)
            return err_set(r->err, ENOMEM, "no memory");
    }
    r->drain.say = st->drains.n > n && earlier == MOMENT_NONE;
    return 0;
}

/* Sets which drains have been delayed for the limit, and when to look at the others again. */
static void look_at_limit(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    for (int i = 0; i < st->drains.n; i++) {
        struct job_drain *d = &st->drains.all[i];
        /* In the future: the clock was set back, or somebody edited the status. */
        if (d->since > r->in->now)
            d->since = moment_whole(r->in->now);
        d->over = r->in->now >= d->since + r->in->drains->limit;
        if (!d->over)
            actions_again(r->ret, d->since + r->in->drains->limit);
    }
    st->drain_since = job_drains_first(&st->drains);
}

int drain_look(struct reconciling *r)
{
    struct hvdjob_status *st = r->st;
    if (!r->in->drains)
        return 0;
    /* An earlier version keeps the list and does not change it: the list is old where they differ.
     */
    if (job_drains_first(&st->drains) != st->drain_since)
        job_drains_fini(&st->drains);
    /* A status without the list is of an earlier version: its one time counts for all nodes. */
    int64_t earlier = st->drains.n == 0 ? st->drain_since : MOMENT_NONE;
    for (int i = 0; i < r->w.n && !r->drain.first; i++) {
        const struct pod *p = r->w.mine[i];
        if (worker_alive(st, p) && action_of(r, p) == SIGNAL_REPLACE)
            r->drain.first = p;
    }
    remove_ended(r);
    int rc = job_phase_finished(st->phase) ? 0 : add_begun(r, earlier);
    if (rc < 0)
        return rc;
    look_at_limit(r);
    r->drain.restart = (st->phase == JOB_RUNNING || st->phase == JOB_WAITING) && restarts(r);
    r->drain.say |= r->drain.restart;
    say(r, r->drain.text, sizeof(r->drain.text));
    return 0;
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
