/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator: hvdrun while a job runs: serves the roster, launches agents, prints the ranks'
 * output, forwards signals, decides how the job ends. It runs in one thread, on
 * one loop. main_hvdrun.c runs it.
 *
 * It holds the parts, each with a struct and a header of its own. No part knows the coordinator: a
 * part uses the parts above it in this list.
 *
 *   coordinator_core       job, roster, printer; say, stop and fail
 *   coordinator_findings   what doctors found (no state of its own)
 *   coordinator_elastic    limits and messages of an elastic job
 *   coordinator_servers    where agents reach hvdrun
 *   coordinator_save       what another hvdrun needs to take the job over
 *   coordinator_agents     the agents' processes, pipes and ends
 *   coordinator_discovery  hosts that appear and disappear
 *
 * coordinator.c has main loop and decisions, coordinator_open.c setup and teardown,
 * coordinator_attach.c the setup of a job that another hvdrun began. Besides these,
 * commands_attach.c and main_hvdrun.c include this header.
 */
#ifndef HVD_AGENT_COORDINATOR_H
#define HVD_AGENT_COORDINATOR_H

#include <stdbool.h>

#include "agent/coordinator_agents.h"
#include "agent/coordinator_core.h"
#include "agent/coordinator_discovery.h"
#include "agent/coordinator_elastic.h"
#include "agent/coordinator_save.h"
#include "agent/coordinator_servers.h"
#include "agent/jobs.h"
#include "agent/saved_job.h"

struct coordinator {
    struct coordinator_core core;
    struct coordinator_elastic elastic;
    struct coordinator_servers servers;
    struct coordinator_save save;
    struct coordinator_agents agents;
    struct coordinator_discovery discovery;
    char dir[256]; /* private directory with the Unix socket; "": not made */
    int dir_lock;  /* holds the lock of dir while this hvdrun lives; -1: none */
    struct loop_fd signals;
    struct loop_timer tick, news;
    uint64_t failed_at, abandon_at; /* clock_ns() values; 0: not set */
    bool flushing;                  /* the job has ended, only output is left to write */
    bool signaled;                  /* ranks were sent a signal */
    int interrupts;                 /* SIGINTs received */
    int output_lost;                /* exit code for output that could not be written; 0: none */
    char absent[1200]; /* text about ranks that did not call hvd_init() in time; "": none */
    bool attached;     /* another hvdrun began the job */
    /* What -v has printed so far: */
    int said_running;
    bool said_connected, said_attached;
};

/* Runs the job to its end and returns hvdrun's exit code. err: a failure before ranks ran. */
int coordinator_run(struct coordinator *c, struct job *job, struct err *err);

/* Like coordinator_run(), for a job whose hvdrun was killed. saved holds the job; lock, from
 * jobs_lock(), is taken over. */
int coordinator_attach(struct coordinator *c, const struct job_entry *entry,
                       struct saved_job *saved, int lock, struct err *err);

/* ---- coordinator_open.c ---------------------------------------------------------------------- */

int coordinator_open(struct coordinator *c, struct err *err);
void coordinator_close(struct coordinator *c);

/* ---- coordinator_attach.c -------------------------------------------------------------------- */

/* Opens a job that another hvdrun began: its directory, addresses and keys. */
int coordinator_reopen(struct coordinator *c, const struct job_entry *entry,
                       const struct saved_job *saved, struct err *err);

/* Call in each tick: once the agents have rejoined, the job continues as any other. */
void coordinator_check_attached(struct coordinator *c);

#endif
