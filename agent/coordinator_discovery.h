/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_discovery: hosts that appear and disappear while an elastic job runs. With a
 * discovery script: starts agents on new hosts, drains hosts no longer named, and scales to the
 * slots there are. Without a script: retries the initial hosts when they were lost. On hvdrun's
 * loop, one thread.
 *
 * Host i of the job belongs to agent i of the roster. A lost host that comes back gets a new index.
 */
#ifndef HVD_AGENT_COORDINATOR_DISCOVERY_H
#define HVD_AGENT_COORDINATOR_DISCOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/coordinator_agents.h"
#include "agent/coordinator_core.h"
#include "agent/coordinator_servers.h"
#include "agent/discovery.h"

struct coordinator_discovery {
    struct coordinator_core *core;
    struct coordinator_servers *servers;
    struct coordinator_agents *agents;
    struct discovery script;
    int first_hosts; /* number of hosts that the job began with; set by the owner */
    /* Retry of lost hosts: when next, when last (clock_ns(); 0: none), and the pause in ms. */
    uint64_t retry_at, tried_at, retry_ms;
};

/* Starts the discovery script, if there is one, which then names the hosts. */
int coordinator_discovery_start(struct coordinator_discovery *d, struct err *err);

/* Returns whether an elastic job will start agents again on hosts that were lost. Such a job goes
 * on even while no agent runs. */
bool coordinator_discovery_may_retry(const struct coordinator_discovery *d);

/* Call in each tick. Treats agents that do not join in time as lost, and starts agents on lost
 * hosts again. */
void coordinator_discovery_check(struct coordinator_discovery *d);

#endif
