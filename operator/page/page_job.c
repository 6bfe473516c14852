/* SPDX-License-Identifier: Apache-2.0
 *
 * page_job: one job as JSON, from its object, its pods and the plane:
 * {"leads", "complete", "job", "conditions", "firstFailure", "members", "roster", "epochs",
 * "findings"}; null where nothing is known. complete is false while the plane's view has not come.
 */
#include <stdio.h>
#include <stdlib.h>

#include "operator/page/page_private.h"

#define TEXT_MAX 1024

static json_t *summary_of(const struct hvdjob *job)
{
    const struct hvdjob_status *s = &job->status;
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:b, s:b, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "namespace",
        job->namespace_, "name", job->name, "phase", job_phase_name(s->phase), "elastic",
        job->elastic, "suspend", job->suspend, "deleting", job->deleting, "workers", job->workers,
        "min", job->elastic ? job->min : job->workers, "max",
        job->elastic ? job->max : job->workers, "slots", job->slots, "ready", s->ready, "pending",
        s->pending, "epoch", s->epoch, "restarts", s->restarts, "attemptsLeft", s->attempts_left);
    const struct {
        const char *name;
        int64_t at;
    } moments[] = {{"created", job->created},
                   {"queued", s->queued},
                   {"admitted", s->admitted},
                   {"started", s->started},
                   {"completed", s->completed}};
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++)
        json_put(&j, moments[i].name, json_integer((json_int_t)moments[i].at));
    json_put(&j, "message", page_text(s->message, TEXT_MAX));
    json_put(&j, "refused", page_text(job->refused, TEXT_MAX));
    return j;
}

static json_t *conditions_of(const struct hvdjob_status *s)
{
    json_t *list = json_array();
    for (int i = 0; i < CONDITIONS; i++) {
        const struct condition *c = &s->conditions[i];
        if (c->status == CONDITION_ABSENT)
            continue;
        json_append(&list,
                    json_pack("{s:s, s:b, s:o, s:o, s:I}", "type",
                              condition_name((enum condition_type)i), "status",
                              c->status == CONDITION_TRUE, "reason",
                              page_text(c->reason, sizeof(c->reason)), "message",
                              page_text(c->message, TEXT_MAX), "since", (json_int_t)c->since));
    }
    return list;
}

static json_t *failure_of(const struct job_first_failure *f)
{
    if (!f)
        return json_null();
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:i, s:I}", "worker", f->worker, "rank",
                     f->rank, "pod", page_text(f->pod, TEXT_MAX), "node",
                     page_text(f->node, TEXT_MAX), "reason", page_text(f->reason, TEXT_MAX),
                     "message", page_text(f->message, TEXT_MAX), "exitCode", f->exit_code, "at",
                     (json_int_t)f->at);
}

/* ---- from the plane -------------------------------------------------------------------------- */

static json_t *roster_of(const struct plane_facts *f)
{
    if (!f)
        return json_null();
    json_t *j =
        json_pack("{s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "rebuilding", f->rebuilding,
                  "state", f->state, "epoch", (int)f->epoch, "size", f->size, "target", f->target,
                  "agents", f->agents, "readyWorkers", f->ready_workers, "restarts", f->restarts,
                  "batchesPerS", f->batches_per_s, "bytesPerS", f->bytes_per_s);
    json_put(&j, "waitingFor", page_text(f->waiting_for, TEXT_MAX));
    return j;
}

static json_t *epochs_of(const struct plane_view *view)
{
    json_t *list = json_array();
    for (int i = 0; view && i < view->nepochs; i++) {
        const struct plane_epoch *e = &view->epochs[i];
        json_append(&list, json_pack("{s:i, s:I, s:i, s:b, s:b, s:f, s:f, s:o}", "epoch",
                                     (int)e->number, "at", (json_int_t)e->unix_ms, "size", e->size,
                                     "first", e->first, "lost", e->lost, "ms", e->ms, "costMs",
                                     e->cost, "cause", page_text(e->cause, TEXT_MAX)));
    }
    return list;
}

struct gathering {
    json_t *list;
    int rows, failures, warnings;
};

static void add_finding(struct gathering *g, const char *pod, const struct finding *f)
{
    g->failures += f->status == FINDING_FAIL;
    g->warnings += f->status == FINDING_WARN;
    if (g->rows++ >= PAGE_FINDINGS_MAX)
        return;
    json_append(&g->list,
                json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "pod", page_text(pod, TEXT_MAX),
                          "status", finding_status_name(f->status), "source",
                          page_text(f->source, sizeof(f->source)), "id",
                          page_text(f->id, sizeof(f->id)), "code",
                          page_text(f->code, sizeof(f->code)), "summary",
                          page_text(f->summary, TEXT_MAX), "fix", page_text(f->fix, TEXT_MAX)));
}

/* A finding from the job's status, which names only the first of its pods. */
static void add_written(struct gathering *g, const struct job_finding *f)
{
    char pod[128];
    if (f->npods > 1)
        snprintf(pod, sizeof(pod), "%s and %d more", f->pods[0], f->npods - 1);
    else
        snprintf(pod, sizeof(pod), "%s", f->pods[0]);
    struct finding finding = {.status = f->failure ? FINDING_FAIL : FINDING_WARN};
    snprintf(finding.id, sizeof(finding.id), "%s", f->id);
    snprintf(finding.code, sizeof(finding.code), "%s", f->code);
    snprintf(finding.source, sizeof(finding.source), "%s", f->source);
    snprintf(finding.summary, sizeof(finding.summary), "%s", f->summary);
    snprintf(finding.fix, sizeof(finding.fix), "%s", f->fix);
    add_finding(g, pod, &finding);
}

/* Failures first. Without a view: the findings in the job's status. */
static json_t *findings_of(const struct plane_view *view, const struct plane_facts *facts,
                           const struct hvdjob *job)
{
    const struct job_findings *written = &job->status.findings;
    struct gathering g = {.list = json_array()};
    for (int i = 0; view && i < view->nfindings; i++)
        add_finding(&g, view->findings[i].pod, &view->findings[i].finding);
    for (int i = 0; !view && i < written->n; i++)
        add_written(&g, &written->list[i]);
    if (facts) { /* the view may leave out some */
        g.failures = facts->nfailures;
        g.warnings = facts->nfindings - facts->nfailures;
    }
    return json_pack("{s:i, s:i, s:o}", "failures", g.failures, "warnings", g.warnings, "list",
                     g.list);
}

bool page_put_job(const struct driver *d, struct plane_mirror *plane, const struct hvdjob *job,
                  struct buf *dst)
{
    struct plane_facts known;
    bool heard = plane && plane_mirror_facts(plane, job->uid, &known, NULL);
    const struct plane_view *view = heard ? plane_mirror_view(plane, job->uid) : NULL;
    const struct plane_facts *facts = view ? &view->facts : heard ? &known : NULL;
    bool complete = view || !heard;
    json_t *j = json_pack("{s:b, s:b}", "leads", driver_leads(d), "complete", complete);
    json_put(&j, "job", summary_of(job));
    json_put(&j, "conditions", conditions_of(&job->status));
    json_put(&j, "firstFailure", failure_of(job->status.first));
    json_put(&j, "members", page_members(d, view, job));
    json_put(&j, "roster", roster_of(facts));
    json_put(&j, "epochs", epochs_of(view));
    json_put(&j, "findings", findings_of(view, facts, job));
    page_put(j, dst);
    return complete;
}
