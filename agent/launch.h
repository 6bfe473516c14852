/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: starts an agent, here or on another host, and holds its pipes. Used by hvdrun's
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
    pid_t pid; /* of the agent, or of ssh; 0: none */
    bool ended;
    int status; /* of its end, as wait gives it */
    uint64_t
        reap_until; /* clock: what it has left behind on this host is looked for; 0: it is not */
    int out, err;   /* read ends, -1: closed */
    struct loop_fd out_lfd, err_lfd;
    struct buf frames;   /* read, not yet whole */
    struct buf messages; /* what it says on stderr until it has joined */
    bool bad_frames;
    bool joined;
    bool added;        /* its host came while the job ran: that it fails is no failure of the job */
    uint64_t launched; /* clock */
    char *ca;          /* of an added one's server; NULL: the job's. Lent */
    /* Of a former hvdrun (coordinator_attach.c): pid is 0, or the agent's where it is of this
     * machine, and there are no pipes. */
    bool attached;
    struct loop_fd pid_lfd; /* its end */
    uint64_t out_seq;       /* of the last output that it posted */
    void *owner;
};

/* Starts it in a session of its own (a terminal's signals are for hvdrun alone), with config on its
 * standard input. How another host is reached: HVD_RSH_AGENT, else ssh with the job's options. */
int launch(struct launched *l, const struct host *host, const struct job *job,
           const struct agent_config *config, struct err *err);

/* "hvd-agent", "ssh", or what HVD_RSH_AGENT names: what was started. */
const char *launch_program(const struct host *host);

/* The last line that it said on stderr, without newline; "" when it said nothing. */
void launch_last_message(const struct launched *l, char *dst, size_t size);

/* Kills what was started (the agent itself, or ssh). */
void launch_kill(struct launched *l, int signo);

void launch_fini(struct launched *l, struct loop *loop);

#endif
