/* SPDX-License-Identifier: Apache-2.0
 *
 * discovery: runs the program that names an elastic job's hosts (--host-discovery-script), each
 * second, one run at a time, without a shell. Used by hvdrun; on its loop, one thread.
 *
 * The owner reaps children and calls discovery_reap() for each, because only one place in a process
 * can wait for all children.
 */
#ifndef HVD_AGENT_DISCOVERY_H
#define HVD_AGENT_DISCOVERY_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/hosts.h"
#include "core/base/buf.h"
#include "core/base/loop.h"

/* hosts not NULL: the script names other hosts or slots than before (lent). problem not NULL: the
 * script fails; reported once until it succeeds again, and the known hosts stay. */
typedef void discovery_f(void *arg, const struct hosts *hosts, const char *problem);

struct discovery {
    struct loop *loop;
    const char *script;
    int slots; /* slots of a host that the script names without a number */
    discovery_f *cb;
    void *arg;
    struct hosts known;
    bool troubled; /* cb was told of a problem */
    bool timed_out;
    pid_t pid; /* 0: no run in progress */
    int out;   /* read end of the script's standard output, -1: closed */
    struct loop_fd out_lfd;
    struct loop_timer next, limit;
    struct buf text;
};

/* Parses lines "host" or "host:slots"; # starts a comment. Replaces *hosts; unchanged on failure,
 * with the line in err. Pure. */
int discovery_parse(const char *text, size_t len, int slots, struct hosts *hosts, struct err *err);

/* Runs the script once and waits, at most 10 s. On failure err names the script and the reason. */
int discovery_first(const char *script, int slots, struct hosts *hosts, struct err *err);

/* Runs the script each second from now on. known (copied): the hosts in use, with which the first
 * run's result is compared. The caller keeps script alive. */
int discovery_start(struct discovery *d, struct loop *loop, const char *script, int slots,
                    const struct hosts *known, discovery_f *cb, void *arg);

/* Handles the wait status of a child of this process. Returns true if it was the script. */
bool discovery_reap(struct discovery *d, pid_t pid, int status);

/* Kills a running script. A zero-initialized d is fine. */
void discovery_stop(struct discovery *d);

#endif
