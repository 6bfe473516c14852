/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn: a rank's process: a process group of its own, bound to the life of this one, output into
 * pipes, standard input from /dev/null. Called by rank.c; one thread.
 */
#ifndef HVD_AGENT_SPAWN_H
#define HVD_AGENT_SPAWN_H

#include <sched.h>
#include <sys/types.h>

#include "core/base/err.h"

struct spawn_spec {
    char *const *argv, *const *env;
    const char *cwd;
    const cpu_set_t *cpus; /* NULL: not bound */
    int keep_fd;           /* stays open over exec */
};

struct spawned {
    pid_t pid;
    int out, err;   /* read ends, the caller's */
    int exec_errno; /* not 0: it never ran the command, its end is to be reaped all the same */
    int exec_code;  /* 127: not found, 126: found, but it cannot be run */
    char exec_text[512];
};

/* Returns when the child has called exec or failed to. */
int spawn(const struct spawn_spec *spec, struct spawned *ret, struct err *err);

#endif
