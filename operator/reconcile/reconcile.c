/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile: see reconcile.h. The order: losses, phase, pods, status.
 */
#include "operator/reconcile/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/names.h"
#include "operator/reconcile/reconcile_private.h"

/* Removes counts, messages and reasons: they are for people, and no decision depends on them. */
static void remove_texts(json_t *status)
{
    static const char *const words[] = {"workers", "ready", "pending", "message"};
    json_t *condition;
    size_t i;
    for (i = 0; i < sizeof(words) / sizeof(*words); i++)
        json_object_del(status, words[i]);
    json_array_foreach(json_object_get(status, "conditions"), i, condition)
    {
        json_object_del(condition, "message");
        json_object_del(condition, "reason");
    }
}

/* True: a status in which only counts, messages and reasons have changed is not written yet. Times
 * in the future (the clock was set back) do not count. */
static bool texts_wait(struct reconciling *r)
{
    const struct reconcile_input *in = r->in;
    int64_t since = in->texts_since != MOMENT_NONE ? in->texts_since : in->now;
    int64_t every = in->status_written + in->status_every, join = since + RECONCILE_STATUS_JOIN;
    if (in->status_written == MOMENT_NONE || in->status_written > in->now)
        every = in->now;
    int64_t next = since > in->now || every > join ? every : join;
    if (in->now >= next)
        return false;
    actions_again(r->ret, next);
    return true;
}

/* *ret: the status differs from the one in the API server and is to be written now. Compares the
 * JSON texts, since only what is written survives. */
static int changed(struct reconciling *r, bool *ret)
{
    char selector[NAMES_MAX];
    names_selector(r->job, selector);
    auto_json json_t *before = hvdjob_status_write(&r->job->status, selector);
    auto_json json_t *after = hvdjob_status_write(r->st, selector);
    if (!before || !after)
        return err_set(r->err, ENOMEM, "no memory");
    *ret = !json_equal(before, after);
    if (!*ret)
        return 0;
    remove_texts(before);
    remove_texts(after);
    r->ret->texts_wait = json_equal(before, after) && texts_wait(r);
    *ret = !r->ret->texts_wait;
    return 0;
}

/* Puts the status write and the Events in front of the actions for pods: an attempt must be used
 * up, and a failure counted, before anything follows from it. */
static int put_status_first(struct reconciling *r, bool write)
{
    struct actions *a = r->ret;
    struct action first[1 + ACTION_EVENTS];
    int rc, n = 0;
    if (write)
        first[n++] = (struct action){.kind = ACTION_WRITE_STATUS};
    for (int i = 0; i < ACTION_EVENTS; i++)
        if (a->events[i].reason[0])
            first[n++] =
                (struct action){.kind = ACTION_RECORD_EVENT, .event = (enum action_event_kind)i};
    for (int i = 0; i < n; i++)
        if ((rc = actions_add(a, first[i], r->err)) < 0)
            return rc;
    if (n == 0)
        return 0;
    memmove(a->all + n, a->all, (size_t)(a->n - n) * sizeof(*a->all));
    memcpy(a->all, first, (size_t)n * sizeof(*first));
    return 0;
}

/* Takes the doctor's findings that agents report. Findings of a finished job, or of one whose
 * agents have not reported yet, stay as they are. */
static int take_findings(struct reconciling *r)
{
    struct job_findings now;
    if (!r->in->facts || !r->in->facts->known || job_phase_finished(r->job->status.phase))
        return 0;
    int rc = job_findings_copy(&r->in->facts->findings, &now, r->err);
    if (rc < 0)
        return rc;
    job_findings_fini(&r->st->findings);
    r->st->findings = now;
    return 0;
}

static int reconcile_all(struct reconciling *r)
{
    bool write = false;
    int rc = take_findings(r);
    rc = rc < 0 ? rc : reconcile_losses(r);
    if (rc < 0)
        return rc;
    rc = drain_look(r);
    rc = rc < 0 ? rc : reconcile_phase(r);
    if (rc < 0)
        return rc;
    r->held = hvdjob_template_changed(r->job, r->st);
    rc = reconcile_pods(r);
    if (rc < 0)
        return rc;
    rc = reconcile_status(r);
    rc = rc < 0 ? rc : changed(r, &write);
    if (!write) /* the Event follows with the status that shows the same */
        r->ret->events[ACTION_EVENT_PHASE].reason[0] = '\0';
    return rc < 0 ? rc : put_status_first(r, write);
}

int reconcile(const struct reconcile_input *in, struct actions *ret, struct err *err)
{
    struct reconciling r = {.in = in, .job = in->job, .ret = ret, .err = err, .st = &ret->status};
    *ret = (struct actions){.again = INT64_MAX};
    int rc = hvdjob_status_copy(&in->job->status, &ret->status, err);
    /* The garbage collector deletes the pods of a job that is being deleted. */
    if (rc < 0 || in->job->deleting || !in->job->ours)
        return rc;
    rc = workers_init(&r.w, r.job, r.st, in->pods, in->npods, err);
    rc = rc < 0 ? rc : reconcile_all(&r);
    workers_fini(&r.w);
    return rc;
}
