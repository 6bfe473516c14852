/* SPDX-License-Identifier: Apache-2.0
 *
 * binding: chooses the processors of each rank of a host, with hwloc. Used by the agent; one
 * thread.
 */
#ifndef HVD_AGENT_BINDING_H
#define HVD_AGENT_BINDING_H

#include <sched.h>

#include "agent/config.h"

struct binding {
    int n;
    cpu_set_t *sets; /* [n]; NULL: ranks are not bound */
    char (*texts)[160];
};

/* BIND_CORE divides the usable cores evenly among n ranks, neighbours together. BIND_NUMA gives
 * each rank the NUMA node that its cores would be on. Ranks stay unbound when there are more ranks
 * than usable cores (by affinity and quota), or when hwloc fails. */
int binding_init(struct binding *b, enum bind_to bind_to, int n, struct err *err);
void binding_fini(struct binding *b);

/* The processors of local rank i; NULL: not bound. */
const cpu_set_t *binding_cpus(const struct binding *b, int i);

/* Describes the binding of local rank i: "bound to 2 cores: cpus 0-1", "not bound: 4 ranks on 2
 * cores". */
const char *binding_text(const struct binding *b, int i);

#endif
