/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_report: what hvd-plane tells the operator: facts and findings of jobs, views, counters. See
 * plane_service_private.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/coordinator/plane_service_private.h"
#include "operator/link/plane_message.h"

/* ---- facts ----------------------------------------------------------------------------------- */

static void add_finding(void *arg, const char *pod, const struct finding *f)
{
    struct job_findings *all = arg;
    struct job_finding one = {.failure = f->status == FINDING_FAIL};
    snprintf(one.id, sizeof(one.id), "%s", f->id);
    snprintf(one.code, sizeof(one.code), "%s", f->code);
    snprintf(one.source, sizeof(one.source), "%s", f->source);
    snprintf(one.summary, sizeof(one.summary), "%.319s", f->summary);
    snprintf(one.fix, sizeof(one.fix), "%.319s", f->fix);
    snprintf(one.pods[0], sizeof(one.pods[0]), "%.63s", pod);
    if (job_findings_add(all, &one) < 0)
        log_debug("no memory for finding %s of %s", f->id, pod);
}

void plane_report_changed(void *arg, const char *job_uid)
{
    struct plane_service *s = arg;
    struct plane_facts facts;
    struct job_findings findings = {0};
    if (plane_facts(s->plane, job_uid, &facts) < 0)
        return;
    plane_findings(s->plane, job_uid, add_finding, &findings);
    job_findings_keep_worst(&findings);
    link_send(s->link, plane_write_facts(job_uid, &facts, &findings));
    job_findings_fini(&findings);
    plane_report_counts(s);
}

void plane_report_recovered(void *arg, bool lost, double seconds)
{
    struct plane_service *s = arg;
    link_send(s->link,
              json_pack("{s:s, s:b, s:f}", "type", "recovered", "lost", lost, "seconds", seconds));
}

void plane_report_review(void *arg, uint64_t id, const char *token)
{
    struct plane_service *s = arg;
    json_t *j =
        json_pack("{s:s, s:I, s:s}", "type", "review", "id", (json_int_t)id, "token", token);
    if (j)
        link_send(s->link, j); /* NULL: the token is no text, and the agent asks again in vain */
}

void plane_report_counts(struct plane_service *s)
{
    struct plane_counts now;
    plane_counts(s->plane, &now);
    if (memcmp(&now, &s->counts, sizeof(now)) == 0)
        return;
    s->counts = now;
    link_send(s->link, plane_write_counts(&now));
}

/* ---- views ----------------------------------------------------------------------------------- */

struct gathering {
    struct plane_view view;
    enum finding_status wanted;
};

static void add_worker(void *arg, const struct plane_worker *worker)
{
    struct plane_view *v = arg;
    if (v->nworkers < PLANE_WORKERS_MAX)
        v->workers[v->nworkers++] = *worker;
}

static void add_epoch(void *arg, const struct plane_epoch *epoch)
{
    struct plane_view *v = arg;
    if (v->nepochs < PLANE_EPOCHS_MAX)
        v->epochs[v->nepochs++] = *epoch;
}

static void gather_finding(void *arg, const char *pod, const struct finding *f)
{
    struct gathering *g = arg;
    struct plane_view *v = &g->view;
    if (f->status != g->wanted || v->nfindings == PLANE_FINDINGS_MAX)
        return;
    struct plane_finding *one = &v->findings[v->nfindings++];
    snprintf(one->pod, sizeof(one->pod), "%.63s", pod);
    one->finding = *f;
}

/* Texts of agents may need many escapes: then fewer findings are sent. */
static void send_view(struct plane_service *s, struct plane_view *v)
{
    json_t *j;
    while ((j = plane_write_view(v)) && link_send(s->link, j) == -EMSGSIZE && v->nfindings > 0)
        v->nfindings /= 2;
}

void plane_report_view(struct plane_service *s, const char *job_uid)
{
    struct gathering g = {0};
    struct plane_view *v = &g.view;
    if (plane_copy_text("look", job_uid, v->uid, sizeof(v->uid), NULL) < 0 ||
        plane_facts(s->plane, job_uid, &v->facts) < 0)
        return;
    v->workers = calloc(PLANE_WORKERS_MAX, sizeof(*v->workers));
    v->epochs = calloc(PLANE_EPOCHS_MAX, sizeof(*v->epochs));
    v->findings = calloc(PLANE_FINDINGS_MAX, sizeof(*v->findings));
    if (v->workers && v->epochs && v->findings) {
        plane_workers(s->plane, job_uid, add_worker, v);
        plane_epochs(s->plane, job_uid, add_epoch, v);
        for (g.wanted = FINDING_FAIL;; g.wanted = FINDING_WARN) {
            plane_findings(s->plane, job_uid, gather_finding, &g);
            if (g.wanted == FINDING_WARN)
                break;
        }
        send_view(s, v);
    }
    plane_view_fini(v);
}
