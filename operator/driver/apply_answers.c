/* SPDX-License-Identifier: Apache-2.0
 *
 * apply_answers: handles the API server's response to a step (apply_private.h).
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

#define CONFLICT_PACE 4 /* failures: the longest pause after a name conflict is about 0.1 s */

/* ---- results of a step ----------------------------------------------------------------------- */

/* Adds an expectation: for a delete the uid that was deleted, else uid and resourceVersion of the
 * object in the response. */
static void expect(struct step *s, enum expectation_kind kind, const struct api_answer *answer)
{
    auto_json json_t *j = NULL;
    const char *uid = "", *version = "", *replaced;
    struct expectation one = {.kind = kind};
    snprintf(one.name, sizeof(one.name), "%.63s", s->name);
    if (kind == EXPECT_POD_GONE || kind == EXPECT_JOB_GONE) {
        const char *of = kind == EXPECT_JOB_GONE ? s->apply->job->job.uid : s->uid;
        snprintf(one.uid, sizeof(one.uid), "%.63s", of);
    } else {
        if (object_read(answer->body, answer->len, "an object", &j, &replaced, NULL) < 0 ||
            json_expect(j, "an object", NULL, "{s:{s:s, s:s}}", "metadata", "uid", &uid,
                        "resourceVersion", &version) < 0)
            return;
        snprintf(one.uid, sizeof(one.uid), "%.63s", uid);
        one.version = items_version(version);
    }
    expectations_add(&s->apply->e->expectations, &one);
}

static void step_done(struct step *s, bool ok)
{
    struct apply *a = s->apply;
    struct inflight *inflight = a->config.inflight;
    slowstart_done(&a->run, ok);
    if (ok && a->config.wrote)
        a->config.wrote(a->config.arg);
    apply_advance(a);
    inflight_release(inflight);
}

/* The response to the GET of ask_holder(): the pod that has the name of the one to create. */
static void on_holder(void *arg, const struct api_answer *answer)
{
    struct step *s = arg;
    struct apply *a = s->apply;
    struct pod_item *pod = NULL;
    s->call = NULL;
    if (answer->status != 200 || items_pod_read(answer->body, answer->len, &pod, NULL) < 0) {
        apply_fail(a, APPLY_FAILED, s->name, "a pod of this name exists and cannot be read");
        step_done(s, false);
        return;
    }
    bool ours = strcmp(pod->pod.owner, a->job->job.uid) == 0 && !pod->pod.strayed;
    if (ours) { /* an earlier create succeeded and its response was lost */
        expect(s, EXPECT_POD, answer);
        items_pod_destroy(pod);
    } else {
        api_cancel(a->e->conflict_call); /* it reads the pod of the previous conflict */
        a->e->conflict_call = NULL;
        items_pod_destroy(a->e->conflict);
        a->e->conflict = pod;
        a->e->conflict_at = 0;
        if (a->e->failures > CONFLICT_PACE) /* the next attempt has another name */
            a->e->failures = CONFLICT_PACE;
        log_info("job %s: pod %s exists and is not its worker's", a->e->key, s->name);
        apply_fail(a, APPLY_STALE, s->name,
                   "a pod of this name exists and is not this job's worker");
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

/* False: the step is not finished, another request is in flight. */
static bool on_created(struct step *s, const struct api_answer *answer, bool *ret_ok)
{
    struct apply *a = s->apply;
    *ret_ok = is_success(answer);
    if (*ret_ok) {
        entry_note_problem(a->e, NULL, false);
        expect(s, EXPECT_POD, answer);
        return true;
    }
    if (strcmp(answer->reason, "AlreadyExists") == 0) {
        ask_holder(s);
        return false;
    }
    if (retry_is_refusal(answer->status))
        entry_note_problem(a->e, answer->message, false);
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
        if (e->group_taken)
            entry_note_problem(e, NULL, false);
        return true;
    }
    if (taken) {
        char text[320];
        snprintf(text, sizeof(text),
                 "PodGroup %.100s exists and is not this job's. If it stays, delete it or give the "
                 "job another name",
                 a->job->job.name);
        entry_note_problem(e, text, true);
    } else if (retry_is_refusal(answer->status)) {
        entry_note_problem(e, answer->message, false);
    }
    apply_fail(a, APPLY_FAILED, "creating its PodGroup", answer->message);
    return false;
}

static bool on_status(struct step *s, const struct api_answer *answer)
{
    struct apply *a = s->apply;
    bool stale = answer->status == 404 || answer->status == 409;
    if (!is_success(answer)) {
        apply_fail(a, stale ? APPLY_STALE : APPLY_FAILED, "writing its status", answer->message);
        return false;
    }
    expect(s, EXPECT_STATUS, answer);
    return true;
}

/* No informer may report the end of a pod that lacks its labels. */
static void note_deleted(struct entry *e, const char *uid)
{
    if (e->conflict && strcmp(e->conflict->pod.uid, uid) == 0)
        e->conflict->pod.deleting = true;
}

/* 404 counts as success. 409: the name belongs to another pod by
 * now, or the pod changed at the same time; the cache will show which. */
static bool on_pod_deleted(struct step *s, const struct api_answer *answer)
{
    bool gone = answer->status == 404;
    if (!is_success(answer) && !gone) {
        apply_fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, s->name,
                   answer->message);
        return false;
    }
    note_deleted(s->apply->e, s->uid);
    expect(s, EXPECT_POD_GONE, answer);
    return true;
}

static bool on_job_deleted(struct step *s, const struct api_answer *answer)
{
    if (!is_success(answer) && answer->status != 404) {
        apply_fail(s->apply, answer->status == 409 ? APPLY_STALE : APPLY_FAILED, "deleting it",
                   answer->message);
        return false;
    }
    expect(s, EXPECT_JOB_GONE, answer);
    return true;
}

/* The last response had a Retry-After: the job is not reconciled before so many seconds, at most
 * RETRY_MAX_MS, have passed. */
static void note_retry_after(struct entry *e, long seconds)
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
        note_retry_after(s->apply->e, answer->retry_after_s);
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
    case ACTION_DELETE_POD:
        ok = on_pod_deleted(s, answer);
        break;
    case ACTION_DELETE_JOB:
        ok = on_job_deleted(s, answer);
        break;
    case ACTION_RECORD_EVENT:
        break;
    }
    step_done(s, ok);
}
