/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_doctor: see agent_doctor.h.
 */
#include "agent/agent_doctor.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#define SAID_MAX 5 /* most failures of the preflight that a pod's log shows */

void agent_doctor_init(struct agent_doctor *d, struct loop *loop, const struct agent_config *config,
                       const struct agent_ranks *ranks, struct outbox *outbox,
                       const struct agent_doctor_ops *ops, void *arg)
{
    *d = (struct agent_doctor){
        .loop = loop, .config = config, .ranks = ranks, .outbox = outbox, .ops = ops, .arg = arg};
}

static void tell(struct agent_doctor *d, const struct finding *f)
{
    if (findings_apply(&d->findings, f) < 0)
        log_debug("no room for finding %s", f->id);
    outbox_finding(d->outbox, f);
}

static void on_found(void *arg, const struct finding *f)
{
    tell(arg, f);
}

/* Counts findings that keep ranks from working. */
static int count_failures(const struct agent_doctor *d)
{
    int n = 0;
    for (int i = 0; i < d->findings.n; i++)
        n += d->findings.list[i].status == FINDING_FAIL;
    return n;
}

/* The API server shows the end of a pod's log: write the failures there. */
static void log_failures(const struct agent_doctor *d)
{
    int said = 0;
    for (int i = 0; i < d->findings.n && said < SAID_MAX; i++) {
        const struct finding *f = &d->findings.list[i];
        if (f->status != FINDING_FAIL)
            continue;
        log_error("hvd-doctor: %s (%s)%s%s", f->summary, f->id, f->fix[0] ? "; fix: " : "", f->fix);
        said++;
    }
}

/* Policy "fail": reports every rank of this host as not started. */
static void refuse(struct agent_doctor *d, const char *trouble)
{
    const char *policy = d->config->pod ? "spec.doctor.policy fail" : "--doctor fail";
    int n = count_failures(d);
    if (d->config->pod && trouble)
        log_error("hvd-doctor: %s; no rank is started (%s)", trouble, policy);
    else if (d->config->pod)
        log_failures(d);
    for (int i = 0; i < d->ranks->welcome.nassignments; i++) {
        struct report_item item = {
            .type = REPORT_EXITED, .member = d->ranks->welcome.assignments[i].member, .code = 1};
        if (trouble)
            snprintf(item.text, sizeof(item.text), "not started: %s (%s)", trouble, policy);
        else
            snprintf(item.text, sizeof(item.text),
                     "not started: hvd-doctor found %d failure%s there (%s warn starts it all the "
                     "same)",
                     n, n == 1 ? "" : "s", d->config->pod ? "spec.doctor.policy" : "--doctor");
        outbox_report(d->outbox, &item);
    }
    d->refused = true;
}

/* Must the preflight end before ranks start? Yes if its result decides, or if it measures
 * performance, which running ranks would disturb. */
static bool looks_first(const struct agent_doctor *d)
{
    return d->config->doctor == DOCTOR_FAIL ||
           (d->config->doctor == DOCTOR_WARN && d->config->doctor_level > 1);
}

static void on_done(void *arg, const char *trouble)
{
    struct agent_doctor *d = arg;
    struct err err;
    if (trouble)
        log_info("preflight: %s", trouble);
    if (looks_first(d) && !d->ranks->stopping) {
        if (d->config->doctor == DOCTOR_FAIL && (trouble || count_failures(d) > 0))
            refuse(d, trouble);
        else if (d->ops->start_ranks(d->arg, &err) < 0)
            d->ops->failed(d->arg, &err);
    }
    d->ops->ended(d->arg);
}

/* ---- the watch ------------------------------------------------------------------------------ */

static void on_news(void *arg, const struct watch_news *news)
{
    struct agent_doctor *d = arg;
    struct finding f = {.source = "watch",
                        .status = news->status == CHECK_FAIL ? FINDING_FAIL : FINDING_WARN,
                        .cleared = news->cleared};
    const char *fix = finding_fix(news->check->fix);
    snprintf(f.id, sizeof(f.id), "%s", news->check->id);
    snprintf(f.code, sizeof(f.code), "%s", news->check->code);
    snprintf(f.summary, sizeof(f.summary), "%s", news->summary);
    snprintf(f.fix, sizeof(f.fix), "%s", news->cleared ? "" : fix);
    tell(d, &f);
}

static void on_watch(void *arg)
{
    struct agent_doctor *d = arg;
    auto_free pid_t *pids = calloc((size_t)d->ranks->n + 1, sizeof(*pids));
    for (int i = 0; pids && i < d->ranks->n; i++)
        pids[i] = d->ranks->list[i]->pid;
    if (pids)
        watch_processes(d->watch, pids, (size_t)d->ranks->n);
    watch_look(d->watch, clock_ns(), on_news, d);
    loop_timer_start(d->loop, &d->watch_timer, WATCH_MS, on_watch, d);
}

static void start_watch(struct agent_doctor *d)
{
    struct err err;
    int rc = machine_open_live(&d->machine, &err);
    d->has_machine = rc == 0;
    if (rc == 0)
        rc = watch_create(&d->machine, &d->watch, &err);
    if (rc == 0)
        on_watch(d);
    else
        log_info("the doctor does not watch this host while its ranks run, the job goes on: %s",
                 err_text(&err));
}

/* ---- life ----------------------------------------------------------------------------------- */

int agent_doctor_begin(struct agent_doctor *d, struct err *err)
{
    int rc = looks_first(d) ? 0 : d->ops->start_ranks(d->arg, err);
    if (rc < 0 || d->config->doctor == DOCTOR_OFF)
        return rc;
    start_watch(d);
    d->preflight.found = on_found;
    d->preflight.done = on_done;
    d->preflight.arg = d;
    preflight_start(&d->preflight, d->loop, d->config->doctor_level, d->ranks->welcome.size,
                    d->ranks->welcome.slots);
    return 0;
}

bool agent_doctor_awaited(const struct agent_doctor *d)
{
    if (!d->preflight.running)
        return false;
    for (int i = 0; i < d->ranks->n; i++)
        if (d->ranks->list[i]->code != 0 && !d->ranks->list[i]->text[0])
            return true;
    return false;
}

void agent_doctor_fini(struct agent_doctor *d)
{
    if (!d->loop)
        return;
    preflight_fini(&d->preflight);
    loop_timer_stop(d->loop, &d->watch_timer);
    watch_destroy(d->watch);
    if (d->has_machine)
        machine_close(&d->machine);
    findings_fini(&d->findings);
}
