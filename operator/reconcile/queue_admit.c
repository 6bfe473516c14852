/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_admit: decides on one job: what the API server and its quotas say, the administrator's
 * share, whether it fits, and what it waits for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/words.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/backoff.h"
#include "operator/reconcile/queue_private.h"

#define SAY_STUCK 400 /* bytes of why that are left to queue_say_stuck() */
#define SAY_NEVER 400 /* bytes of why at most */

void queue_again(struct queue_job *j, int64_t at)
{
    if (at < j->ret.again)
        j->ret.again = at;
}

/* ---- quotas and shares ----------------------------------------------------------------------- */

/* How many further pods of j its namespace's quotas admit, at most limit. */
static int quotas_admit(const struct queue *q, const struct queue_job *j, int limit)
{
    const struct tenant *t = queue_tenant(q, j->job);
    const struct quota_line *line;
    for (int i = 0; i < t->nquotas; i++)
        limit = quota_admits(&t->quotas[i], j->demand, limit, &line);
    return limit;
}

/* Appends which quota refuses want further pods of j: one that never admits min, else the one that
 * admits the fewest. */
static void say_quota(const struct queue *q, struct queue_job *j, int want, int min)
{
    const struct tenant *t = queue_tenant(q, j->job);
    const struct quota_line *line = NULL, *never = NULL;
    const struct quota *by = NULL;
    char text[512];
    for (int i = 0, most = want; i < t->nquotas && !never; i++) {
        int n = quota_admits(&t->quotas[i], j->demand, most, &line);
        never = quota_never(&t->quotas[i], j->demand, min);
        line = never ? never : line;
        by = never || n < most ? &t->quotas[i] : by;
        most = n;
    }
    if (!by)
        return;
    quota_explain(by, line, j->demand, want, min, text, sizeof(text));
    queue_say(j, "%s", text);
}

static void take_quotas(struct queue *q, const struct queue_job *j, int n)
{
    const struct tenant *t = queue_tenant(q, j->job);
    for (int i = 0; i < t->nquotas && n != 0; i++)
        quota_take(&t->quotas[i], j->demand, n);
}

/* Pods beyond minWorkers that do not exist yet, but may be created by an earlier decision. */
static int granted(const struct queue_job *j)
{
    int kept = queue_min(j) > j->alive ? queue_min(j) : j->alive;
    return j->granted > kept && !queue_is_frozen(j) ? j->granted - kept : 0;
}

void queue_take_missing(struct queue *q, const struct queue_job *j)
{
    if (!queue_is_admitted(j->job) || queue_is_frozen(j))
        return;
    int missing = queue_min(j) - j->alive;
    take_quotas(q, j, (missing > 0 ? missing : 0) + granted(j));
}

/* What waits for quota or share may never fit the cluster either: that is said first. */
static void say_never_fits(const struct queue *q, struct queue_job *j)
{
    char text[SAY_NEVER];
    if (q->in->cluster &&
        fit_never(q->in->cluster, &j->demand->spec, j->job->min, text, sizeof(text)))
        queue_say(j, "%s; ", text);
}

static bool waits_for_quota(const struct queue *q, struct queue_job *j)
{
    int missing = j->job->min - j->alive;
    if (missing <= 0 || quotas_admit(q, j, missing) >= missing)
        return false;
    say_never_fits(q, j);
    say_quota(q, j, missing, j->job->min);
    j->ret.wait = WAIT_QUOTA;
    return true;
}

/* Where only loose workers are in the way, the share is held for the job, so that queue_grow()
 * takes them back. The job is admitted once they are deleted: the scheduler may place them before.
 */
static bool waits_for_share(struct queue *q, struct queue_job *j)
{
    struct queue_limit limit;
    int min = j->job->min;
    if (queue_share_allows(q, j, min, true, &limit) >= min)
        return false;
    bool soon = queue_share_allows(q, j, min, false, NULL) >= min;
    say_never_fits(q, j);
    queue_say_share(q, j, limit, min, true);
    if (soon)
        queue_say(j, "; workers of its other jobs are deleted first");
    j->ret.wait = WAIT_SHARE;
    if (soon) {
        queue_hold_share(q, j, min);
        queue_again(j, q->in->now + MOMENT_S);
    }
    return true;
}

/* ---- admitting ------------------------------------------------------------------------------- */

/* An elastic job gets as many workers as quotas and share allow. */
static int allowed(const struct queue *q, const struct queue_job *j)
{
    int n = j->job->workers - j->alive;
    n = n > 0 ? quotas_admit(q, j, n) : n;
    n += j->alive;
    n = queue_share_allows(q, j, n, true, NULL);
    return n > j->job->min ? n : j->job->min;
}

/* How many of n further workers an elastic job may have beyond those that it has: only as many as
 * fit now, if a job of its priority or a higher one waits or is being placed, or if a gang of a
 * lower priority runs, which the scheduler would preempt pod by pod for them. */
static int fitting(const struct queue *q, const struct queue_job *j, int n)
{
    bool others = (q->crowded && q->crowd >= j->priority) || q->lowest < j->priority;
    return q->in->cluster && j->gates && others ? fit_count(q->in->cluster, &j->demand->spec, n)
                                                : n;
}

static void go(struct queue *q, struct queue_job *j, bool sure)
{
    struct tenant *t = queue_tenant(q, j->job);
    int n = allowed(q, j);
    if (n > j->job->min) {
        n = fitting(q, j, n);
        n = n > j->job->min ? n : j->job->min;
    }
    queue_crowd(q, j->priority);
    t->served = q->in->now;
    j->ret.go = true;
    j->ret.why[0] = '\0';
    j->ret.workers = n;
    if (!sure)
        queue_note_probe(q, j);
    take_quotas(q, j, n > j->alive ? n - j->alive : 0);
    queue_reserve(q, j, n);
}

static const char *doubt(const struct queue *q, const struct queue_job *j)
{
    if (!q->in->cluster)
        return "the operator may not list nodes";
    return j->demand->spec.unjudged ? j->demand->spec.unjudged : "they did not fit before";
}

static void wait_for_probe(struct queue *q, struct queue_job *j, const struct hvdjob *other,
                           bool full)
{
    j->ret.wait = WAIT_PROBE;
    if (full)
        snprintf(
            j->ret.why, sizeof(j->ret.why),
            "it is not known whether its workers fit (%s); at most %d such jobs are tried at a "
            "time, those of one namespace at most half, and job %.63s/%.63s is one of them",
            doubt(q, j), q->in->policy.probes, other->namespace_, other->name);
    else
        snprintf(j->ret.why, sizeof(j->ret.why),
                 "it is not known whether its workers fit (%s); a namespace has one such job at a "
                 "time tried on the same nodes, and job %.63s/%.63s is being tried",
                 doubt(q, j), other->namespace_, other->name);
    queue_crowd(q, j->priority);
}

static void say_claimed(const struct queue *q, struct queue_job *j)
{
    queue_say(j,
              "its workers could take the nodes on which other jobs are preempted for job "
              "%.63s/%.63s",
              q->claimer->namespace_, q->claimer->name);
}

/* The scheduler would place its workers also on nodes that are reserved: others would be preempted
 * for that job once more. */
static void wait_for_claim(struct queue *q, struct queue_job *j)
{
    say_claimed(q, j);
    queue_say(j, "; it is admitted once that job has them");
    j->ret.wait = WAIT_HELD;
    queue_again(j, q->in->now + 10 * MOMENT_S);
    queue_crowd(q, j->priority);
}

static void say_held(const struct queue *q, struct queue_job *j)
{
    j->ret.wait = q->holder ? WAIT_HELD : WAIT_ROOM;
    if (q->holder)
        queue_say(j,
                  "; job %.63s/%.63s has waited longer than %d s and holds the nodes that it needs",
                  q->holder->namespace_, q->holder->name, (int)(QUEUE_PATIENCE / MOMENT_S));
}

/* For a gang that does not fit now: preempts others, or admits it on trial after
 * gang.probeSeconds, else lets it wait and says why. */
static void wait_for_room(struct queue *q, struct queue_job *j, bool head)
{
    const struct hvdjob *job = j->job;
    const struct podspec *spec = &j->demand->spec;
    int64_t probe = queue_waits_since(job) + job->probe * MOMENT_S;
    bool full, possible = queue_possible(q, j);
    if (possible && queue_preempt(q, j)) {
        j->ret.wait = WAIT_PREEMPTING;
        queue_crowd(q, j->priority);
        return;
    }
    if (job->probe > 0 && q->in->now >= probe && !queue_probe_of(q, j, &full)) {
        go(q, j, false);
        return;
    }
    fit_explain(q->in->cluster, spec, job->min, j->ret.why,
                sizeof(j->ret.why) - (q->in->nstuck > 0 ? SAY_STUCK : 0));
    queue_say_stuck(q, j);
    say_held(q, j);
    if (job->probe > 0 && probe > q->in->now)
        queue_again(j, probe);
    if (possible && head)
        queue_hold(q, j);
    queue_crowd(q, j->priority);
}

/* ---- what the API server has said ------------------------------------------------------------ */

static bool pauses_after_rollback(struct queue *q, struct queue_job *j)
{
    const struct hvdjob *job = j->job;
    int most = q->in->policy.gang_timeout_max;
    int64_t pause = backoff(job->status.rollbacks, BACKOFF_GANG, BACKOFF_GANG_MAX);
    if (job->status.rollbacks == 0 || q->in->now >= job->status.last_rollback + pause)
        return false;
    snprintf(j->ret.why, sizeof(j->ret.why),
             "fewer than %d of its workers got a node within %d s, so all were deleted; the job is "
             "tried again %" PRId64 " s after that",
             job->min, most > 0 && most < job->gang_timeout ? most : job->gang_timeout,
             pause / MOMENT_S);
    j->ret.wait = WAIT_ROLLBACK;
    queue_again(j, job->status.last_rollback + pause);
    return true;
}

/* By the template's demand the quotas have room for the gang that they refused. Its part is taken,
 * so that the tenant's later jobs are asked about, or admitted, only beside it. */
static void ask_again(struct queue *q, struct queue_job *j)
{
    struct tenant *t = queue_tenant(q, j->job);
    if (j->job->min > j->alive)
        take_quotas(q, j, j->job->min - j->alive);
    if (!t->ask || j->refused_at < t->ask->refused_at)
        t->ask = j;
}

/* Refused pods: of an admitted gang, or the dry run's. */
static bool pauses_after_refusal(struct queue *q, struct queue_job *j)
{
    const struct hvdjob_status *st = &j->job->status;
    int64_t pause = backoff(st->refusals, BACKOFF_GANG, BACKOFF_GANG_MAX);
    bool real = st->refusals > 0 && q->in->now < st->last_refusal + pause;
    if (!real && !j->refused)
        return false;
    queue_again(j, real ? st->last_refusal + pause : j->refused_again);
    if (!real && j->refused_for == WAIT_QUOTA) {
        if (waits_for_quota(q, j))
            return true;
        if (j->may_ask || j->asking)
            ask_again(q, j);
    }
    snprintf(j->ret.why, sizeof(j->ret.why), "%s%.900s",
             real ? "the API server refuses a worker's pod: " : "",
             real ? words(st->refusal) : j->refused);
    j->ret.wait = real ? WAIT_REFUSED : j->refused_for;
    return true;
}

/* ---- one job --------------------------------------------------------------------------------- */

/* Wherever this job ran, it would be the first to be preempted again should the gang that preempted
 * it lose its room. */
static bool waits_for_preemptor(struct queue *q, struct queue_job *j)
{
    const struct queue_job *by = queue_preemptor(q, j);
    if (!by || by->ret.go)
        return false;
    queue_say(j, "it was preempted for job %.63s/%.63s, which is admitted first",
              by->job->namespace_, by->job->name);
    j->ret.wait = WAIT_HELD;
    queue_again(j, q->in->now + 10 * MOMENT_S);
    queue_crowd(q, j->priority);
    return true;
}

static void decide(struct queue *q, struct queue_job *j, bool head)
{
    const struct hvdjob *other;
    bool full;
    if (j->pending || pauses_after_refusal(q, j) || waits_for_quota(q, j) || waits_for_share(q, j))
        return;
    if (!j->gates) {
        go(q, j, true);
        return;
    }
    if (pauses_after_rollback(q, j) || waits_for_preemptor(q, j))
        return;
    if (q->in->cluster && fit_count(q->in->cluster, &j->demand->spec, j->job->min) < j->job->min)
        wait_for_room(q, j, head);
    else if (queue_is_claimed(q, j))
        wait_for_claim(q, j);
    else if (queue_certain(q, j))
        go(q, j, true);
    else if ((other = queue_probe_of(q, j, &full)))
        wait_for_probe(q, j, other, full);
    else
        go(q, j, false);
}

/* A gang that claims nodes and has to wait keeps the room that is made free for it, also if a part
 * of that is lost: otherwise its victims would take it back, and be preempted again. The end of the
 * victims' pods, for example, takes a while to show in status.used of a quota. */
static void keep_claim(struct queue *q, struct queue_job *j)
{
    bool reserved = j->ret.go || j->ret.wait == WAIT_PREEMPTING || q->holder == j->job;
    if (j->gates && !reserved && j->ret.claimed != MOMENT_NONE && q->in->cluster)
        queue_reserve_later(q, j);
}

void queue_admit(struct queue *q, struct queue_job *j, bool head)
{
    decide(q, j, head);
    keep_claim(q, j);
}

/* ---- elastic jobs ---------------------------------------------------------------------------- */

/* How many of n workers beyond queue_held() the share allows. Of these, the loose ones exist or are
 * being created: they count already. */
static int share_of_growth(struct queue *q, struct queue_job *j, int n, int loose)
{
    struct queue_limit limit;
    int most = queue_share_allows(q, j, n, false, &limit);
    if (most > loose) {
        queue_loosen(q, j, -loose);
        most = queue_share_allows(q, j, most, true, &limit);
        queue_loosen(q, j, loose);
        most = most > loose ? most : loose;
    }
    if (most < n && !j->ret.why[0])
        queue_say_share(q, j, limit, n, false);
    return most;
}

static int quota_of_growth(const struct queue *q, struct queue_job *j, int n)
{
    int most = quotas_admit(q, j, n);
    if (most < n)
        say_quota(q, j, n, 0);
    return most;
}

static int room_of_growth(const struct queue *q, struct queue_job *j, int n)
{
    bool claimed = n > 0 && queue_is_claimed(q, j);
    int most = n > 0 && !claimed ? fitting(q, j, n) : 0;
    if (claimed && !j->ret.why[0])
        say_claimed(q, j);
    else if (most < n && !j->ret.why[0])
        queue_say(j,
                  "%d of %d fit now, and while other jobs wait, start, or run with a lower "
                  "priority, it gets none that would be pending",
                  most, n);
    return most;
}

/* Of an elastic job's workers beyond queue_held(), some may exist: they have no node, and are
 * deleted if the job may not have them. Until then they stay loose. */
static int growth(struct queue *q, struct queue_job *j)
{
    int kept = queue_held(j), exist = j->alive > kept ? j->alive - kept : 0;
    int n = j->job->workers - kept, loose = queue_loose(j);
    take_quotas(q, j, -granted(j));
    n = n > exist ? exist + quota_of_growth(q, j, n - exist) : n;
    n = share_of_growth(q, j, n, loose);
    n = room_of_growth(q, j, n);
    take_quotas(q, j, n - exist > granted(j) ? n - exist : granted(j));
    queue_reserve(q, j, n);
    queue_loosen(q, j, n < loose ? -n : -loose);
    return kept + n;
}

void queue_grow(struct queue *q, struct queue_job *j)
{
    const struct hvdjob *job = j->job;
    if (!queue_is_admitted(job) || j->ret.workers > 0 || j->ret.preempted)
        return;
    int n = !job->elastic ? job->workers : queue_is_frozen(j) ? j->alive : growth(q, j);
    j->ret.workers = n < queue_min(j) ? queue_min(j) : n < job->workers ? n : job->workers;
}
