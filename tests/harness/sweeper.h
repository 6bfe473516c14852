/* SPDX-License-Identifier: Apache-2.0
 *
 * sweeper: a process that removes what the world of a test has created on this machine (a folder
 * with a key, network namespaces), on request or when the test has ended in any way: killed, timed
 * out, crashed. Used by tests/harness/world from its only thread.
 */
#ifndef HVD_TESTS_HARNESS_SWEEPER_H
#define HVD_TESTS_HARNESS_SWEEPER_H

#include <sys/types.h>

struct sweeper {
    pid_t pid; /* 0: not started */
    int fd;    /* the test's end of a pipe; the sweeper sees its end when the test has ended */
};

/* Starts the sweeper, before anything is created. It removes, if they exist: the file "key" in
 * folder dir, and the folder; with hosts > 0 the namespaces PREFIX0 to PREFIX<hosts - 1> and
 * PREFIXs. 0 or -errno. */
int sweeper_start(struct sweeper *s, const char *dir, const char *prefix, int hosts);

/* In a forked child: drops its copy of the pipe, so that the sweeper sees the test's end. */
void sweeper_leave(struct sweeper *s);

/* Has everything removed, and waits for that. */
void sweeper_end(struct sweeper *s);

#endif
