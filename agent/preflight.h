/* SPDX-License-Identifier: Apache-2.0
 *
 * preflight: one run of hvd-doctor beside an agent, as a process of its own at a low priority: what
 * it finds comes as findings. On the agent's loop, one thread; the agent owns it.
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
    int fd; /* its standard output, -1: closed */
    struct loop_fd lfd;
    struct loop_timer limit;
    struct buf text; /* a line that is not whole yet */
    int nresults, cap;
    struct preflight_result *results; /* owned */
    bool complete;                    /* the last line, with the verdict, has come */
    /* Each warning and failure. */
    void (*found)(void *arg, const struct finding *finding);
    /* Once: it is over. trouble: NULL, or why it could not look. */
    void (*done)(void *arg, const char *trouble);
    void *arg;
};

/* found, done and arg are set by the caller before. done is called from the loop, never from here.
 * level: how much it looks at (hvd-doctor --level); 0: its default. */
void preflight_start(struct preflight *p, struct loop *loop, int level, int ranks, int local_ranks);

/* Ends it without a call. The process is left to whoever reaps. */
void preflight_fini(struct preflight *p);

/* Of texts for docker, Kubernetes and a host (enum fix_place, each may be NULL) the one that fits
 * where this process runs; else any; "" without. */
const char *finding_fix(const char *const fixes[FIX_PLACES]);

#endif
