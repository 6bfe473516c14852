/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_elastic: an elastic job while it runs: its time limits, when to give up, and a line
 * for every change. The roster decides who is in which epoch.
 */
#ifndef HVD_AGENT_COORDINATOR_ELASTIC_H
#define HVD_AGENT_COORDINATOR_ELASTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/coordinator_core.h"

struct coordinator_elastic {
    struct coordinator_core *core;
    int said_notes;           /* notes of the roster that were handled */
    bool said_waiting;        /* "waiting for" was printed */
    uint32_t said_epoch;      /* epoch whose line was printed, or is held */
    uint32_t said_state_lost; /* epoch for which the loss of the state was printed */
    bool gave_up;             /* the job waited too long for ranks, or none can come any more */
    char change[700]; /* the line about the last epoch, held until a dead rank's exit code is known
                       */
    uint64_t change_held; /* clock_ns() when this line was held back; 0: not held */
};

/* Call in each tick, also for a fixed job. Applies the time limits of an elastic job and prints its
 * changes. */
void coordinator_elastic_check(struct coordinator_elastic *e);

#endif
