/* SPDX-License-Identifier: Apache-2.0
 *
 * keep: what an elastic job's hvdrun leaves in its private directory, in the file "state" (mode
 * 0600), for one that takes over after it was killed (hvdrun attach): the job's settings, how its
 * agents are reached, and the few numbers that agents do not know. Written before agents hear of
 * what is in it; gone with the directory. It holds the key of the job's server certificate.
 */
#ifndef HVD_AGENT_KEEP_H
#define HVD_AGENT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/job.h"
#include "core/member/authority.h"
#include "core/member/protocol.h"

#define KEEP_SERVERS  8
#define KEEP_FILE_MAX (16u << 20)
#define KEEP_ADDRESS  64
#define KEEP_HOME     128
#define KEEP_VERSION  1 /* of the text: one higher with every change */

/* Agents in order: each has a host in job.hosts. */
struct keep_agent {
    char uid[MEMBER_NAME_MAX];
    int slots, room; /* ranks there may be, and might once have been */
    bool gone, draining;
};

/* A listener for agents of other hosts. */
struct keep_server {
    char address[KEEP_ADDRESS];
    int port;
    struct authority authority;
};

struct keep {
    struct job job;
    char host[MEMBER_NAME_MAX]; /* where hvdrun ran, for people */
    char home[KEEP_HOME];       /* the machine and its pid namespace (keep_home) */
    char **environment;         /* "NAME=value" that agents of other hosts got of hvdrun's own */
    uint32_t term;              /* which hvdrun of the job wrote it */
    uint32_t change;            /* the last planned change that has a number */
    int target, nmembers, restarts;
    int nleaving;
    int *leaving;    /* members */
    int first_hosts; /* of job.hosts: those that were there at the beginning */
    int nagents;
    struct keep_agent *agents;
    int nservers;
    struct keep_server servers[KEEP_SERVERS];
};

/* A fresh JSON text, NULL when memory is out. */
char *keep_write(const struct keep *keep);

/* ret goes to keep_fini(); untouched on failure. -ENOTSUP: it has another KEEP_VERSION. */
int keep_read(const char *text, size_t len, struct keep *ret, struct err *err);
void keep_fini(struct keep *keep);

/* What tells this machine and pid namespace from others; "" where the system does not say. */
void keep_home(char dst[KEEP_HOME]);

/* -EXDEV: the hvdrun that wrote it ran elsewhere, where its agent's socket and pids mean something.
 */
int keep_check_home(const struct keep *keep, struct err *err);

/* To and from the private directory, whole or not at all. -ENOENT: the job has none, it is not
 * elastic. -EPERM: others than this user could have written it. */
int keep_store(const struct keep *keep, const char *dir, struct err *err);
int keep_load(struct keep *ret, const char *dir, struct err *err);

#endif
