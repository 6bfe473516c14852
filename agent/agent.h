/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: one host's part of a job: joins the coordinator, starts ranks, relays frames between them
 * and the coordinator, ends them. The agent runs in one thread, on one loop.
 * main_hvd-agent.c runs it.
 *
 * It holds the parts, each with a struct and a header of its own. No part knows the agent: a part
 * uses only the parts that its line names, and reports to the agent by callbacks.
 *
 *   agent_link     the coordinator: client, silence         agent_ranks   the processes
 *   agent_polls    events and rosters; uses link            agent_relay   control frames; ranks
 *   agent_output   the ranks' output; link, ranks           agent_doctor  checks; ranks
 *   agent_drain    SIGTERM; link, ranks                     agent_pod     in a pod; link, ranks
 *   agent_pages    /metrics, /ready; only reads
 *
 * agent.c has start, loop and end, agent_events.c hands on what parts report, agent_join.c joins
 * and rejoins. Only these three and main_hvd-agent.c include this header.
 */
#ifndef HVD_AGENT_AGENT_H
#define HVD_AGENT_AGENT_H

#include <stdbool.h>

#include "agent/agent_doctor.h"
#include "agent/agent_drain.h"
#include "agent/agent_link.h"
#include "agent/agent_output.h"
#include "agent/agent_pages.h"
#include "agent/agent_pod.h"
#include "agent/agent_polls.h"
#include "agent/agent_ranks.h"
#include "agent/agent_relay.h"
#include "agent/config.h"
#include "agent/outbox.h"
#include "core/base/agent_end.h"
#include "core/base/loop.h"

struct agent {
    struct agent_config config;
    struct loop loop;
    struct agent_link link;
    struct outbox outbox;
    struct agent_ranks ranks;
    struct agent_relay relay;
    struct agent_polls polls;
    struct agent_output output;
    struct agent_doctor doctor;
    struct agent_drain drain;
    struct agent_pod pod;
    struct agent_pages pages;
    struct loop_fd signals;
    struct loop_timer tick; /* checks the coordinator's silence and whether the agent is done */
    struct loop_timer join_retry; /* repeats a failed join or rejoin */
    char *rejoin_text;            /* body of a rejoin in flight; NULL: none */
    bool rejoin_short;            /* it is without the roster, which the coordinator has */
    uint64_t progress_at;         /* clock_ns() of the last progress report */
    uint64_t leave_at;            /* deadline for the last report and output; 0: not set */
    int rc;
    struct err err;
    enum agent_end end; /* why rc is negative */
};

/* Runs until the job's part on this host has ended. Takes ownership of config. Returns 0, or -errno
 * with err and a->end when the agent itself failed; in a pod the exit code. */
int agent_run(struct agent *a, struct agent_config *config, struct err *err);

/* Call when the agent has failed because of err: ends the ranks, then the agent. */
void agent_fail(struct agent *a, enum agent_end end, const struct err *err);

/* Runs the tick soon, which checks whether the agent is done. */
void agent_wake(struct agent *a);

/* ---- agent_events.c -------------------------------------------------------------------------- */

/* Initializes the parts, with their callbacks, and opens the parts that have an open function. */
int agent_open_parts(struct agent *a, struct err *err);

/* ---- agent_join.c ---------------------------------------------------------------------------- */

/* Joins the coordinator, then starts the doctor and the ranks. */
void agent_join(struct agent *a);

/* Call when the coordinator has answered that it does not know this agent. Returns true if the
 * agent rejoins and tells the coordinator what it knows. */
bool agent_rejoin(struct agent *a, const struct client_answer *answer);

#endif
