/* SPDX-License-Identifier: Apache-2.0
 *
 * preflight: one run of hvd-doctor, as a low-priority child process of an agent; its results become
 * findings. On the agent's loop, one thread; the agent owns it.
 */
#ifndef HVD_AGENT_PREFLIGHT_H
#define HVD_AGENT_PREFLIGHT_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/base/buf.h"
#include "core/base/loop.h"
#include "core/member/findings.h"
#include "diagnostics/check.h"

/* One check's outcome, for /metrics. */
struct preflight_result {
    char id[48], group[16];
    int status; /* enum check_status */
};

struct preflight {
    struct loop *loop;
    bool running;
    pid_t pid;
    int fd; /* hvd-doctor's standard output, -1: closed */
    struct loop_fd lfd;
    struct loop_timer limit;
    struct buf text; /* an incomplete line */
    int nresults, cap;
    struct preflight_result *results; /* owned */
    bool complete;                    /* the last line, with the verdict, was read */
    char not_started[96];             /* why there is no hvd-doctor process */
    /* Called for each warning and failure. */
    void (*found)(void *arg, const struct finding *finding);
    /* Called once, at the end. trouble: NULL, or why the checks are incomplete. */
    void (*done)(void *arg, const char *trouble);
    void *arg;
};

/* The caller sets found, done and arg before. done is called from the loop, never from within
 * preflight_start(). level: hvd-doctor --level; 0: its default. */
void preflight_start(struct preflight *p, struct loop *loop, int level, int ranks, int local_ranks);

/* Ends the preflight without calling done. The owner reaps the process. */
void preflight_fini(struct preflight *p);

/* Chooses from fixes for docker, Kubernetes and a host (enum fix_place, each may be NULL) the one
 * for where this process runs; else any; "" if all are NULL. */
const char *finding_fix(const char *const fixes[FIX_PLACES]);

#endif
