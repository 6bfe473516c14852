/* SPDX-License-Identifier: Apache-2.0
 *
 * discovery: the program that names an elastic job's hosts (--host-discovery-script), run each
 * second, one at a time, by no shell. Used by hvdrun; its loop, one thread.
 *
 * The owner reaps its children and tells discovery_reap() of each: a process has one parent, who
 * may have many children.
 */
#ifndef HVD_AGENT_DISCOVERY_H
#define HVD_AGENT_DISCOVERY_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/hosts.h"
#include "core/base/buf.h"
#include "core/base/loop.h"

/* Either: the script names other hosts than before, or other numbers of slots (lent); or something
 * is wrong with it, said once until it is well again: what was known before stays. */
typedef void discovery_f(void *arg, const struct hosts *hosts, const char *problem);

struct discovery {
    struct loop *loop;
    const char *script;
    int slots; /* of a host that is named without */
    discovery_f *cb;
    void *arg;
    struct hosts known;
    bool troubled; /* cb knows of it */
    bool timed_out;
    pid_t pid; /* 0: none runs */
    int out;   /* read end, -1: closed */
    struct loop_fd out_lfd;
    struct loop_timer next, limit;
    struct buf text;
};

/* Lines "host" or "host:slots", # starts a comment. Replaces what is in hosts; untouched on
 * failure: err has the line. Pure. */
int discovery_parse(const char *text, size_t len, int slots, struct hosts *hosts, struct err *err);

/* Runs the script once and waits for it: at most 10 s. err names the script and what is wrong. */
int discovery_first(const char *script, int slots, struct hosts *hosts, struct err *err);

/* From now on it runs each second. known (copied) is what the last run named. script is lent. */
int discovery_start(struct discovery *d, struct loop *loop, const char *script, int slots,
                    const struct hosts *known, discovery_f *cb, void *arg);

/* A child of this process has ended, and was reaped with that status: true when it was the script.
 */
bool discovery_reap(struct discovery *d, pid_t pid, int status);

/* Kills a script that runs. One that was never started (all zero) is fine. */
void discovery_stop(struct discovery *d);

#endif
