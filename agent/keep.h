/* SPDX-License-Identifier: Apache-2.0
 *
 * keep: the file "state" (mode 0600) in the private directory of an elastic job's hvdrun, for an
 * hvdrun that takes the job over after the first was killed (hvdrun attach): the job's settings,
 * how agents reach hvdrun, and the few numbers that agents do not know. hvdrun writes each change
 * before agents learn of it and removes the file with the directory. The file holds the key of the
 * job's server certificate.
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
#define KEEP_VERSION  1 /* of the file format; raised with every change */

/* The agents in order; agent i runs on job.hosts i. */
struct keep_agent {
    char uid[MEMBER_NAME_MAX];
    int slots, room; /* slots now, and the most that the host ever had */
    bool gone, draining;
};

/* A TCP server for agents of other hosts. */
struct keep_server {
    char address[KEEP_ADDRESS];
    int port;
    struct authority authority;
};

struct keep {
    struct job job;
    char host[MEMBER_NAME_MAX]; /* where hvdrun ran, for messages */
    char home[KEEP_HOME];       /* identifies machine and pid namespace (keep_home) */
    char **environment; /* "NAME=value" from hvdrun's environment that agents of other hosts got */
    uint32_t term;      /* counts the hvdruns of this job */
    uint32_t change;    /* number of the last planned change */
    int target, nmembers, restarts;
    int nleaving;
    int *leaving;    /* members that were asked to leave */
    int first_hosts; /* how many of job.hosts the job began with */
    int nagents;
    struct keep_agent *agents;
    int nservers;
    struct keep_server servers[KEEP_SERVERS];
};

/* Returns a new JSON text, which the caller frees; NULL: no memory. */
char *keep_write(const struct keep *keep);

/* Free *ret with keep_fini(); unchanged on failure. -ENOTSUP: another KEEP_VERSION. */
int keep_read(const char *text, size_t len, struct keep *ret, struct err *err);
void keep_fini(struct keep *keep);

/* Identifies this machine and pid namespace; "" if the system does not tell. */
void keep_home(char dst[KEEP_HOME]);

/* -EXDEV: the file was written on another machine or in another pid namespace, where the agent's
 * socket and pids are. */
int keep_check_home(const struct keep *keep, struct err *err);

/* Writes and reads the file atomically. -ENOENT: there is none, the job is not elastic. -EPERM:
 * other users could have written it. */
int keep_store(const struct keep *keep, const char *dir, struct err *err);
int keep_load(struct keep *ret, const char *dir, struct err *err);

#endif
