/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_findings: what the doctor found in the pods of a job. See crew.h.
 *
 * What a pod was refused for outlives it: it stands until the doctor has looked at the next pod of
 * that worker, or found nothing so that its ranks were started.
 */
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "operator/coordinator/job_coordinator.h"

static bool has_run(enum rank_state state)
{
    return state != RANK_EXPECTED && state != RANK_ASSIGNED && state != RANK_FAILED;
}

/* [agent]: there is something to say of it, if that is only that all is well. */
static bool *judge(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    bool *judged = calloc((size_t)r->nagents + 1, sizeof(*judged));
    for (int i = 0; judged && i < r->nmembers; i++)
        judged[r->members[i].agent] |= has_run(r->members[i].state);
    for (int a = 0; judged && a < r->nagents; a++)
        judged[a] |= r->agents[a].findings.n > 0;
    return judged;
}

static int most_workers(const struct job_coordinator *c)
{
    int n = c->workers;
    for (int a = 0; a < c->roster.nagents; a++)
        n = c->roster.agents[a].order >= n ? c->roster.agents[a].order + 1 : n;
    return n;
}

void job_coordinator_findings(const struct job_coordinator *c,
                              void (*each)(void *arg, const char *pod, const struct finding *f),
                              void *arg)
{
    const struct roster *r = &c->roster;
    auto_free bool *judged = judge(c);
    auto_free bool *seen = calloc((size_t)most_workers(c) + 1, sizeof(*seen)); /* [worker] */
    for (int a = r->nagents - 1; judged && seen && a >= 0; a--) { /* the last that came first */
        const struct roster_agent *agent = &r->agents[a];
        bool wanted = agent->order >= 0 && (!agent->gone || agent->order < c->workers);
        if (!wanted || !judged[a] || (agent->gone && seen[agent->order]))
            continue;
        seen[agent->order] = true;
        for (int i = 0; i < agent->findings.n; i++)
            each(arg, agent->host, &agent->findings.list[i]);
    }
}
