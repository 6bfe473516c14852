/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pod: what an agent in a pod does differently: output goes to the container's log, it ends
 * with its ranks, and its exit code tells the operator the reason. See agent.h; operator/README.md.
 */
#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#define CODE_DRAINED  143 /* 128 + SIGTERM */
#define CODE_UNFIT    126 /* the doctor refused this pod */
#define STOP_GRACE_MS 2000
/* The operator's watch may lag so far behind: it may learn of a pod only after the agent has
 * started. */
#define UNKNOWN_MS 120000

static void on_drained(void *arg)
{
    struct agent *a = arg;
    if (!printer_full(&a->printer))
        agent_pause_output(a, false);
}

int agent_pod_init(struct agent *a, struct err *err)
{
    if (!a->config.pod)
        return 0;
    int rc = printer_init(&a->printer, &a->loop, 1, false, NULL, false, on_drained, a, err);
    a->printing = rc == 0;
    return rc;
}

void agent_pod_fini(struct agent *a)
{
    if (a->printing)
        printer_fini(&a->printer);
    a->printing = false;
}

void agent_pod_print(struct agent *a, struct rank *rank, enum frame_stream stream, const void *data,
                     size_t n)
{
    struct frame frame = {
        .rank = (uint32_t)rank->assignment.local_rank, .stream = stream, .data = data, .len = n};
    a->printer.prefix = a->welcome.slots > 1;
    printer_grow(&a->printer, rank->assignment.local_rank + 1);
    printer_put(&a->printer, &frame);
    if (printer_full(&a->printer))
        agent_pause_output(a, true);
}

bool agent_pod_printed(struct agent *a, bool late)
{
    printer_finish(&a->printer);
    return late || printer_pending(&a->printer) == 0;
}

void agent_pod_exited(struct agent *a, const struct rank *rank)
{
    if (!a->config.pod || rank->leaving || rank->code == 0 || a->stopping)
        return;
    if (a->worker_code)
        return;
    a->worker_code = rank->code < 0 ? 128 - rank->code : rank->code;
    if (a->nranks > 1)
        log_info("a rank has failed: the others of this pod are ended");
    agent_stop_ranks(a, STOP_GRACE_MS);
}

bool agent_pod_is_over(const struct agent *a)
{
    bool any = false;
    for (int i = 0; i < a->nranks; i++) {
        if (a->ranks[i]->leaving)
            return false; /* the agent waits for SIGTERM from the sender of LEAVE */
        any = true;
    }
    return a->config.pod && any;
}

bool agent_pod_may_come(struct agent *a)
{
    if (!a->config.pod || a->joined)
        return false;
    if (!a->unknown_since)
        a->unknown_since = clock_ns();
    return clock_ns() - a->unknown_since < UNKNOWN_MS * CLOCK_MS;
}

int agent_pod_code(const struct agent *a)
{
    bool well = a->nranks > 0;
    if (!a->config.pod)
        return 0;
    if (a->worker_code)
        return a->worker_code;
    if (a->refused)
        return CODE_UNFIT;
    for (int i = 0; i < a->nranks; i++)
        well &= a->ranks[i]->reaped && a->ranks[i]->code == 0 && !a->ranks[i]->leaving;
    if (a->terminated && !well)
        return CODE_DRAINED;
    return 0;
}
