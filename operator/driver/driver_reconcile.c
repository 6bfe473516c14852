/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_reconcile: one reconciliation of one job: waits until the caches show this operator's
 * own writes, calls reconcile(), and starts to apply the actions.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/driver_private.h"
#include "operator/reconcile/reconcile.h"

#define CONFLICT_MS 10000   /* between two reads of a foreign pod that has a worker's name */
#define LONGEST_MS  3600000 /* limits a pause that a jump of the wall clock made longer */
#define RUN_MS      2       /* until a run of the queue may be complete */
#define FAILED_MS   1000    /* pause after a failed allocation */

/* ---- expectations ---------------------------------------------------------------------------- */

struct cached {
    struct driver *d;
    struct entry *e;
};

static bool is_satisfied(void *arg, const struct expectation *w)
{
    const struct cached *q = arg;
    const struct entry *e = q->e;
    if (w->kind == EXPECT_JOB_GONE)
        return !e->job || strcmp(e->job->job.uid, w->uid) != 0 || e->job->job.deleting;
    if (w->kind == EXPECT_STATUS)
        return !e->job || strcmp(e->job->job.uid, w->uid) != 0 || e->job->version >= w->version;
    const struct pod_item *p = driver_pod(q->d, e, w->name);
    bool same = p && strcmp(p->pod.uid, w->uid) == 0;
    if (w->kind == EXPECT_POD_GONE)
        return !same || p->pod.deleting;
    if (same)
        return p->version >= w->version;
    /* The pod is not cached. If the cache is at the version of the write or later, the pod has been
     * deleted. */
    return w->version > 0 && items_version(informer_version(q->d->pods)) >= w->version;
}

static bool expectations_met(struct driver *d, struct entry *e)
{
    struct cached q = {d, e};
    bool waited = e->expectations.n > 0, late = waited && deadline_passed(e->expectations.until);
    if (!expectations_satisfied(&e->expectations, is_satisfied, &q)) {
        driver_enqueue_at(d, e, e->expectations.until);
        return false;
    }
    if (late) {
        log_debug("job %s: the caches did not show its writes within %d s", e->key,
                  EXPECTATIONS_MS / 1000);
        d->stats.expectations_expired++;
    }
    return true;
}

/* ---- name conflicts: a pod that is not a worker's, with the name of one ---------------------- */

static void on_conflict(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    struct pod_item *pod = NULL;
    e->conflict_call = NULL;
    bool there =
        answer->status == 200 && items_pod_read(answer->body, answer->len, &pod, NULL) == 0;
    if (there || answer->status == 404) {
        items_pod_destroy(e->conflict);
        e->conflict = pod;
    }
    driver_enqueue(d, e);
}

static void read_conflict(struct driver *d, struct entry *e)
{
    static const struct resource pods = {"", "v1", "pods"};
    struct buf path = {0};
    request_path(&path, &pods, e->job->job.namespace_, e->conflict->pod.name, NULL);
    struct api_request q = {
        .method = "GET", .path = request_text(&path), .timeout_ms = CONFLICT_MS};
    if (q.path)
        api_send(d->config.api, &q, on_conflict, e, &e->conflict_call, NULL);
    buf_fini(&path);
}

/* No informer watches this pod: it may lack the job's label. So it is read again and again. */
static void follow_conflict(struct driver *d, struct entry *e)
{
    uint64_t now = clock_ns();
    if (!e->conflict)
        return;
    bool first = e->conflict_at == 0;
    if (!first && now >= e->conflict_at && !e->conflict_call)
        read_conflict(d, e);
    if (first || now >= e->conflict_at)
        e->conflict_at = now + CONFLICT_MS * CLOCK_MS;
    driver_enqueue_at(d, e, e->conflict_at);
}

/* Somebody else's pod matters until the worker has its own, with another name. */
static void forget_conflict(struct entry *e)
{
    if (!e->conflict || !e->job || strcmp(e->conflict->pod.owner, e->job->job.uid) == 0)
        return;
    api_cancel(e->conflict_call);
    e->conflict_call = NULL;
    items_pod_destroy(e->conflict);
    e->conflict = NULL;
}

/* ---- actions --------------------------------------------------------------------------------- */

static bool may_write(void *arg)
{
    const struct driver *d = arg;
    return d->leading && d->config.may_write(d->config.arg);
}

static void on_wrote(void *arg)
{
    struct driver *d = arg;
    d->stats.writes++;
}

static void on_leaves(void *arg, struct entry *e, const char *name, const char *uid)
{
    driver_notify_leaving(arg, e, name, uid);
}

static void on_all_leave(void *arg)
{
    const struct driver *d = arg;
    if (d->handlers.push)
        d->handlers.push(d->handlers.arg);
}

static void on_ended(void *arg, struct entry *e, enum apply_end end, const struct err *err)
{
    struct driver *d = arg;
    uint64_t now = clock_ns();
    if (end == APPLY_DONE) {
        forget_conflict(e);
        e->failures = 0;
        e->not_before = 0;
        e->stale = false;
        driver_enqueue_at(d, e, now);
        return;
    }
    driver_notify_pods(d, e); /* a pod may not have been deleted */
    e->stale = end == APPLY_STALE;
    e->admitted &= end == APPLY_FAILED; /* the lost response may have been a success */
    if (e->problem)
        driver_forget_dry_run(d, e); /* it has passed, and the pods do not */
    d->queue_dirty = true;
    d->stats.stale += end == APPLY_STALE;
    d->stats.failures += end == APPLY_FAILED;
    e->failures++;
    uint64_t at = now + retry_backoff_ms(e->failures, randombytes_random()) * CLOCK_MS;
    if (e->not_before < at) /* Retry-After may have set a longer pause */
        e->not_before = at;
    if (end == APPLY_FAILED && (e->failures == 5 || e->failures % 20 == 0))
        log_warn("job %s: %u writes failed in a row, it is tried again: %s", e->key, e->failures,
                 err_text(err));
    else
        log_debug("job %s: %s", e->key, err_text(err));
    /* The next status shows e->problem. */
    driver_enqueue_at(d, e, e->not_before);
}

static int count(const struct actions *actions, enum action_kind kind)
{
    int n = 0;
    for (int i = 0; i < actions->n; i++)
        n += actions->all[i].kind == kind;
    return n;
}

static bool makes(const struct actions *actions, enum action_kind kind)
{
    return count(actions, kind) > 0;
}

static void apply(struct driver *d, struct entry *e, struct actions *actions)
{
    struct apply_config config = {.api = d->config.api,
                                  .recorder = d->recorder,
                                  .inflight = &d->inflight,
                                  .injection = d->injects ? &d->injection : NULL,
                                  .drains = &d->drains,
                                  .by_key = d->handlers.key != NULL,
                                  .may_write = may_write,
                                  .ended = on_ended,
                                  .wrote = on_wrote,
                                  .leaves = on_leaves,
                                  .all_leave = on_all_leave,
                                  .arg = d};
    struct err err = {0};
    enum job_phase before = e->job->job.status.phase;
    e->admitted = actions->status.phase == JOB_STARTING && before != JOB_STARTING;
    e->asked = actions->status.workers + count(actions, ACTION_CREATE_POD);
    if (makes(actions, ACTION_WRITE_STATUS))
        e->status_written = driver_now();
    if (apply_start(&config, e, actions, &err) == 0)
        return;
    log_warn("job %s: %s", e->key, err_text(&err));
    e->admitted = false;
    driver_enqueue_at(d, e, clock_ns() + FAILED_MS * CLOCK_MS);
}

static void ask_again(struct driver *d, struct entry *e, int64_t again)
{
    if (again == INT64_MAX)
        return;
    int64_t ms = again - driver_now();
    ms = ms < 0 ? 0 : ms > LONGEST_MS ? LONGEST_MS : ms;
    driver_enqueue_at(d, e, clock_ns() + (uint64_t)ms * CLOCK_MS);
}

/* A refusal of a pod or PodGroup no longer matters once the job creates none any more. */
static void forget_problem(struct driver *d, struct entry *e, const struct actions *actions)
{
    if (!e->problem || makes(actions, ACTION_CREATE_POD) || makes(actions, ACTION_CREATE_GROUP))
        return;
    entry_note_problem(e, NULL, false);
    driver_enqueue(d, e);
}

static void note_texts(struct entry *e, const struct actions *actions)
{
    if (!actions->texts_wait)
        e->texts_since = MOMENT_NONE;
    else if (e->texts_since == MOMENT_NONE)
        e->texts_since = driver_now();
}

/* ---- one reconciliation ---------------------------------------------------------------------- */

/* Fills in the job's PodGroup, if its back end uses one. False: its cache has not synced yet. */
static bool see_group(struct driver *d, struct entry *e, struct reconcile_input *in)
{
    if (!e->gang || !e->gang->group)
        return true;
    struct group_cache *g = driver_groups(d, e);
    if (!g || !informer_synced(g->informer))
        return false;
    const struct group_item *item = informer_get(g->informer, e->key);
    bool ours = item && strcmp(item->owner, in->job->uid) == 0;
    in->has_group = ours || strcmp(e->group_made, in->job->uid) == 0;
    in->group_pending = ours ? item->pending : NULL;
    return true;
}

/* Does the cache have a pod of this name with the job's label? */
static bool is_cached(const struct driver *d, const struct entry *e, const struct pod *pod)
{
    const struct pod_item *p = driver_pod(d, e, pod->name);
    return p && strcmp(p->pod.job, strchr(e->key, '/') + 1) == 0;
}

static int64_t status_every(const struct driver *d)
{
    int64_t shared = RECONCILE_STATUS_EACH * d->starting;
    return shared < RECONCILE_STATUS_EVERY  ? RECONCILE_STATUS_EVERY
           : shared > RECONCILE_STATUS_MOST ? RECONCILE_STATUS_MOST
                                            : shared;
}

static int decide(struct driver *d, struct entry *e, const struct job_facts *facts,
                  struct actions *actions, struct err *err)
{
    struct reconcile_input in = {.job = &e->job->job,
                                 .admission = e->admission,
                                 .gang_timeout_max = d->config.policy.gang_timeout_max,
                                 .gang = e->gang,
                                 .gang_missing = e->gang_missing,
                                 .refused = e->problem,
                                 .group_taken = e->group_taken,
                                 .budget_problem = e->budget_problem,
                                 .drains = driver_drains(d),
                                 .facts = facts,
                                 .status_every = status_every(d),
                                 .status_written = e->status_written,
                                 .texts_since = e->texts_since,
                                 .now = driver_now()};
    *actions = (struct actions){.again = INT64_MAX};
    if (!see_group(d, e, &in))
        return 0;
    const struct pod **pods = malloc(((size_t)e->npods + 2) * sizeof(*pods));
    if (!pods)
        return err_set(err, ENOMEM, "no memory");
    for (int i = 0; i < e->npods; i++)
        pods[in.npods++] = &e->pods[i]->pod;
    if (e->conflict && !is_cached(d, e, &e->conflict->pod))
        pods[in.npods++] = &e->conflict->pod;
    in.pods = pods;
    uint64_t began = clock_ns();
    int rc = reconcile(&in, actions, err);
    histogram_add(&d->stats.reconcile, (double)(clock_ns() - began) / (double)CLOCK_S);
    free(pods);
    return rc;
}

static bool is_queued(const struct entry *e)
{
    enum job_phase phase = e->job->job.status.phase;
    return phase == JOB_NEW || phase == JOB_QUEUED;
}

/* A queued job is not reconciled before the queue has decided; the decision enqueues it. */
static bool waits_for_queue(const struct entry *e)
{
    return !e->admission && e->job->job.ours && is_queued(e);
}

/* A gang is not admitted by an earlier decision while a run of the queue decides anew: its snapshot
 * counts the gang as waiting. */
static bool waits_for_run(const struct driver *d, const struct entry *e)
{
    return d->snapshot && e->admission && e->admission->go && is_queued(e);
}

/* The admission was written in vain. Meanwhile the queue has counted the gang as admitted, so it
 * decides again. */
static void forget_failed_admission(struct driver *d, struct entry *e)
{
    if (e->admitted && is_queued(e)) {
        entry_forget_admission(e);
        driver_queue_at(d, clock_ns());
    }
    e->admitted = false;
}

void driver_reconcile(struct driver *d, struct entry *e)
{
    struct actions actions;
    struct err err = {0};
    if (!e->job || e->apply)
        return;
    if (!expectations_met(d, e))
        return;
    if (waits_for_run(d, e)) {
        driver_enqueue_at(d, e, clock_ns() + RUN_MS * CLOCK_MS);
        return;
    }
    forget_failed_admission(d, e);
    e->reconciled_at = clock_ns();
    d->stats.reconciles++;
    driver_choose_gang(d, e);
    if (!e->gang_known || waits_for_queue(e))
        return;
    follow_conflict(d, e);
    struct job_facts facts = {0};
    if (d->handlers.facts)
        d->handlers.facts(d->handlers.arg, e->job->job.uid, &facts);
    int rc = decide(d, e, &facts, &actions, &err);
    job_facts_fini(&facts);
    if (rc < 0) {
        log_warn("job %s: %s", e->key, err_text(&err));
        driver_enqueue_at(d, e, clock_ns() + FAILED_MS * CLOCK_MS);
    } else {
        forget_problem(d, e, &actions);
        note_texts(e, &actions);
        ask_again(d, e, actions.again);
        bool keyed = !makes(&actions, ACTION_CREATE_POD) || driver_has_key(d, e);
        if (actions.n > 0 && keyed)
            apply(d, e, &actions);
        driver_keep_budget(d, e);
    }
    actions_fini(&actions);
}
