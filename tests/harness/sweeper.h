/* SPDX-License-Identifier: Apache-2.0
 *
 * sweeper: a process beside a test that removes what the test's world made on this machine (a
 * folder with a key, network namespaces) when it is told to, or as soon as the test is gone:
 * killed, timed out, crashed. Used by tests/harness/world, from its one thread.
 */
#ifndef HVD_TESTS_HARNESS_SWEEPER_H
#define HVD_TESTS_HARNESS_SWEEPER_H

#include <sys/types.h>

struct sweeper {
    pid_t pid; /* 0: not started */
    int fd;    /* the test's end of a pipe: the end of it means that the test is gone */
};

/* What there is to remove, whether or not it was made: the file "key" in folder dir and the folder;
 * with hosts > 0 the namespaces PREFIX0 to PREFIX<hosts - 1> and PREFIXs. Start it before they are
 * made. 0 or -errno. */
int sweeper_start(struct sweeper *s, const char *dir, const char *prefix, int hosts);

/* In a forked child that outlives nothing: no part of the test any more. */
void sweeper_leave(struct sweeper *s);

/* Has it all removed, waits for that. */
void sweeper_end(struct sweeper *s);

#endif
