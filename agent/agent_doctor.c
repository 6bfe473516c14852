/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_doctor: the doctor of an agent: a preflight before or beside the start of the ranks, by the
 * job's policy; a watch of the host while they run; both send their findings to the coordinator.
 * See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#define SAID_MAX 5 /* failures of the preflight in a pod's log */

static void tell(struct agent *a, const struct finding *f)
{
    if (findings_apply(&a->findings, f) < 0)
        log_debug("no room for finding %s", f->id);
    outbox_finding(&a->outbox, f);
}

static void on_found(void *arg, const struct finding *f)
{
    tell(arg, f);
}

/* Counts findings that keep ranks from working. */
static int count_failures(const struct agent *a)
{
    int n = 0;
    for (int i = 0; i < a->findings.n; i++)
        n += a->findings.list[i].status == FINDING_FAIL;
    return n;
}

/* The API server shows the end of a pod's log: write the failures there. */
static void log_failures(const struct agent *a)
{
    int said = 0;
    for (int i = 0; i < a->findings.n && said < SAID_MAX; i++) {
        const struct finding *f = &a->findings.list[i];
        if (f->status != FINDING_FAIL)
            continue;
        log_error("hvd-doctor: %s (%s)%s%s", f->summary, f->id, f->fix[0] ? "; fix: " : "", f->fix);
        said++;
    }
}

/* Policy "fail": reports every rank of this host as not started. */
static void refuse(struct agent *a, const char *trouble)
{
    const char *policy = a->config.pod ? "spec.doctor.policy fail" : "--doctor fail";
    int n = count_failures(a);
    if (a->config.pod && trouble)
        log_error("hvd-doctor: %s; no rank is started (%s)", trouble, policy);
    else if (a->config.pod)
        log_failures(a);
    for (int i = 0; i < a->welcome.nassignments; i++) {
        struct report_item item = {
            .type = REPORT_EXITED, .member = a->welcome.assignments[i].member, .code = 1};
        if (trouble)
            snprintf(item.text, sizeof(item.text), "not started: %s (%s)", trouble, policy);
        else
            snprintf(item.text, sizeof(item.text),
                     "not started: hvd-doctor found %d failure%s there (%s warn starts it all the "
                     "same)",
                     n, n == 1 ? "" : "s", a->config.pod ? "spec.doctor.policy" : "--doctor");
        outbox_report(&a->outbox, &item);
    }
    a->refused = true;
}

/* Must the preflight end before ranks start? Yes if its result decides, or if it measures
 * performance, which running ranks would disturb. */
static bool looks_first(const struct agent *a)
{
    return a->config.doctor == DOCTOR_FAIL ||
           (a->config.doctor == DOCTOR_WARN && a->config.doctor_level > 1);
}

static void on_done(void *arg, const char *trouble)
{
    struct agent *a = arg;
    struct err err;
    if (trouble)
        log_info("preflight: %s", trouble);
    if (looks_first(a) && !a->stopping) {
        if (a->config.doctor == DOCTOR_FAIL && (trouble || count_failures(a) > 0))
            refuse(a, trouble);
        else if (agent_start_ranks(a, &err) < 0)
            agent_fail(a, &err);
    }
    agent_wake(a);
}

/* ---- the watch ------------------------------------------------------------------------------ */

static void on_news(void *arg, const struct watch_news *news)
{
    struct agent *a = arg;
    struct finding f = {.source = "watch",
                        .status = news->status == CHECK_FAIL ? FINDING_FAIL : FINDING_WARN,
                        .cleared = news->cleared};
    const char *fix = finding_fix(news->check->fix);
    snprintf(f.id, sizeof(f.id), "%s", news->check->id);
    snprintf(f.code, sizeof(f.code), "%s", news->check->code);
    snprintf(f.summary, sizeof(f.summary), "%s", news->summary);
    snprintf(f.fix, sizeof(f.fix), "%s", news->cleared ? "" : fix);
    tell(a, &f);
}

static void on_watch(void *arg)
{
    struct agent *a = arg;
    auto_free pid_t *pids = calloc((size_t)a->nranks + 1, sizeof(*pids));
    for (int i = 0; pids && i < a->nranks; i++)
        pids[i] = a->ranks[i]->pid;
    if (pids)
        watch_processes(a->watch, pids, (size_t)a->nranks);
    watch_look(a->watch, clock_ns(), on_news, a);
    loop_timer_start(&a->loop, &a->watch_timer, WATCH_MS, on_watch, a);
}

static void start_watch(struct agent *a)
{
    struct err err;
    int rc = machine_open_live(&a->machine, &err);
    a->has_machine = rc == 0;
    if (rc == 0)
        rc = watch_create(&a->machine, &a->watch, &err);
    if (rc == 0)
        on_watch(a);
    else
        log_info("nothing is watched: %s", err_text(&err));
}

/* ---- life ----------------------------------------------------------------------------------- */

int agent_begin(struct agent *a, struct err *err)
{
    int rc = looks_first(a) ? 0 : agent_start_ranks(a, err);
    if (rc < 0 || a->config.doctor == DOCTOR_OFF)
        return rc;
    start_watch(a);
    a->preflight.found = on_found;
    a->preflight.done = on_done;
    a->preflight.arg = a;
    preflight_start(&a->preflight, &a->loop, a->config.doctor_level, a->welcome.size,
                    a->welcome.slots);
    return 0;
}

/* True while a rank has failed and the preflight still runs: its findings may explain the failure.
 */
bool agent_awaits_doctor(const struct agent *a)
{
    if (!a->preflight.running || a->abandoned)
        return false;
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i]->code != 0 && !a->ranks[i]->text[0])
            return true;
    return false;
}

void agent_end_doctor(struct agent *a)
{
    preflight_fini(&a->preflight);
    loop_timer_stop(&a->loop, &a->watch_timer);
    watch_destroy(a->watch);
    if (a->has_machine)
        machine_close(&a->machine);
    pages_close(a->pages);
    findings_fini(&a->findings);
}
