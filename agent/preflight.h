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

struct preflight {
    struct loop *loop;
    bool running;
    pid_t pid;
    int fd; /* its standard output, -1: closed */
    struct loop_fd lfd;
    struct loop_timer limit;
    struct buf text; /* a line that is not whole yet */
    int checks;      /* results so far */
    bool complete;   /* the last line, with the verdict, has come */
    /* Each warning and failure. */
    void (*found)(void *arg, const struct finding *finding);
    /* Once: it is over. trouble: NULL, or why it could not look. */
    void (*done)(void *arg, const char *trouble);
    void *arg;
};

/* found, done and arg are set by the caller before. done is called from the loop, never from here.
 */
void preflight_start(struct preflight *p, struct loop *loop, int ranks, int local_ranks);

/* Ends it without a call. The process is left to whoever reaps. */
void preflight_stop(struct preflight *p);

#endif
