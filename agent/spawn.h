/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn: starts a rank's process: in its own process group, killed when this process dies, output
 * into pipes, standard input from /dev/null. Called by rank.c; one thread.
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
    int out, err; /* read ends, owned by the caller */
    int report; /* nonblocking, owned by the caller; readable once the command runs or cannot be run
                 */
};

/* Why a command cannot be run. */
struct spawn_failure {
    int code; /* exit code: 127: not found; 126: found, but it cannot be run */
    char text[512];
};

/* Returns after the fork. exec may take longer, on a slow file system. */
int spawn(const struct spawn_spec *spec, struct spawned *ret, struct err *err);

/* Reads the report. 0: the command runs; 1: not known yet; -ENOEXEC: it cannot be run, *ret says
 * why, and the caller still has to reap the process. */
int spawn_result(int report, const char *program, const char *cwd, struct spawn_failure *ret);

#endif
