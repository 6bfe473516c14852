/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_agents: the agents of a job, one a host, and their slots for ranks. A part of the roster
 * that depends only on roster_members. Used by one thread.
 */
#ifndef HVD_MEMBER_ROSTER_AGENTS_H
#define HVD_MEMBER_ROSTER_AGENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/findings.h"
#include "core/member/gaps.h"
#include "core/member/rejoin.h"
#include "core/member/roster_members.h"

/* A host to add. uid: a unique name for the agent of this host. */
struct roster_host {
    const char *uid, *host;
    int nranks; /* at the start */
    int slots;  /* the most ranks; if less than nranks: nranks */
};

/* A slot for one rank on an agent. */
struct roster_slot {
    int member;       /* the last member in this slot, -1: none */
    uint64_t backoff; /* delay before the next replacement here, ns; 0: no recent failure */
};

struct roster_agent {
    char *uid, *host; /* owned; host: as the user wrote it */
    int nslots;
    int room; /* allocated length of slots; may be more than nslots, which can shrink */
    struct roster_slot *slots;
    bool joined, lost;
    bool away; /* hosted: it did not rejoin while the roster was rebuilt, and is not given up yet */
    bool draining; /* no member is started here any more */
    int order;     /* when the job shrinks, members on agents with the highest order leave first */
    int pid, reported_slots;
    char *self;               /* the agent's own host name; owned, NULL: it has not joined */
    struct gaps gaps;         /* when the agent was last heard, and its longest gaps */
    uint64_t seq;             /* seq of the agent's last body that was applied */
    struct rejoin *told;      /* while the roster is rebuilt: what this agent knows */
    struct findings findings; /* current findings of its host */
};

struct roster_agents {
    int n;
    struct roster_agent *list;
};

/* Adds an agent without members. Returns its index, or -ENOMEM. */
int roster_agents_add(struct roster_agents *agents, const struct roster_host *host);

void roster_agents_fini(struct roster_agents *agents);

/* Returns the agent's index, or -ENOENT. */
int roster_agents_find(const struct roster_agents *agents, const char *uid);

/* Slots on hosts that are neither lost nor drained, used or free. */
int roster_agents_count_slots(const struct roster_agents *agents);

/* A slot is free when its last member's process was reaped. Counts the free slots on agents where a
 * member can be started now. */
int roster_agents_free_slots(const struct roster_agents *agents, const struct roster_members *ms);

/* Chooses where to start a member: the preferred agent if it has a free slot, else the first agent
 * with the most free slots. Returns its index and a free slot; -1: no agent has any. */
int roster_agents_choose(const struct roster_agents *agents, const struct roster_members *ms,
                         int preferred, int *ret_slot);

/* Changes the number of slots. A member beyond that number stays until it is drained. -ENOMEM. */
int roster_agent_set_slots(struct roster_agent *a, int slots);

#endif
