/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_gather: takes back the agents of a job that began under another operator. See
 * job_coordinator.h and core/member/roster_rebuild.h.
 */
#include "core/base/clock.h"
#include "operator/coordinator/job_coordinator.h"

int job_coordinator_awaits(const struct job_coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->npods && c->roster.rebuilding; i++)
        n += c->pods[i]->bound && !c->pods[i]->finished;
    return n;
}

void job_coordinator_came_back(struct job_coordinator *c, uint64_t now)
{
    c->gather->last = now;
    c->gather_waits = 0;
}

/* Agents whose ranks wait come back within 2 s (client_hurry()). So if ranks wait, and no further
 * agent of this job has come for SUSPECT_MS though none stood in the queue, those that are missing
 * are dead. */
uint64_t job_coordinator_gather_until(struct job_coordinator *c, bool waiting, uint64_t now)
{
    uint64_t end = gather_end(c->gather, c->gather_begun), most = SUSPECT_MS * CLOCK_MS;
    if (!waiting || c->gather->behind || !c->gather_waits)
        c->gather_waits = waiting ? now : 0;
    return waiting && c->gather_waits + most < end ? c->gather_waits + most : end;
}

/* The agent is away. */
static void await(struct job_coordinator *c, int agent, uint64_t now)
{
    struct roster_agent *a = &c->roster.agents.list[agent];
    struct job_coordinator_pod *pod = job_coordinator_pod_of(c, a->uid);
    if (!pod || pod->finished) {
        job_coordinator_lose(c, agent, "its pod has ended or was deleted", now);
        return;
    }
    int other = pod->agent;
    if (other >= 0 && c->roster.agents.list[other].joined && !c->roster.agents.list[other].lost) {
        job_coordinator_lose(c, agent, "its pod has another agent", now);
        return;
    }
    pod->agent = agent;
    pod->closed_at = 0;
    a->order = pod->worker;
    gaps_heard(&a->gaps, c->gather_waits ? c->gather_waits : now);
    roster_set_slots(&c->roster, agent, c->slots, NULL); /* without memory: refused when it comes */
}

void job_coordinator_end_gathering(struct job_coordinator *c, uint64_t now)
{
    if (!c->gathering || c->roster.rebuilding)
        return;
    c->gathering = false;
    for (int i = 0; i < c->roster.agents.n; i++)
        if (c->roster.agents.list[i].away)
            await(c, i, now);
}
