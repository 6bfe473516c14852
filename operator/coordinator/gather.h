/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: how long rosters wait for the agents of jobs that began under another operator. All jobs
 * of a plane share it, because one thread takes all agents back. Pure; no clock of its own.
 */
#ifndef HVD_OPERATOR_COORDINATOR_GATHER_H
#define HVD_OPERATOR_COORDINATOR_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#define GATHER_MS       20000  /* agents rejoin within HVD_REJOIN_JITTER_MS, 10 s by default */
#define GATHER_AGENT_MS 10     /* per agent; one costs 1.4 ms of processor time (RESULTS.md) */
#define GATHER_PAUSE_MS 5000   /* no agent has come for so long: those that are missing are late */
#define GATHER_MAX_MS   600000 /* however many there are, and however steadily they come */
#define SUSPECT_MS      3500   /* ranks wait for an agent that is silent; a long poll takes 2 s */

struct gather {
    int base_ms;   /* GATHER_MS, or less in tests */
    int agents;    /* the largest number of agents that were awaited at a time */
    uint64_t last; /* clock: when an agent last came back, or stood in the queue; 0: never */
    bool behind;   /* connections stand in the queue */
};

/* To be called often. agents: awaited now, by all jobs. behind: connections wait to be accepted,
 * or the plane was late itself. */
void gather_update(struct gather *g, int agents, bool behind, uint64_t now);

/* The clock time at which a roster that has gathered since `begun` stops to wait: GATHER_MS and
 * GATHER_AGENT_MS for each agent later, or GATHER_PAUSE_MS after the last one came; at most
 * GATHER_MAX_MS. */
uint64_t gather_end(const struct gather *g, uint64_t begun);

#endif
