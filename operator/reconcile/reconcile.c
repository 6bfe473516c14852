/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile: see reconcile.h. In this order: what was lost, the phase, the pods, the words.
 */
#include "operator/reconcile/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/names.h"
#include "operator/reconcile/reconcile_private.h"

/* What is for people alone, and nothing follows from. */
static void leave_out_words(json_t *status)
{
    static const char *const words[] = {"workers", "ready", "pending", "message"};
    json_t *condition;
    size_t i;
    for (i = 0; i < sizeof(words) / sizeof(*words); i++)
        json_object_del(status, words[i]);
    json_array_foreach(json_object_get(status, "conditions"), i, condition)
        json_object_del(condition, "message");
}

/* Is it too early for words? A clock that was set back says nothing. */
static bool told_just_now(struct reconciling *r)
{
    int64_t told = r->in->told, next = told + RECONCILE_TELL_EVERY;
    if (told == MOMENT_NONE || told > r->in->now || r->in->now >= next)
        return false;
    actions_again(r->ret, next);
    return true;
}

/* Is the status another one than the one that was read, and to be written now? Its text decides:
 * what is not written is nothing that is remembered. */
static int changed(struct reconciling *r, bool *ret)
{
    char selector[NAMES_MAX];
    names_selector(r->job, selector);
    auto_json json_t *before = hvdjob_status_write(&r->job->status, selector);
    auto_json json_t *after = hvdjob_status_write(r->st, selector);
    if (!before || !after)
        return err_set(r->err, ENOMEM, "no memory");
    *ret = !json_equal(before, after);
    if (!*ret || !told_just_now(r))
        return 0;
    leave_out_words(before);
    leave_out_words(after);
    *ret = !json_equal(before, after);
    return 0;
}

/* The status goes first: a name is noted as used up, and a failure as counted, before anything
 * follows from it. Actions for pods were added in the meantime. */
static int put_status_first(struct reconciling *r, bool write)
{
    struct actions *a = r->ret;
    struct action first[1 + ACTION_SAYS];
    int rc, n = 0;
    if (write)
        first[n++] = (struct action){.kind = ACTION_WRITE_STATUS};
    for (int i = 0; i < ACTION_SAYS; i++)
        if (a->says[i].reason[0])
            first[n++] = (struct action){.kind = ACTION_SAY, .say = (enum action_say)i};
    for (int i = 0; i < n; i++)
        if ((rc = actions_add(a, first[i], r->err)) < 0)
            return rc;
    if (n == 0)
        return 0;
    memmove(a->all + n, a->all, (size_t)(a->n - n) * sizeof(*a->all));
    memcpy(a->all, first, (size_t)n * sizeof(*first));
    return 0;
}

/* What the doctor found stays as it is until agents tell something else, and when the job is over.
 */
static int take_findings(struct reconciling *r)
{
    struct job_findings now;
    if (!r->in->facts || !r->in->facts->known || job_phase_over(r->job->status.phase))
        return 0;
    int rc = job_findings_copy(&r->in->facts->findings, &now, r->err);
    if (rc < 0)
        return rc;
    job_findings_fini(&r->st->findings);
    r->st->findings = now;
    return 0;
}

static int whole(struct reconciling *r)
{
    bool write = false;
    int rc = take_findings(r);
    rc = rc < 0 ? rc : reconcile_losses(r);
    rc = rc < 0 ? rc : reconcile_phase(r);
    if (rc < 0)
        return rc;
    r->held = r->st->shape[0] && strcmp(r->st->shape, r->job->shape) != 0;
    rc = reconcile_pods(r);
    if (rc < 0)
        return rc;
    rc = reconcile_words(r);
    rc = rc < 0 ? rc : changed(r, &write);
    return rc < 0 ? rc : put_status_first(r, write);
}

int reconcile(const struct reconcile_input *in, struct actions *ret, struct err *err)
{
    struct reconciling r = {.in = in, .job = in->job, .ret = ret, .err = err, .st = &ret->status};
    *ret = (struct actions){.again = INT64_MAX};
    int rc = hvdjob_status_copy(&in->job->status, &ret->status, err);
    /* Of a job that is being deleted the API server deletes the pods: they belong to it. */
    if (rc < 0 || in->job->deleting || !in->job->ours)
        return rc;
    rc = workers_init(&r.w, r.job, r.st, in->pods, in->npods, err);
    rc = rc < 0 ? rc : whole(&r);
    workers_fini(&r.w);
    return rc;
}
