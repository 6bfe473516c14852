/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: see apply.h. A run is a row of steps of one kind; the runs go one after the other.
 */
#include "operator/driver/apply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "operator/api/object.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/api/slowstart.h"
#include "operator/driver/bodies.h"
#include "operator/reconcile/names.h"

#define TIMEOUT_MS 30000 /* of one request, with all its attempts */
#define AT_ONCE    64

static const struct resource jobs = {"hvd.dev", "v1alpha1", "hvdjobs"};
static const struct resource pods = {"", "v1", "pods"};

struct step {
    struct apply *apply;
    enum action_kind kind;
    int worker, attempt;
    bool gated;
    enum action_say say;
    char *name; /* of the pod; owned */
    char uid[POD_UID_MAX];
    struct api_call *call;
};

struct apply {
    struct apply_config config;
    struct entry *e;
    struct job_item *job; /* a reference of ours */
    struct hvdjob_status status;
    struct gang_ops gang; /* a copy: what is served may change meanwhile */
    char gang_api[64];
    struct saying says[ACTION_SAYS];

    struct step *steps;
    int n, next;
    struct slowstart run; /* of the steps of one kind that go now */
    struct turn turn;
    struct loop_timer later; /* ended() is not called from within apply_start() */
    enum apply_end end;
    struct err err;
};

static void advance(struct apply *a);

/* ---- ends ------------------------------------------------------------------------------------ */

static void apply_free(struct apply *a)
{
    loop_timer_stop(api_loop(a->config.api), &a->later);
    turn_step_aside(&a->turn);
    for (int i = 0; i < a->n; i++) {
        free(a->steps[i].name);
        if (!a->steps[i].call)
            continue;
        api_cancel(a->steps[i].call);
        turnstile_leave(a->config.turnstile);
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

static void fail(struct apply *a, enum apply_end end, const char *what, const char *why)
{
    if (a->end != APPLY_DONE)
        return; /* the first one counts */
    a->end = end;
    err_set(&a->err, EIO, "%s: %s", what, why);
}

/* A word about what was asked for, and for people to read: not about who asks (401), nor about the
 * moment (somebody else's write, too many requests). */
static bool is_refusal(const struct api_answer *answer)
{
    long status = answer->status;
    return status >= 400 && status < 500 && status != 401 && status != 408 && status != 409 &&
           status != 429;
}

static void note_problem(struct entry *e, const char *text)
{
    free(e->problem);
    e->problem = text ? strdup(text) : NULL;
}

/* ---- what became of a step ------------------------------------------------------------------- */

/* What was deleted, or uid and resourceVersion of the object that was sent back. */
static void wait_for(struct step *s, enum wait_kind kind, const struct api_answer *answer)
{
    auto_json json_t *j = NULL;
    const char *uid = "", *version = "", *tamed;
    struct wait one = {.kind = kind};
    snprintf(one.name, sizeof(one.name), "%.63s", s->name);
    if (kind == WAIT_GONE || kind == WAIT_END) {
        const char *of = kind == WAIT_END ? s->apply->job->job.uid : s->uid;
        snprintf(one.uid, sizeof(one.uid), "%.63s", of);
    } else {
        if (object_read(answer->body, answer->len, "an object", &j, &tamed, NULL) < 0 ||
            json_expect(j, "an object", NULL, "{s:{s:s, s:s}}", "metadata", "uid", &uid,
                        "resourceVersion", &version) < 0)
            return;
        snprintf(one.uid, sizeof(one.uid), "%.63s", uid);
        one.version = items_version(version);
    }
    waits_add(&s->apply->e->waits, &one);
}

static void step_done(struct step *s, bool ok)
{
    struct apply *a = s->apply;
    struct turnstile *turnstile = a->config.turnstile;
    slowstart_done(&a->run, ok);
    if (ok && a->config.wrote)
        a->config.wrote(a->config.arg);
    advance(a);
    turnstile_leave(turnstile);
}

/* The pod that has the name of one that we wanted to make. */
static void on_holder(void *arg, const struct api_answer *answer)
{
    struct step *s = arg;
    struct apply *a = s->apply;
    struct pod_item *pod = NULL;
    s->call = NULL;
    if (answer->status != 200 ||
        items_pod_read(a->config.kinds, answer->body, answer->len, &pod, NULL) < 0) {
        fail(a, APPLY_FAILED, s->name, "its name is taken, and by whom cannot be read");
        step_done(s, false);
        return;
    }
    bool ours = strcmp(pod->pod.owner, a->job->job.uid) == 0;
    if (ours) { /* we made it, and did not hear of it */
        wait_for(s, WAIT_POD, answer);
        items_pod_destroy(pod);
    } else {
        items_pod_destroy(a->e->stranger);
        a->e->stranger = pod;
        a->e->stranger_at = 0;
        fail(a, APPLY_STALE, s->name, "its name is taken by another object's pod");
    }
    step_done(s, ours);
}

static void ask_holder(struct step *s)
{
    struct apply *a = s->apply;
    struct buf path = {0};
    request_path(&path, &pods, a->job->job.namespace_, s->name, NULL);
    struct api_request q = {
        .method = "GET", .path = request_text(&path), .idempotent = true, .timeout_ms = TIMEOUT_MS};
    if (!q.path || api_send(a->config.api, &q, on_holder, s, &s->call, &a->err) < 0) {
        fail(a, APPLY_FAILED, s->name, "no memory");
        step_done(s, false);
    }
    buf_fini(&path);
}

static bool is_success(const struct api_answer *answer)
{
    return answer->status >= 200 && answer->status < 300;
}

/* False: the step goes on. */
static bool on_created(struct step *s, const struct api_answer *answer, bool *ret_ok)
{
    struct apply *a = s->apply;
    *ret_ok = is_success(answer);
    if (*ret_ok) {
        note_problem(a->e, NULL);
        wait_for(s, WAIT_POD, answer);
        return true;
    }
    if (strcmp(answer->reason, "AlreadyExists") == 0) {
        ask_holder(s);
        return false;
    }
    if (is_refusal(answer))
        note_problem(a->e, answer->message);
    fail(a, APPLY_FAILED, s->name, answer->message);
    return true;
}

static bool on_group(struct step *s, const struct api_answer *answer)
{
    struct apply *a = s->apply;
    struct entry *e = a->e;
    bool taken = strcmp(answer->reason, "AlreadyExists") == 0;
    if (is_success(answer)) {
        snprintf(e->group_made, sizeof(e->group_made), "%s", a->job->job.uid);
        return true;
    }
    if (taken) {
        char text[320];
        snprintf(text, sizeof(text),
                 "PodGroup %.100s is there and not this job's, or of this moment; if it stays, "
                 "delete it or give the job another name",
                 a->job->job.name);
        note_problem(e, text);
    } else if (is_refusal(answer)) {
        note_problem(e, answer->message);
    }
    fail(a, APPLY_FAILED, "its PodGroup", answer->message);
    return false;
}

static bool on_status(struct step *s, const struct api_answer *answer)
{
    struct apply *a = s->apply;
    bool stale = answer->status == 404 || answer->status == 409;
    if (!is_success(answer)) {
        fail(a, stale ? APPLY_STALE : APPLY_FAILED, "its status", answer->message);
        return false;
    }
    wait_for(s, WAIT_JOB, answer);
    return true;
}

/* A pod that is not there any more is as good as changed or deleted. 409: another one has its name
 * by now, or somebody changed it in the same moment; the cache will tell. */
static bool on_changed(struct step *s, const struct api_answer *answer)
{
    bool gone = answer->status == 404;
    if (!is_success(answer) && !gone) {
        fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, s->name,
             answer->message);
        return false;
    }
    if (s->kind == ACTION_DELETE_POD || gone)
        wait_for(s, WAIT_GONE, answer);
    else if (s->kind == ACTION_LIFT_GATE)
        wait_for(s, WAIT_POD, answer);
    return true;
}

static bool on_job_deleted(struct step *s, const struct api_answer *answer)
{
    if (!is_success(answer) && answer->status != 404) {
        fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, "deleting it",
             answer->message);
        return false;
    }
    wait_for(s, WAIT_END, answer);
    return true;
}

/* Longer than a call has time: the job rests meanwhile. */
static void note_rest(struct entry *e, long seconds)
{
    uint64_t ms = seconds < RETRY_MAX_MS / 1000 ? (uint64_t)seconds * 1000 : RETRY_MAX_MS;
    uint64_t until = deadline_in_ms(ms);
    if (e->not_before < until)
        e->not_before = until;
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    struct step *s = arg;
    bool ok = false;
    s->call = NULL;
    if (answer->retry_after_s > 0)
        note_rest(s->apply->e, answer->retry_after_s);
    if (is_success(answer))
        inject_point("operator-wrote");
    log_debug("%s: %s %s: %ld %s", s->apply->e->key, action_name(s->kind), s->name, answer->status,
              is_success(answer) ? "" : answer->message);
    switch (s->kind) {
    case ACTION_CREATE_POD:
        if (!on_created(s, answer, &ok))
            return;
        break;
    case ACTION_CREATE_GROUP:
        ok = on_group(s, answer);
        break;
    case ACTION_WRITE_STATUS:
        ok = on_status(s, answer);
        break;
    case ACTION_LIFT_GATE:
    case ACTION_DELETE_POD:
        ok = on_changed(s, answer);
        break;
    case ACTION_DELETE_JOB:
        ok = on_job_deleted(s, answer);
        break;
    case ACTION_SAY:
        break;
    }
    step_done(s, ok);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* "scheduling.k8s.io/v1alpha2" into a resource; text is cut in place. */
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
        return bodies_pod(job, &a->gang, a->config.equipment, a->config.by_key, s->worker,
                          s->attempt, s->gated);
    case ACTION_LIFT_GATE:
        return bodies_lift(s->uid);
    case ACTION_DELETE_POD:
        return bodies_delete(s->uid);
    case ACTION_DELETE_JOB:
        return bodies_delete(job->uid);
    case ACTION_SAY:
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
        request_path(path, &pods, job->namespace_, NULL, NULL);
        break;
    case ACTION_LIFT_GATE:
    case ACTION_DELETE_POD:
        request_path(path, &pods, job->namespace_, s->name, NULL);
        break;
    case ACTION_DELETE_JOB:
        request_path(path, &jobs, job->namespace_, job->name, NULL);
        break;
    case ACTION_SAY:
        break;
    }
}

static int send_step(struct apply *a, struct step *s, struct err *err)
{
    static const char *const methods[] = {
        [ACTION_WRITE_STATUS] = "PUT",  [ACTION_CREATE_GROUP] = "POST",
        [ACTION_CREATE_POD] = "POST",   [ACTION_LIFT_GATE] = "PATCH",
        [ACTION_DELETE_POD] = "DELETE", [ACTION_DELETE_JOB] = "DELETE",
    };
    struct buf path = {0};
    auto_free char *body = body_of(a, s);
    path_of(a, s, &path);
    struct api_request q = {.method = methods[s->kind],
                            .path = request_text(&path),
                            .body = body,
                            .kind = s->kind == ACTION_LIFT_GATE ? API_STRATEGIC_PATCH : API_JSON,
                            .idempotent = true,
                            .timeout_ms = TIMEOUT_MS};
    int rc = q.path && body ? api_send(a->config.api, &q, on_answer, s, &s->call, err)
                            : err_set(err, ENOMEM, "no memory for a request");
    buf_fini(&path);
    return rc;
}

static void begin_run(struct apply *a)
{
    enum action_kind kind = a->steps[a->next].kind;
    unsigned n = 0;
    while (a->next + (int)n < a->n && a->steps[a->next + (int)n].kind == kind)
        n++;
    slowstart_init(&a->run, n, kind == ACTION_CREATE_POD ? 1 : AT_ONCE, AT_ONCE);
}

/* True: it is under way. */
static bool begin_step(struct apply *a, struct step *s)
{
    struct err err = {0};
    if (s->kind == ACTION_SAY) {
        const struct saying *say = &a->says[s->say];
        said_event(a->config.said, &a->job->job, say->warning, say->reason, say->text);
        slowstart_done(&a->run, true);
        return false;
    }
    bool may = a->config.may_write(a->config.arg);
    if (may && send_step(a, s, &err) == 0)
        return true;
    fail(a, APPLY_FAILED, may ? s->name : a->e->key,
         may ? err_text(&err) : "this operator does not lead any more");
    slowstart_done(&a->run, false);
    return false;
}

static void on_later(void *arg)
{
    finish(arg);
}

/* Sends what may go now; at the end of all, or after a failure when nothing is out, it ends. */
static void advance(struct apply *a)
{
    while (a->end == APPLY_DONE) {
        if (a->next < a->n && slowstart_over(&a->run))
            begin_run(a);
        if (!slowstart_may(&a->run))
            break;
        if (!turnstile_pass(a->config.turnstile, &a->turn))
            return;
        slowstart_sent(&a->run);
        if (!begin_step(a, &a->steps[a->next++]))
            turnstile_leave(a->config.turnstile);
    }
    turn_step_aside(&a->turn);
    if (a->run.out == 0)
        loop_timer_start(api_loop(a->config.api), &a->later, 0, on_later, a);
}

static void on_turn(void *arg)
{
    advance(arg);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static int copy_step(struct apply *a, const struct action *from, struct step *s)
{
    char made[NAMES_MAX] = "";
    *s = (struct step){.apply = a,
                       .kind = from->kind,
                       .worker = from->worker,
                       .attempt = from->attempt,
                       .gated = from->gated,
                       .say = from->say};
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
    turnstile_begin(config->turnstile, &a->turn, on_turn, a);
    if (copy_steps(a, actions) < 0) {
        apply_free(a);
        return err_set(err, ENOMEM, "no memory for actions");
    }
    a->status = actions->status;
    actions->status = (struct hvdjob_status){0};
    if (e->gang)
        a->gang = *e->gang;
    memcpy(a->gang_api, e->gang_api, sizeof(a->gang_api));
    memcpy(a->says, actions->says, sizeof(a->says));
    e->apply = a;
    advance(a);
    return 0;
}
