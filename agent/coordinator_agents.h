/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_agents: the agents that hvdrun launched, or took over: starts them, reads their
 * pipes, handles their ends. On hvdrun's loop, one thread.
 *
 * coordinator_adopted.c has the agents of a job that another hvdrun began.
 */
#ifndef HVD_AGENT_COORDINATOR_AGENTS_H
#define HVD_AGENT_COORDINATOR_AGENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/coordinator_core.h"
#include "agent/coordinator_servers.h"
#include "agent/launch.h"

struct coordinator_agents {
    struct coordinator_core *core;
    struct coordinator_servers *servers;
    struct launched *list; /* [max], the first roster.agents.n in use; never moved */
    int max;
    int ended;         /* agents whose process has ended and whose pipes are closed */
    int lost_seconds;  /* how long agents outlive this process */
    uint64_t measured; /* clock_ns() of the last check of the agents */
};

/* Reads HVD_COORDINATOR_LOST_SECONDS. */
int coordinator_agents_read_settings(struct coordinator_agents *as, struct err *err);

/* Allocates the agents; launches none. */
int coordinator_agents_make(struct coordinator_agents *as, struct err *err);

/* Allocates and launches the agents of the roster. */
int coordinator_agents_launch(struct coordinator_agents *as, struct err *err);

/* Launches one more agent, for the last of the job's hosts. index is its index in list and in the
 * roster; ca as in struct launched. */
int coordinator_agents_launch_more(struct coordinator_agents *as, int index, char *ca,
                                   struct err *err);

/* Allocates the agents of a job that another hvdrun began. They run already and are no children of
 * this process. */
int coordinator_agents_adopt(struct coordinator_agents *as, struct err *err);

/* Call in each tick for adopted agents: watches their processes and their losses. */
void coordinator_agents_check_adopted(struct coordinator_agents *as);

/* Takes what an adopted agent has posted of its ranks' output. -EAGAIN: the printer is full. */
int coordinator_agents_take_output(struct coordinator_agents *as, int agent,
                                   const struct printed_body *body);

/* Call when a child of this process has ended, with its wait status. */
void coordinator_agents_reaped(struct coordinator_agents *as, pid_t pid, int status);

/* Stops or resumes reading the agents' output. */
void coordinator_agents_pause(struct coordinator_agents *as, bool pause);

/* Call in each tick: reports agents that have joined, and treats silent ones as lost. */
void coordinator_agents_check(struct coordinator_agents *as);

/* Can the job continue without an agent that does not join? True for an elastic job that has had an
 * epoch, or whose other hosts have room for its minimum. */
bool coordinator_agents_can_spare(const struct coordinator_agents *as, int agent);

/* Records that an agent could not be launched: the roster counts it as lost. */
void coordinator_agents_unlaunched(struct coordinator_agents *as, int agent, const char *why);

void coordinator_agents_kill(struct coordinator_agents *as);
void coordinator_agents_fini(struct coordinator_agents *as);

#endif
