/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_drain: SIGTERM says that this host will go away (spot instance, evicted pod). In an elastic
 * job its ranks leave at the next step boundary, instead of being ended in the middle of a step. On
 * the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_DRAIN_H
#define HVD_AGENT_AGENT_DRAIN_H

#include <stdbool.h>

#include "agent/agent_link.h"
#include "agent/agent_ranks.h"

struct agent_drain {
    struct agent_link *link;
    struct agent_ranks *ranks;
    bool active; /* ranks were asked to leave; the agent ends with the last rank */
    struct loop_timer timer, retry;
};

/* link and ranks must outlive d. */
void agent_drain_init(struct agent_drain *d, struct agent_link *link, struct agent_ranks *ranks);
void agent_drain_fini(struct agent_drain *d);

/* Asks the ranks to leave at a step boundary. Ends them if they cannot leave
 * there, or if the function is called a second time. */
void agent_drain_start(struct agent_drain *d);

#endif
