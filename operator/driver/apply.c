/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: see apply.h. A run is a sequence of steps of one kind. Runs follow each other; the steps
 * of a run are sent concurrently.
 */
#include "operator/driver/apply_private.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/api/request.h"
#include "operator/driver/bodies.h"
#include "operator/reconcile/names.h"

#define AT_ONCE 64

static const struct resource jobs = {"hvd.dev", "v1alpha1", "hvdjobs"};

/* ---- ends ------------------------------------------------------------------------------------ */

static void apply_free(struct apply *a)
{
    loop_timer_stop(api_loop(a->config.api), &a->later);
    inflight_unqueue(&a->turn);
    for (int i = 0; i < a->n; i++) {
        free(a->steps[i].name);
        if (!a->steps[i].call)
            continue;
        api_cancel(a->steps[i].call);
        inflight_release(a->config.inflight);
    }
    if (a->e->apply == a)
        a->e->apply = NULL;
    hvdjob_status_fini(&a->status);
    items_job_unref(a->job);
    free(a->steps);
    free(a);
}

void apply_cancel(struct apply *a)
{
    if (a)
        apply_free(a);
}

static void finish(struct apply *a)
{
    struct apply_config config = a->config;
    struct entry *e = a->e;
    enum apply_end end = a->end;
    struct err err = a->err;
    apply_free(a);
    config.ended(config.arg, e, end, &err);
}

void apply_fail(struct apply *a, enum apply_end end, const char *what, const char *why)
{
    if (a->end != APPLY_DONE)
        return; /* the first failure is reported */
    a->end = end;
    err_set(&a->err, EIO, "%s: %s", what, why);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* "scheduling.k8s.io/v1alpha2" as a resource that points into text, which is cut at the slash. */
static struct resource group_resource(char *text)
{
    char *slash = strchr(text, '/');
    if (slash)
        *slash = '\0';
    return (struct resource){text, slash ? slash + 1 : "", "podgroups"};
}

static char *body_of(const struct apply *a, const struct step *s)
{
    const struct hvdjob *job = &a->job->job;
    switch (s->kind) {
    case ACTION_WRITE_STATUS:
        return bodies_status(job, &a->status);
    case ACTION_CREATE_GROUP:
        return bodies_group(job, &a->gang, a->gang_api);
    case ACTION_CREATE_POD:
        return bodies_pod(job, &a->gang, a->config.injection, a->config.drains, a->config.by_key,
                          s->worker, s->attempt);
    case ACTION_DELETE_POD:
        return bodies_delete(s->uid);
    case ACTION_DELETE_JOB:
        return bodies_delete(job->uid);
    case ACTION_RECORD_EVENT:
        break;
    }
    return NULL;
}

static void path_of(const struct apply *a, const struct step *s, struct buf *path)
{
    const struct hvdjob *job = &a->job->job;
    char api[sizeof(a->gang_api)];
    struct resource group;
    switch (s->kind) {
    case ACTION_WRITE_STATUS:
        request_path(path, &jobs, job->namespace_, job->name, "status");
        break;
    case ACTION_CREATE_GROUP:
        memcpy(api, a->gang_api, sizeof(api));
        group = group_resource(api);
        request_path(path, &group, job->namespace_, NULL, NULL);
        break;
    case ACTION_CREATE_POD:
        request_path(path, &apply_pods, job->namespace_, NULL, NULL);
        break;
    case ACTION_DELETE_POD:
        request_path(path, &apply_pods, job->namespace_, s->name, NULL);
        break;
    case ACTION_DELETE_JOB:
        request_path(path, &jobs, job->namespace_, job->name, NULL);
        break;
    case ACTION_RECORD_EVENT:
        break;
    }
}

static int send_step(struct apply *a, struct step *s, struct err *err)
{
    static const char *const methods[] = {
        [ACTION_WRITE_STATUS] = "PUT",  [ACTION_CREATE_GROUP] = "POST",
        [ACTION_CREATE_POD] = "POST",   [ACTION_DELETE_POD] = "DELETE",
        [ACTION_DELETE_JOB] = "DELETE",
    };
    struct buf path = {0};
    auto_free char *body = body_of(a, s);
    path_of(a, s, &path);
    struct api_request q = {.method = methods[s->kind],
                            .path = request_text(&path),
                            .body = body,
                            .kind = API_JSON,
                            .idempotent = true,
                            .timeout_ms = APPLY_TIMEOUT_MS};
    int rc = q.path && body ? api_send(a->config.api, &q, apply_on_answer, s, &s->call, err)
                            : err_set(err, ENOMEM, "no memory for a request");
    buf_fini(&path);
    return rc;
}

/* A slow start (1, 2, 4 ...) if nobody knows yet whether the API server accepts the pods. */
static unsigned first_at_once(const struct apply *a, enum action_kind kind)
{
    const struct verdict *v = a->e->dry_run.verdict;
    bool accepted = v && !v->refused && v->known;
    return kind == ACTION_CREATE_POD && !accepted ? 1 : AT_ONCE;
}

static void begin_run(struct apply *a)
{
    enum action_kind kind = a->steps[a->next].kind;
    unsigned n = 0;
    while (a->next + (int)n < a->n && a->steps[a->next + (int)n].kind == kind)
        n++;
    slowstart_init(&a->run, n, first_at_once(a, kind), AT_ONCE);
    for (unsigned i = 0; i < n && kind == ACTION_DELETE_POD; i++) {
        const struct step *s = &a->steps[a->next + (int)i];
        a->config.leaves(a->config.arg, a->e, s->name, s->uid);
    }
    if (kind == ACTION_DELETE_POD)
        a->config.all_leave(a->config.arg);
}

/* Begins the step. Returns whether its request is in flight now; if not, it is done or failed. */
static bool begin_step(struct apply *a, struct step *s)
{
    struct err err = {0};
    if (s->kind == ACTION_RECORD_EVENT) {
        const struct action_event *say = &a->events[s->event];
        const struct hvdjob *job = &a->job->job;
        const struct recorder_about about = {HVDJOB_API, HVDJOB_KIND, job->namespace_, job->name,
                                             job->uid};
        recorder_event(a->config.recorder, &about, say->warning, say->reason, say->text);
        slowstart_done(&a->run, true);
        return false;
    }
    bool may = a->config.may_write(a->config.arg);
    if (may && send_step(a, s, &err) == 0)
        return true;
    apply_fail(a, APPLY_FAILED, may ? s->name : a->e->key,
               may ? err_text(&err) : "this operator does not lead any more");
    slowstart_done(&a->run, false);
    return false;
}

static void on_later(void *arg)
{
    finish(arg);
}

/* Sends as many steps as the slow start and the limit allow. Ends the apply once all steps are
 * done, or one failed and none is in flight. */
void apply_advance(struct apply *a)
{
    while (a->end == APPLY_DONE) {
        if (a->next < a->n && slowstart_over(&a->run))
            begin_run(a);
        if (!slowstart_may(&a->run))
            break;
        if (!inflight_acquire(a->config.inflight, &a->turn))
            return;
        slowstart_sent(&a->run);
        if (!begin_step(a, &a->steps[a->next++]))
            inflight_release(a->config.inflight);
    }
    inflight_unqueue(&a->turn);
    if (a->run.out == 0)
        loop_timer_start(api_loop(a->config.api), &a->later, 0, on_later, a);
}

static void on_turn(void *arg)
{
    apply_advance(arg);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static int copy_step(struct apply *a, const struct action *from, struct step *s)
{
    char made[NAMES_MAX] = "";
    *s = (struct step){.apply = a,
                       .kind = from->kind,
                       .worker = from->worker,
                       .attempt = from->attempt,
                       .event = from->event};
    if (from->kind == ACTION_CREATE_POD)
        names_pod(&a->job->job, from->worker, from->attempt, made);
    if (from->pod)
        snprintf(s->uid, sizeof(s->uid), "%s", from->pod->uid);
    s->name = strdup(from->pod ? from->pod->name : made);
    return s->name ? 0 : -ENOMEM;
}

static int copy_steps(struct apply *a, const struct actions *actions)
{
    int rc = 0;
    a->steps = calloc((size_t)actions->n + 1, sizeof(*a->steps));
    for (; a->steps && a->n < actions->n && rc == 0; a->n++)
        rc = copy_step(a, &actions->all[a->n], &a->steps[a->n]);
    return a->steps ? rc : -ENOMEM;
}

int apply_start(const struct apply_config *config, struct entry *e, struct actions *actions,
                struct err *err)
{
    struct apply *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(err, ENOMEM, "no memory for actions");
    a->config = *config;
    a->e = e;
    a->job = items_job_ref(e->job);
    inflight_register(config->inflight, &a->turn, on_turn, a);
    if (copy_steps(a, actions) < 0) {
        apply_free(a);
        return err_set(err, ENOMEM, "no memory for actions");
    }
    a->status = actions->status;
    actions->status = (struct hvdjob_status){0};
    if (e->gang)
        a->gang = *e->gang;
    memcpy(a->gang_api, e->gang_api, sizeof(a->gang_api));
    memcpy(a->events, actions->events, sizeof(a->events));
    e->apply = a;
    apply_advance(a);
    return 0;
}
