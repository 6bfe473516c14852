/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: starts an agent, here or on another host, and owns its pipes. Used by hvdrun's
 * coordinator on its loop, one thread.
 */
#ifndef HVD_AGENT_LAUNCH_H
#define HVD_AGENT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/config.h"
#include "agent/hosts.h"
#include "agent/job.h"
#include "core/base/buf.h"
#include "core/base/loop.h"

struct launched {
    const struct host *host;
    pid_t pid; /* pid of the agent, or of ssh; 0: none */
    bool ended;
    int status;          /* wait status of the process */
    uint64_t reap_until; /* clock_ns() until when leftovers of the session are killed; 0: not set */
    int out, err;        /* read ends, -1: closed */
    struct loop_fd out_lfd, err_lfd;
    struct buf frames;   /* received, not a whole frame yet */
    struct buf messages; /* the agent's stderr until the agent has joined */
    bool bad_frames;
    bool joined;
    bool added; /* the host was added while the job ran: a failure of this agent does not fail the
                   job */
    uint64_t launched; /* clock_ns() */
    char *ca;          /* CA of the server for an added agent; NULL: the job's. Lent */
    /* Started by another hvdrun (coordinator_adopted.c): no pipes; pid is 0, or the agent's on this
     * machine. */
    bool attached;
    struct loop_fd pid_lfd; /* reports the agent's end */
    uint64_t out_seq;       /* seq of the last output that the agent posted */
    void *owner;
};

/* Starts an agent in a session of its own (a terminal's signals are for hvdrun alone), with config
 * on its standard input. Remote hosts are reached with HVD_RSH_AGENT, else with ssh and the job's
 * options. */
int launch(struct launched *l, const struct host *host, const struct job *job,
           const struct agent_config *config, struct err *err);

/* The program that launch() starts: "hvd-agent", "ssh", or HVD_RSH_AGENT's value. */
const char *launch_program(const struct host *host);

/* Copies the last line of the agent's stderr without newline; "" if there is none. */
void launch_last_message(const struct launched *l, char *dst, size_t size);

/* Signals the process that launch() started (the agent or ssh). */
void launch_kill(struct launched *l, int signo);

/* Kills what the session of an agent that has ended has left on this machine. Call it again while
 * reap_until is set. */
void launch_reap_left(struct launched *l);

void launch_fini(struct launched *l, struct loop *loop);

#endif
