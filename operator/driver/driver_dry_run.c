/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_dry_run: see dry_run.h.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/object.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/bodies.h"
#include "operator/driver/driver_private.h"
#include "operator/reconcile/backoff.h"

#define TIMEOUT_MS 15000
#define LATE_MS    5000 /* without an answer; then the job's message says so */

struct verdict *verdict_ref(struct verdict *v)
{
    v->refs++;
    return v;
}

void verdict_unref(struct verdict *v)
{
    if (!v || --v->refs > 0)
        return;
    free(v->refused);
    demand_fini(&v->demand);
    free(v);
}

static void send_next(struct driver *d);

/* ms: until it is asked again. */
static struct verdict *refusal(enum wait wait, const char *what, const char *message, int64_t ms)
{
    char text[800];
    struct verdict *v = calloc(1, sizeof(*v));
    snprintf(text, sizeof(text), "%s: %.700s", what, message);
    if (!v)
        return NULL;
    v->refs = 1;
    v->wait = wait;
    v->at = driver_now();
    v->again = v->at + ms;
    v->refused = strdup(text);
    if (!v->refused) /* without it the verdict would be an acceptance */
        verdict_unref(TAKE(v));
    return v;
}

static struct verdict *acceptance(const struct entry *e, struct dry_run *r,
                                  const struct api_answer *answer)
{
    auto_json json_t *j = NULL;
    const char *replaced;
    struct verdict *v = calloc(1, sizeof(*v));
    r->refusals = 0;
    if (!v)
        return NULL;
    v->refs = 1;
    v->known = answer->status == 201 &&
               object_read(answer->body, answer->len, "a pod", &j, &replaced, NULL) == 0 &&
               demand_parse(json_object_get(j, "spec"), e->job ? &e->job->job.podspec : NULL,
                            &v->demand, NULL) == 0;
    return v;
}

/* The API server has no code for it: plugin/pkg/admission/resourcequota. The second is of pods that
 * lack requests which a quota wants. */
static bool is_of_quota(const char *message)
{
    return strstr(message, "exceeded quota: ") || strstr(message, "failed quota: ");
}

static void set_verdict(struct dry_run *r, struct verdict *v)
{
    if (!v)
        return;
    verdict_unref(r->verdict);
    r->verdict = v;
}

/* A webhook with side effects does not support dry runs: the pods themselves will show whether they
 * are accepted. */
static bool is_unsupported(const struct api_answer *answer)
{
    return answer->status == 400 && strstr(answer->message, "does not support dry run");
}

/* There was no answer. From DRY_RUN_PATIENCE on the job's message says so. */
static void note_failure(struct driver *d, struct entry *e, const struct api_answer *answer)
{
    struct dry_run *r = &e->dry_run;
    int64_t ms = (int64_t)retry_backoff_ms(++r->failures, randombytes_random());
    int64_t asked = answer->retry_after_s < RETRY_MAX_MS / 1000
                        ? answer->retry_after_s * INT64_C(1000)
                        : RETRY_MAX_MS;
    ms = asked > ms ? asked : ms; /* Retry-After; -1: none */
    r->not_before = clock_ns() + (uint64_t)ms * CLOCK_MS;
    driver_queue_at(d, r->not_before);
    if (r->failures < DRY_RUN_PATIENCE)
        return;
    set_verdict(r, refusal(WAIT_UNANSWERED,
                           "the API server cannot say whether it accepts a worker's pod",
                           answer->message, ms));
    if (r->failures == DRY_RUN_PATIENCE)
        log_warn("job %s: %u dry runs of a worker's pod failed in a row; it stays queued: %s",
                 e->key, r->failures, answer->message);
    /* Else the queue's last decision says the same. */
    d->queue_dirty |= r->failures == DRY_RUN_PATIENCE || !e->admission;
}

/* The next job of its namespace is asked about at once if this one is accepted. */
static void end_early(struct driver *d, struct entry *e, bool accepted)
{
    char namespace[64];
    if (!e->dry_run.early)
        return;
    e->dry_run.early = false;
    snprintf(namespace, sizeof(namespace), "%.*s", (int)strcspn(e->key, "/"), e->key);
    struct driver_tenant *t = driver_tenant(d, namespace);
    if (t)
        t->early_at = accepted ? 0 : clock_ns() + DRY_RUN_PAUSE;
    d->queue_dirty = true;
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    struct dry_run *r = &e->dry_run;
    struct verdict *fresh = NULL;
    bool accepted = answer->status == 201 || is_unsupported(answer);
    r->call = NULL;
    d->dry_runs--;
    end_early(d, e, accepted);
    if (accepted)
        fresh = acceptance(e, r, answer);
    else if (retry_is_refusal(answer->status))
        fresh = refusal(is_of_quota(answer->message) ? WAIT_QUOTA : WAIT_REFUSED,
                        "the API server refuses a worker's pod", answer->message,
                        backoff(++r->refusals, BACKOFF_GANG, BACKOFF_GANG_MAX));
    set_verdict(r, fresh);
    if (fresh) {
        r->failures = 0;
        d->queue_dirty = true;
    } else {
        note_failure(d, e, answer);
    }
    if (!e->job)
        driver_enqueue(d, e); /* the next tick frees the entry */
    send_next(d);
    driver_wake(d);
}

/* The pod has no name, so that existing pods are no conflict. */
static char *body_of(struct driver *d, struct entry *e)
{
    char name[128];
    const struct hvdjob *job = &e->job->job;
    auto_free char *text = bodies_pod(job, e->gang, d->injects ? &d->injection : NULL, NULL,
                                      d->handlers.key != NULL, 0, 0);
    auto_json json_t *j = NULL;
    if (!text || json_read(text, strlen(text), "a pod", &j, NULL) < 0)
        return NULL;
    json_t *meta = json_object_get(j, "metadata");
    snprintf(name, sizeof(name), "%.60s-0-", job->name);
    json_object_del(meta, "name");
    if (json_object_set_new(meta, "generateName", json_string(name)) < 0)
        return NULL;
    return json_write(j);
}

/* The answer to a call that is in flight for long will replace this verdict. */
static void note_late(struct driver *d, struct dry_run *r)
{
    if (!r->call || r->verdict)
        return;
    if (clock_ns() < r->sent + LATE_MS * CLOCK_MS)
        driver_queue_at(d, r->sent + LATE_MS * CLOCK_MS);
    else
        set_verdict(r, refusal(WAIT_UNANSWERED,
                               "the API server has not answered yet whether it accepts a worker's "
                               "pod",
                               "the dry run takes longer than 5 s", TIMEOUT_MS - LATE_MS));
}

static void send(struct driver *d, struct entry *e)
{
    static const struct resource pods = {"", "v1", "pods"};
    struct dry_run *r = &e->dry_run;
    struct buf path = {0};
    auto_free char *body = body_of(d, e);
    request_path(&path, &pods, e->job->job.namespace_, NULL, NULL);
    request_query(&path, "dryRun", "All");
    request_query(&path, "fieldValidation", "Strict");
    struct api_request q = {.method = "POST",
                            .path = request_text(&path),
                            .body = body,
                            .idempotent = false, /* repeated here, without keeping a turn */
                            .timeout_ms = TIMEOUT_MS};
    if (body && q.path && api_send(d->config.api, &q, on_answer, e, &r->call, NULL) == 0) {
        d->dry_runs++;
        r->sent = clock_ns();
        note_late(d, r);
    } else {
        r->early = false;
        r->not_before = clock_ns() + CLOCK_S;
        driver_queue_at(d, r->not_before);
    }
    buf_fini(&path);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool is_current(const struct dry_run *r, const struct hvdjob *job)
{
    return strcmp(r->uid, job->uid) == 0 && strcmp(r->template_hash, job->template_hash) == 0;
}

/* Namespaces take turns, so that slow webhooks, or thousands of jobs, of one delay the others by
 * one call. */
static void send_next(struct driver *d)
{
    while (d->dry_runs < DRY_RUNS && !list_empty(&d->turns)) {
        struct driver_tenant *t = list_first(&d->turns, struct driver_tenant, turn);
        list_remove(&t->turn);
        if (list_empty(&t->waiting))
            continue;
        struct entry *e = list_first(&t->waiting, struct entry, dry_run.turn);
        list_remove(&e->dry_run.turn);
        if (!list_empty(&t->waiting))
            list_append(&d->turns, &t->turn);
        /* Of a job that has changed meanwhile, the next run of the queue asks again. */
        if (e->job && e->gang && is_current(&e->dry_run, &e->job->job) &&
            d->config.may_write(d->config.arg))
            send(d, e);
        else
            e->dry_run.early = false;
    }
}

static void take_turn(struct driver *d, struct entry *e)
{
    struct driver_tenant *t = driver_tenant(d, e->job->job.namespace_);
    if (!t) {
        driver_queue_at(d, clock_ns() + CLOCK_S);
        return;
    }
    if (list_empty(&e->dry_run.turn))
        list_append(&t->waiting, &e->dry_run.turn);
    if (list_empty(&t->turn))
        list_append(&d->turns, &t->turn);
    send_next(d);
}

void driver_forget_dry_run(struct driver *d, struct entry *e)
{
    struct dry_run *r = &e->dry_run;
    if (r->call) {
        api_cancel(r->call);
        r->call = NULL;
        d->dry_runs--;
    }
    r->early = false;
    list_remove(&r->turn);
    verdict_unref(r->verdict);
    r->verdict = NULL;
}

void driver_ask_early(struct driver *d, struct entry *e)
{
    struct dry_run *r = &e->dry_run;
    const struct driver_tenant *t = driver_tenant(d, e->job->job.namespace_);
    if (!t || r->call || !is_current(r, &e->job->job) || !e->gang)
        return;
    if (clock_ns() < t->early_at) {
        driver_queue_at(d, t->early_at);
        return;
    }
    r->early = true;
    take_turn(d, e);
}

static bool is_due(const struct dry_run *r)
{
    return !r->call && (!r->verdict || (r->verdict->refused && driver_now() >= r->verdict->again));
}

const struct verdict *driver_dry_run(struct driver *d, struct entry *e)
{
    const struct hvdjob *job = &e->job->job;
    struct dry_run *r = &e->dry_run;
    if (!is_current(r, job)) {
        driver_forget_dry_run(d, e);
        *r = (struct dry_run){0};
        list_init(&r->turn);
        memcpy(r->uid, job->uid, sizeof(r->uid));
        memcpy(r->template_hash, job->template_hash, sizeof(r->template_hash));
    }
    note_late(d, r);
    if (is_due(r) && clock_ns() < r->not_before)
        driver_queue_at(d, r->not_before);
    else if (is_due(r) && e->gang)
        take_turn(d, e);
    return r->verdict;
}
