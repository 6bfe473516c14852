/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_core: what all parts of hvdrun's coordinator work with: the job, its roster, the
 * printer, and the ways to tell the user something and to stop the job. All parts run in one
 * thread, on one loop.
 */
#ifndef HVD_AGENT_COORDINATOR_CORE_H
#define HVD_AGENT_COORDINATOR_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/explain.h"
#include "agent/job.h"
#include "agent/printer.h"
#include "core/base/loop.h"
#include "core/member/roster.h"
#include "core/member/service.h"

#define STOP_GRACE_MS 2000 /* between SIGTERM and SIGKILL */

struct coordinator_core {
    struct job *job;
    struct loop loop;
    struct roster roster;
    struct service service;
    struct printer printer;
    struct explain explain;
    uint64_t started;  /* clock_ns() */
    uint64_t kill_at;  /* clock_ns() when agents that still run are killed; 0: not set */
    char reason[1024]; /* why the job failed, if no rank caused it; "": not set */
};

/* The roster's limits for an elastic job. */
struct roster_elastic coordinator_limits(const struct job *job);

/* Prints "hvdrun: ..." on standard error if -v was given at least level times. */
void coordinator_say(struct coordinator_core *c, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Wakes requests that wait for news, and runs the tick, later, from the loop. */
void coordinator_changed(struct coordinator_core *c);

/* Ends all ranks: SIGTERM, and SIGKILL after grace_ms. */
void coordinator_stop(struct coordinator_core *c, const char *reason, int grace_ms);

/* Fails the job for a reason other than a rank's end. Only the first reason counts. */
void coordinator_fail(struct coordinator_core *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
