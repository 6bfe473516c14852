/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pod: what an agent in a pod does differently: output goes to the container's log, it ends
 * with its ranks, and its exit code tells the operator the reason (operator/README.md). On the
 * agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_POD_H
#define HVD_AGENT_AGENT_POD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/agent_link.h"
#include "agent/agent_ranks.h"
#include "agent/printer.h"

struct agent_pod {
    struct agent_link *link;
    struct agent_ranks *ranks;
    bool active; /* this agent runs in a pod; else do not call agent_pod_print, agent_pod_printed */
    struct printer printer;
    bool printing;          /* printer is initialized */
    bool terminated;        /* SIGTERM was received */
    int worker_code;        /* exit code of the first rank that failed, 0: none did */
    uint64_t unknown_since; /* clock_ns() of the operator's first answer that it does not know this
                               pod; 0: no such answer yet */
};

/* link and ranks must outlive p. */
int agent_pod_init(struct agent_pod *p, struct agent_link *link, struct agent_ranks *ranks,
                   struct err *err);
void agent_pod_fini(struct agent_pod *p);

void agent_pod_print(struct agent_pod *p, struct rank *rank, enum frame_stream stream,
                     const void *data, size_t n);
bool agent_pod_printed(struct agent_pod *p, bool late);

/* Call when a rank has ended. If the rank failed, ends the other ranks too: the operator replaces
 * whole pods. */
void agent_pod_exited(struct agent_pod *p, const struct rank *rank);

/* Call when all ranks here have ended: will no other rank be started in this pod? */
bool agent_pod_has_ended(const struct agent_pod *p);

/* Call when the operator has answered that it does not know this pod. Returns true while the
 * operator may still learn of this pod. */
bool agent_pod_may_be_new(struct agent_pod *p);

/* The exit code. refused: the doctor found a failure. */
int agent_pod_code(const struct agent_pod *p, bool refused);

#endif
