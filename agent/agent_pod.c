/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pod: see agent_pod.h.
 */
#include "agent/agent_pod.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#define CODE_DRAINED 143 /* 128 + SIGTERM */
#define CODE_UNFIT   126 /* the doctor refused this pod */
/* Most time by which the operator's watch lags: it may learn of a pod only after the agent has
 * started. */
#define UNKNOWN_MS 120000

static void on_drained(void *arg)
{
    struct agent_pod *p = arg;
    if (!printer_full(&p->printer))
        agent_ranks_pause(p->ranks, false);
}

int agent_pod_init(struct agent_pod *p, struct agent_link *link, struct agent_ranks *ranks,
                   struct err *err)
{
    *p = (struct agent_pod){.link = link, .ranks = ranks, .active = link->config->pod};
    if (!p->active)
        return 0;
    int rc = printer_init(&p->printer, p->link->loop, 1, false, NULL, false, on_drained, p, err);
    p->printing = rc == 0;
    return rc;
}

void agent_pod_fini(struct agent_pod *p)
{
    if (p->printing)
        printer_fini(&p->printer);
    p->printing = false;
}

void agent_pod_print(struct agent_pod *p, struct rank *rank, enum frame_stream stream,
                     const void *data, size_t n)
{
    struct frame frame = {
        .rank = (uint32_t)rank->assignment.local_rank, .stream = stream, .data = data, .len = n};
    p->printer.prefix = p->ranks->welcome.slots > 1;
    printer_grow(&p->printer, rank->assignment.local_rank + 1);
    printer_put(&p->printer, &frame);
    if (printer_full(&p->printer))
        agent_ranks_pause(p->ranks, true);
}

bool agent_pod_printed(struct agent_pod *p, bool late)
{
    printer_finish(&p->printer);
    return late || printer_pending(&p->printer) == 0;
}

void agent_pod_exited(struct agent_pod *p, const struct rank *rank)
{
    if (!p->active || rank->leaving || rank->code == 0 || p->ranks->stopping)
        return;
    if (p->worker_code)
        return;
    p->worker_code = rank->code < 0 ? 128 - rank->code : rank->code;
    if (p->ranks->n > 1)
        log_info("a rank has failed: the other ranks of this pod are ended");
    agent_ranks_stop(p->ranks, AGENT_STOP_GRACE_MS);
}

bool agent_pod_has_ended(const struct agent_pod *p)
{
    bool any = false;
    for (int i = 0; i < p->ranks->n; i++) {
        if (p->ranks->list[i]->leaving)
            return false; /* the agent waits for SIGTERM from the sender of LEAVE */
        any = true;
    }
    return p->active && any;
}

bool agent_pod_may_be_new(struct agent_pod *p)
{
    if (!p->active || p->link->joined)
        return false;
    if (!p->unknown_since)
        p->unknown_since = clock_ns();
    return clock_ns() - p->unknown_since < UNKNOWN_MS * CLOCK_MS;
}

int agent_pod_code(const struct agent_pod *p, bool refused)
{
    bool well = p->ranks->n > 0;
    if (!p->active)
        return 0;
    if (p->worker_code)
        return p->worker_code;
    if (refused)
        return CODE_UNFIT;
    for (int i = 0; i < p->ranks->n; i++)
        well &= p->ranks->list[i]->reaped && p->ranks->list[i]->code == 0 &&
                !p->ranks->list[i]->leaving;
    if (p->terminated && !well)
        return CODE_DRAINED;
    return 0;
}
