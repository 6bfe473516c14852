/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_findings: the doctor's findings in the pods of a job. See job_coordinator.h.
 *
 * Findings outlive their pod, so that users see why it was refused. They are dropped once the
 * worker's next pod has findings of its own or has started its ranks.
 */
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "operator/coordinator/job_coordinator.h"

static bool has_run(enum rank_state state)
{
    return state != RANK_EXPECTED && state != RANK_ASSIGNED && state != RANK_FAILED;
}

/* An array by agent: true if the doctor's result for it is known: it has findings, or its ranks
 * were started. The caller frees it. NULL: no memory. */
static bool *judge(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    bool *judged = calloc((size_t)r->agents.n + 1, sizeof(*judged));
    for (int i = 0; judged && i < r->members.n; i++)
        judged[r->members.list[i].agent] |= has_run(r->members.list[i].state);
    for (int a = 0; judged && a < r->agents.n; a++)
        judged[a] |= r->agents.list[a].findings.n > 0;
    return judged;
}

static int most_workers(const struct job_coordinator *c)
{
    int n = c->workers;
    for (int a = 0; a < c->roster.agents.n; a++)
        n = c->roster.agents.list[a].order >= n ? c->roster.agents.list[a].order + 1 : n;
    return n;
}

void job_coordinator_findings(const struct job_coordinator *c,
                              void (*each)(void *arg, const char *pod, const struct finding *f),
                              void *arg)
{
    const struct roster *r = &c->roster;
    auto_free bool *judged = judge(c);
    auto_free bool *seen = calloc((size_t)most_workers(c) + 1, sizeof(*seen)); /* [worker] */
    for (int a = r->agents.n - 1; judged && seen && a >= 0; a--) { /* newest agent first */
        const struct roster_agent *agent = &r->agents.list[a];
        bool wanted = agent->order >= 0 && (!agent->lost || agent->order < c->workers);
        if (!wanted || !judged[a] || (agent->lost && seen[agent->order]))
            continue;
        seen[agent->order] = true;
        for (int i = 0; i < agent->findings.n; i++)
            each(arg, agent->host, &agent->findings.list[i]);
    }
}
