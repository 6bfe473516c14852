/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_look: one look at one job: is what we wrote in the caches, what does reconcile() want, and
 * off with it.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/driver_private.h"
#include "operator/reconcile/reconcile.h"

#define STRANGER_MS 10000   /* how often a pod that has a name of ours is looked after */
#define LONGEST_MS  3600000 /* the wall clock may jump */
#define FAILED_MS   1000    /* no memory */

/* ---- is what was written in the caches? ------------------------------------------------------ */

struct asking {
    struct driver *d;
    struct entry *e;
};

static bool wait_is_over(void *arg, const struct wait *w)
{
    const struct asking *q = arg;
    const struct entry *e = q->e;
    if (w->kind == WAIT_END)
        return !e->job || strcmp(e->job->job.uid, w->uid) != 0 || e->job->job.deleting;
    if (w->kind == WAIT_JOB)
        return !e->job || strcmp(e->job->job.uid, w->uid) != 0 || e->job->version >= w->version;
    const struct pod_item *p = driver_pod(q->d, e, w->name);
    bool same = p && strcmp(p->pod.uid, w->uid) == 0;
    if (w->kind == WAIT_GONE)
        return !same || p->pod.deleting;
    if (same)
        return p->version >= w->version;
    /* It came and went, if the cache has all that was until then. */
    return w->version > 0 && items_version(informer_version(q->d->pods)) >= w->version;
}

static bool caches_have_it(struct driver *d, struct entry *e)
{
    struct asking q = {d, e};
    bool waited = e->waits.n > 0, late = waited && deadline_passed(e->waits.until);
    if (!waits_over(&e->waits, wait_is_over, &q)) {
        driver_due(d, e, e->waits.until);
        return false;
    }
    if (late) {
        log_debug("%s: what was written has not come within %d s", e->key, WAITS_MS / 1000);
        d->stats.gave_up++;
    }
    return true;
}

/* ---- a pod that has a name of ours ----------------------------------------------------------- */

static void on_stranger(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    struct pod_item *pod = NULL;
    e->asking = NULL;
    bool there = answer->status == 200 &&
                 items_pod_read(&d->kinds, answer->body, answer->len, &pod, NULL) == 0;
    if (there || answer->status == 404) {
        items_pod_destroy(e->stranger);
        e->stranger = pod;
    }
    driver_touch(d, e);
}

static void ask_after_stranger(struct driver *d, struct entry *e)
{
    static const struct resource pods = {"", "v1", "pods"};
    struct buf path = {0};
    request_path(&path, &pods, e->job->job.namespace_, e->stranger->pod.name, NULL);
    struct api_request q = {
        .method = "GET", .path = request_text(&path), .timeout_ms = STRANGER_MS};
    if (q.path)
        api_send(d->config.api, &q, on_stranger, e, &e->asking, NULL);
    buf_fini(&path);
}

/* No cache follows it: it may have no label of ours. */
static void look_after_stranger(struct driver *d, struct entry *e)
{
    uint64_t now = clock_ns();
    if (!e->stranger)
        return;
    bool first = e->stranger_at == 0;
    if (!first && now >= e->stranger_at && !e->asking)
        ask_after_stranger(d, e);
    if (first || now >= e->stranger_at)
        e->stranger_at = now + STRANGER_MS * CLOCK_MS;
    driver_due(d, e, e->stranger_at);
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

static void on_ended(void *arg, struct entry *e, enum apply_end end, const struct err *err)
{
    struct driver *d = arg;
    uint64_t now = clock_ns();
    if (end == APPLY_DONE) {
        e->failures = 0;
        e->not_before = 0;
        e->stale = false;
        driver_due(d, e, now);
        return;
    }
    e->stale = end == APPLY_STALE;
    e->let_go = false;
    d->ask_queue = true;
    d->stats.stale += end == APPLY_STALE;
    d->stats.failures += end == APPLY_FAILED;
    e->failures++;
    uint64_t at = now + retry_backoff_ms(e->failures, randombytes_random()) * CLOCK_MS;
    if (e->not_before < at) /* the server may have asked for longer */
        e->not_before = at;
    if (end == APPLY_FAILED && (e->failures == 5 || e->failures % 20 == 0))
        log_warn("job %s, %u failures in a row: %s", e->key, e->failures, err_text(err));
    else
        log_debug("job %s: %s", e->key, err_text(err));
    /* Whose pods are refused has to say so. */
    driver_due(d, e, e->not_before);
}

static bool makes(const struct actions *actions, enum action_kind kind)
{
    for (int i = 0; i < actions->n; i++)
        if (actions->all[i].kind == kind)
            return true;
    return false;
}

static void apply(struct driver *d, struct entry *e, struct actions *actions)
{
    struct apply_config config = {.api = d->config.api,
                                  .said = d->said,
                                  .turnstile = &d->turnstile,
                                  .kinds = &d->kinds,
                                  .equipment = d->equipped ? &d->equipment : NULL,
                                  .by_key = d->ear.key != NULL,
                                  .may_write = may_write,
                                  .ended = on_ended,
                                  .wrote = on_wrote,
                                  .arg = d};
    struct err err = {0};
    enum job_phase before = e->job->job.status.phase;
    e->let_go = actions->status.phase == JOB_STARTING && before != JOB_STARTING;
    if (makes(actions, ACTION_WRITE_STATUS))
        e->told = driver_now();
    if (apply_start(&config, e, actions, &err) == 0)
        return;
    log_warn("job %s: %s", e->key, err_text(&err));
    e->let_go = false;
    driver_due(d, e, clock_ns() + FAILED_MS * CLOCK_MS);
}

static void ask_again(struct driver *d, struct entry *e, int64_t again)
{
    if (again == INT64_MAX)
        return;
    int64_t ms = again - driver_now();
    ms = ms < 0 ? 0 : ms > LONGEST_MS ? LONGEST_MS : ms;
    driver_due(d, e, clock_ns() + (uint64_t)ms * CLOCK_MS);
}

/* What was said to a pod that nobody wants any more is said no longer. */
static void forget_problem(struct driver *d, struct entry *e, const struct actions *actions)
{
    if (!e->problem || makes(actions, ACTION_CREATE_POD) || makes(actions, ACTION_CREATE_GROUP))
        return;
    free(e->problem);
    e->problem = NULL;
    driver_touch(d, e);
}

/* ---- a look ---------------------------------------------------------------------------------- */

/* What its PodGroup is, as far as it has one; false: that is not known yet. */
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
    in->group_waits = ours ? item->waits : NULL;
    return true;
}

/* Is it among the entry's pods, under its name? */
static bool is_cached(const struct driver *d, const struct entry *e, const struct pod *pod)
{
    const struct pod_item *p = driver_pod(d, e, pod->name);
    return p && strcmp(p->pod.job, strchr(e->key, '/') + 1) == 0;
}

static int decide(struct driver *d, struct entry *e, const struct job_facts *facts,
                  struct actions *actions, struct err *err)
{
    struct reconcile_input in = {.job = &e->job->job,
                                 .admission = e->admission,
                                 .gang = e->gang,
                                 .gang_missing = e->gang_missing,
                                 .refused = e->problem,
                                 .budget_problem = e->budget_problem,
                                 .facts = facts,
                                 .told = e->told,
                                 .now = driver_now()};
    *actions = (struct actions){.again = INT64_MAX};
    if (!see_group(d, e, &in))
        return 0;
    const struct pod **pods = malloc(((size_t)e->npods + 2) * sizeof(*pods));
    if (!pods)
        return err_set(err, ENOMEM, "no memory");
    for (int i = 0; i < e->npods; i++)
        pods[in.npods++] = &e->pods[i]->pod;
    if (e->stranger && !is_cached(d, e, &e->stranger->pod))
        pods[in.npods++] = &e->stranger->pod;
    in.pods = pods;
    uint64_t began = clock_ns();
    int rc = reconcile(&in, actions, err);
    histogram_add(&d->stats.reconcile, (double)(clock_ns() - began) / (double)CLOCK_S);
    free(pods);
    return rc;
}

/* Whether it may go is what comes first; the queue's answer makes it due. */
static bool waits_for_queue(const struct entry *e)
{
    enum job_phase phase = e->job->job.status.phase;
    return !e->admission && e->job->job.ours && (phase == JOB_NEW || phase == JOB_QUEUED);
}

void driver_look(struct driver *d, struct entry *e)
{
    struct actions actions;
    struct err err = {0};
    if (!e->job || e->apply)
        return;
    if (!caches_have_it(d, e))
        return;
    e->let_go = false;
    e->looked = clock_ns();
    d->stats.looks++;
    driver_choose_gang(d, e);
    if (!e->gang_known || waits_for_queue(e))
        return;
    look_after_stranger(d, e);
    struct job_facts facts = {0};
    if (d->ear.facts)
        d->ear.facts(d->ear.arg, e->job->job.uid, &facts);
    int rc = decide(d, e, &facts, &actions, &err);
    job_facts_fini(&facts);
    if (rc < 0) {
        log_warn("job %s: %s", e->key, err_text(&err));
        driver_due(d, e, clock_ns() + FAILED_MS * CLOCK_MS);
    } else {
        forget_problem(d, e, &actions);
        ask_again(d, e, actions.again);
        bool keyed = !makes(&actions, ACTION_CREATE_POD) || driver_has_key(d, e);
        if (actions.n > 0 && keyed)
            apply(d, e, &actions);
        driver_keep_budget(d, e);
    }
    actions_fini(&actions);
}
