/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_queue: runs the queue on a snapshot, a slice of time in each turn of the loop, and stores
 * its decisions in the entries.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"
#include "operator/driver/snapshot.h"

#define SLICE      (3 * CLOCK_MS) /* of a run in one turn of the loop */
#define LONGEST_MS 3600000        /* between two runs while a decision depends on time */
/* Least time between the beginnings of two runs; and at most a quarter of all time is spent on
 * runs. */
#define EVERY (20 * CLOCK_MS)
#define PART  4

void driver_choose_gang(struct driver *d, struct entry *e)
{
    struct err err = {0};
    const char *served = discovery_text(d->discovery);
    if (e->gang_known || !e->job || !served)
        return;
    e->gang = gang_choose(&e->job->job, served, e->gang_api, sizeof(e->gang_api), &err);
    e->gang_missing = e->gang ? NULL : strdup(err_text(&err));
    e->gang_known = true;
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Of jobs that wait, and of elastic ones that may not have all their workers yet. */
static bool needs_decision(const struct entry *e)
{
    const struct hvdjob *job = e->job ? &e->job->job : NULL;
    if (!job || !job->ours || job_phase_finished(job->status.phase))
        return false;
    if (job->status.phase == JOB_NEW || job->status.phase == JOB_QUEUED)
        return true;
    return job->elastic && (!e->admission || e->admission->workers < job->workers);
}

static bool any_needs_decision(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (needs_decision(e))
            return true;
    return false;
}

static bool same(const struct admission *a, const struct admission *b)
{
    return a->go == b->go && a->preempted == b->preempted && a->workers == b->workers &&
           a->claimed == b->claimed && a->again == b->again && a->wait == b->wait &&
           a->ntaken == b->ntaken && strcmp(a->why, b->why) == 0 && strcmp(a->by, b->by) == 0 &&
           (a->ntaken == 0 || memcmp(a->taken, b->taken, (size_t)a->ntaken * sizeof(int)) == 0);
}

/* before: the decision that this one replaces. */
static void log_preemption(const struct entry *e, const struct admission *before,
                           const struct admission *after)
{
    if (after->preempted && !before->preempted)
        log_info("job %s: preempted by job %s", e->key, after->by);
    if (after->ntaken > 0 &&
        (before->ntaken != after->ntaken || strcmp(before->by, after->by) != 0))
        log_info("job %s: gives up %d workers to job %s", e->key, after->ntaken, after->by);
}

/* NULL: the job is gone. */
static struct entry *entry_of(const struct driver *d, const struct snapshot_job *of)
{
    const struct hvdjob *job = &of->item->job;
    struct entry *e = entries_find(&d->entries, job->namespace_, job->name);
    return e && e->job && strcmp(e->job->job.uid, job->uid) == 0 ? e : NULL;
}

/* Is the decision about this job as it was out of date? Its status may have changed otherwise: the
 * job must not lose the room for which others are preempted by the same run. */
static bool is_outdated(const struct hvdjob *was, const struct hvdjob *is)
{
    return was->status.phase != is->status.phase || was->generation != is->generation ||
           was->deleting != is->deleting;
}

static void hand_out(struct driver *d, struct entry *e, struct queue_job *q,
                     const struct snapshot_job *of)
{
    if (job_phase_unplaced(e->phase) && q->ret.claimed > e->claimed)
        e->claimed = q->ret.claimed;
    if (q->pending || is_outdated(&of->item->job, &e->job->job))
        return;
    if (of->admitted && !e->admitted)
        return; /* its admission failed since the snapshot */
    if (e->admission && same(e->admission, &q->ret))
        return;
    if (!e->admission)
        e->admission = calloc(1, sizeof(*e->admission));
    if (!e->admission) {
        log_warn("job %s: no memory to admit it; it stays queued until a job, pod or node changes",
                 e->key);
        return;
    }
    log_preemption(e, e->admission, &q->ret);
    admission_fini(e->admission);
    *e->admission = q->ret;
    q->ret.taken = NULL;
    driver_enqueue(d, e);
}

/* ---- runs ------------------------------------------------------------------------------------ */

void driver_queue_stop(struct driver *d)
{
    snapshot_drop(d->snapshot);
    d->snapshot = NULL;
}

static uint64_t next_run(const struct driver *d)
{
    uint64_t pause = PART * d->queue_cost;
    return d->queue_ran_at + (pause > EVERY ? pause : EVERY);
}

static void begin(struct driver *d)
{
    d->queue_dirty = false;
    d->queue_next = ENTRY_NEVER; /* this run finds out */
    d->queue_ran_at = clock_ns();
    if (!discovery_text(d->discovery) || !any_needs_decision(d))
        return;
    uint64_t expires = daemons_expire(&d->daemons, d->queue_ran_at);
    if (expires != UINT64_MAX)
        driver_queue_at(d, expires);
    if (snapshot_take(d, &d->snapshot) < 0) {
        log_warn("no memory for a snapshot of the queue; no gang is admitted until the next try");
        d->queue_dirty = true;
    }
}

/* True: the run is complete. */
static bool run(struct snapshot *s)
{
    uint64_t began = clock_ns();
    bool done;
    while (!(done = queue_step(s->queue, 1)) && clock_ns() - began < SLICE)
        ;
    s->spent += clock_ns() - began;
    return done;
}

/* The wall clock may be set back later, and the loop's does not know: at most LONGEST_MS. */
static void run_again_at(struct driver *d, int64_t again)
{
    int64_t ms = again - driver_now();
    if (again == INT64_MAX)
        return;
    ms = ms < 0 ? 0 : ms > LONGEST_MS ? LONGEST_MS : ms;
    driver_queue_at(d, clock_ns() + (uint64_t)ms * CLOCK_MS);
}

/* Hands out what a complete run has decided. */
static void end(struct driver *d, struct snapshot *s)
{
    int64_t again = s->stuck_again;
    for (int i = 0; i < s->n; i++) {
        struct entry *e = entry_of(d, &s->of[i]);
        if (e && s->jobs[i].ret.ask)
            driver_ask_early(d, e);
        if (e)
            hand_out(d, e, &s->jobs[i], &s->of[i]);
        again = s->jobs[i].ret.again < again ? s->jobs[i].ret.again : again;
    }
    run_again_at(d, again);
    d->queue_cost = s->spent;
    driver_queue_stop(d);
}

uint64_t driver_queue(struct driver *d)
{
    if (!d->snapshot && d->queue_dirty && clock_ns() >= next_run(d))
        begin(d);
    if (d->snapshot && !run(d->snapshot))
        return clock_ns();
    if (d->snapshot)
        end(d, d->snapshot);
    return d->queue_dirty ? next_run(d) : ENTRY_NEVER;
}
