/* SPDX-License-Identifier: Apache-2.0
 *
 * binding: which processors each rank of a host gets (hwloc). Used by the agent; one thread.
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

/* BIND_CORE shares the usable cores out evenly, neighbours together; BIND_NUMA gives each rank the
 * whole NUMA node it would get a share of. Not bound when ranks outnumber the usable cores
 * (affinity and quota), or when the machine does not say what it has. */
int binding_init(struct binding *b, enum bind_to bind_to, int n, struct err *err);
void binding_fini(struct binding *b);

/* NULL: not bound. */
const cpu_set_t *binding_cpus(const struct binding *b, int i);

/* "bound to 2 cores: cpus 0-1", "not bound: 4 ranks on 2 cores". */
const char *binding_text(const struct binding *b, int i);

#endif
