/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_dry_run: see dry_run.h.
 */
#include <sodium.h>
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

static struct verdict *refusal(struct dry_run *r, const char *message)
{
    struct verdict *v = calloc(1, sizeof(*v));
    r->refusals++;
    if (v) {
        v->refs = 1;
        v->refused = strdup(message);
        v->again = driver_now() + backoff(r->refusals, BACKOFF_GANG, BACKOFF_GANG_MAX);
    }
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

/* A webhook with side effects does not support dry runs: the pods themselves will show whether they
 * are accepted. */
static bool is_unsupported(const struct api_answer *answer)
{
    return answer->status == 400 && strstr(answer->message, "does not support dry run");
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    struct dry_run *r = &e->dry_run;
    r->call = NULL;
    d->dry_runs--;
    d->queue_dirty = true;
    driver_enqueue(d, e); /* frees the entry if its job is gone */
    if (answer->status == 201 || is_unsupported(answer)) {
        r->verdict = acceptance(e, r, answer);
    } else if (retry_is_refusal(answer->status)) {
        r->verdict = refusal(r, answer->message);
    }
    if (r->verdict) {
        r->failures = 0;
        return;
    }
    r->failures++;
    r->not_before = clock_ns() + retry_backoff_ms(r->failures, randombytes_random()) * CLOCK_MS;
    if (r->failures % 10 == 0)
        log_warn("job %s: %u dry runs of a worker's pod failed in a row; it stays queued: %s",
                 e->key, r->failures, answer->message);
}

/* The pod has no name, so that existing pods are no conflict, and no gate, which is no constraint
 * of the template. */
static char *body_of(struct driver *d, struct entry *e)
{
    char name[128];
    const struct hvdjob *job = &e->job->job;
    auto_free char *text = bodies_pod(job, e->gang, d->injects ? &d->injection : NULL, NULL,
                                      d->handlers.key != NULL, 0, 0, false);
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
                            .idempotent = true,
                            .timeout_ms = TIMEOUT_MS};
    if (body && q.path && api_send(d->config.api, &q, on_answer, e, &r->call, NULL) == 0)
        d->dry_runs++;
    else
        r->not_before = clock_ns() + CLOCK_S;
    buf_fini(&path);
}

void driver_forget_dry_run(struct driver *d, struct entry *e)
{
    struct dry_run *r = &e->dry_run;
    if (r->call) {
        api_cancel(r->call);
        r->call = NULL;
        d->dry_runs--;
    }
    verdict_unref(r->verdict);
    r->verdict = NULL;
}

static bool is_current(const struct dry_run *r, const struct hvdjob *job)
{
    return strcmp(r->uid, job->uid) == 0 && strcmp(r->template_hash, job->template_hash) == 0;
}

const struct verdict *driver_dry_run(struct driver *d, struct entry *e)
{
    const struct hvdjob *job = &e->job->job;
    struct dry_run *r = &e->dry_run;
    if (!is_current(r, job)) {
        driver_forget_dry_run(d, e);
        *r = (struct dry_run){0};
        memcpy(r->uid, job->uid, sizeof(r->uid));
        memcpy(r->template_hash, job->template_hash, sizeof(r->template_hash));
    }
    if (r->verdict && r->verdict->refused && driver_now() >= r->verdict->again)
        driver_forget_dry_run(d, e);
    if (r->verdict || r->call)
        return r->verdict;
    uint64_t now = clock_ns();
    if (now < r->not_before)
        driver_enqueue_at(d, e, r->not_before); /* mark_queue_dirty_by_time() */
    else if (e->gang && d->dry_runs < DRY_RUNS && d->config.may_write(d->config.arg))
        send(d, e);
    return NULL;
}
