/* SPDX-License-Identifier: Apache-2.0
 *
 * apply_answers: what becomes of a step when the API server has answered (apply_private.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "operator/api/object.h"
#include "operator/api/retry.h"
#include "operator/driver/apply_private.h"

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
    apply_advance(a);
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
        apply_fail(a, APPLY_FAILED, s->name, "its name is taken, and by whom cannot be read");
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
        apply_fail(a, APPLY_STALE, s->name, "its name is taken by another object's pod");
    }
    step_done(s, ours);
}

static void ask_holder(struct step *s)
{
    struct apply *a = s->apply;
    struct buf path = {0};
    request_path(&path, &apply_pods, a->job->job.namespace_, s->name, NULL);
    struct api_request q = {.method = "GET",
                            .path = request_text(&path),
                            .idempotent = true,
                            .timeout_ms = APPLY_TIMEOUT_MS};
    if (!q.path || api_send(a->config.api, &q, on_holder, s, &s->call, &a->err) < 0) {
        apply_fail(a, APPLY_FAILED, s->name, "no memory");
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
    apply_fail(a, APPLY_FAILED, s->name, answer->message);
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
    apply_fail(a, APPLY_FAILED, "its PodGroup", answer->message);
    return false;
}

static bool on_status(struct step *s, const struct api_answer *answer)
{
    struct apply *a = s->apply;
    bool stale = answer->status == 404 || answer->status == 409;
    if (!is_success(answer)) {
        apply_fail(a, stale ? APPLY_STALE : APPLY_FAILED, "its status", answer->message);
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
        apply_fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, s->name,
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
        apply_fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, "deleting it",
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

void apply_on_answer(void *arg, const struct api_answer *answer)
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
