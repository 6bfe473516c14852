/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pages: the HTTP pages of an agent: /metrics for Prometheus, /ready and /healthz for probes.
 * They show what the agent knows already and change nothing. A finding does not make the agent
 * unhealthy. On the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_PAGES_H
#define HVD_AGENT_AGENT_PAGES_H

#include "agent/agent_doctor.h"
#include "agent/agent_link.h"
#include "agent/agent_ranks.h"
#include "agent/agent_relay.h"
#include "core/member/pages.h"

/* The owner sets the parts, which must outlive it. */
struct agent_pages {
    const struct agent_link *link;
    const struct agent_ranks *ranks;
    const struct agent_relay *relay;
    const struct agent_doctor *doctor;
    struct pages *server; /* NULL: no HTTP pages are served */
};

/* Serves the pages if the configuration asks for them. */
int agent_pages_open(struct agent_pages *p, struct err *err);
void agent_pages_close(struct agent_pages *p);

#endif
