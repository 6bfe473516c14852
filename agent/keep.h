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
    uint32_t term;   /* which hvdrun of the job wrote it */
    uint32_t change; /* the last planned change that has a number */
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

/* ret goes to keep_fini(); untouched on failure. */
int keep_read(const char *text, size_t len, struct keep *ret, struct err *err);
void keep_fini(struct keep *keep);

/* To and from the private directory. -ENOENT: the job has none, it is not elastic. */
int keep_store(const struct keep *keep, const char *dir, struct err *err);
int keep_load(struct keep *ret, const char *dir, struct err *err);

#endif
