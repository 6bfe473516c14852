/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_save: writes what another hvdrun would need to take an elastic job over
 * (saved_job.h), when it has changed.
 */
#ifndef HVD_AGENT_COORDINATOR_SAVE_H
#define HVD_AGENT_COORDINATOR_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/coordinator_core.h"
#include "agent/coordinator_servers.h"

struct coordinator_save {
    struct coordinator_core *core;
    const struct coordinator_servers *servers;
    const char *dir;        /* the private directory */
    const int *first_hosts; /* number of hosts that the job began with */
    uint64_t hash;          /* hash of what was written last */
    bool failed;            /* a failure was printed */
};

void coordinator_save_job(struct coordinator_save *s);

#endif
