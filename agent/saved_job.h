/* SPDX-License-Identifier: Apache-2.0
 *
 * saved_job: the file "state" (mode 0600) in the private directory of an elastic job's hvdrun, for
 * an hvdrun that takes the job over after the first was killed (hvdrun attach): the job's settings,
 * how agents reach hvdrun, and the few numbers that agents do not know. hvdrun writes each change
 * before agents learn of it and removes the file with the directory. The file holds the key of the
 * job's server certificate.
 */
#ifndef HVD_AGENT_SAVED_JOB_H
#define HVD_AGENT_SAVED_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/job.h"
#include "core/member/authority.h"
#include "core/member/protocol.h"

#define SAVED_JOB_SERVERS  8
#define SAVED_JOB_FILE_MAX (16u << 20)
#define SAVED_JOB_ADDRESS  64
#define SAVED_JOB_HOME     128
#define SAVED_JOB_VERSION  2 /* version of the file format; raised with every change of it */

/* The agents in order; agent i runs on job.hosts i. */
struct saved_job_agent {
    char uid[MEMBER_NAME_MAX];
    int slots, room; /* slots now, and the most that the host ever had */
    bool gone, draining;
};

/* A TCP server for agents of other hosts. */
struct saved_job_server {
    char address[SAVED_JOB_ADDRESS];
    int port;
    struct authority authority;
};

struct saved_job {
    struct job job;
    char host[MEMBER_NAME_MAX]; /* where hvdrun ran, for messages */
    char home[SAVED_JOB_HOME];  /* identifies machine and pid namespace (saved_job_home) */
    char **environment; /* "NAME=value" from hvdrun's environment that agents of other hosts got */
    uint32_t term;      /* counts the hvdruns of this job */
    uint32_t change;    /* number of the last planned change */
    int target, nmembers, restarts;
    int nleaving;
    int *leaving;    /* members that were asked to leave */
    int first_hosts; /* how many of job.hosts the job began with */
    int nagents;
    struct saved_job_agent *agents;
    int nservers;
    struct saved_job_server servers[SAVED_JOB_SERVERS];
};

/* Returns a new JSON text, which the caller frees; NULL: no memory. */
char *saved_job_write(const struct saved_job *saved);

/* Free *ret with saved_job_fini(); unchanged on failure. -ENOTSUP: another SAVED_JOB_VERSION. */
int saved_job_read(const char *text, size_t len, struct saved_job *ret, struct err *err);
void saved_job_fini(struct saved_job *saved);

/* Identifies this machine and pid namespace; "" if the system does not tell. */
void saved_job_home(char dst[SAVED_JOB_HOME]);

/* Returns 0, or -EXDEV: the file was written on another machine or in another pid namespace, where
 * the agent's socket and pids are. */
int saved_job_check_home(const struct saved_job *saved, struct err *err);

/* Writes and reads the file atomically. -ENOENT: there is none, the job is not elastic. -EPERM:
 * other users could have written it. */
int saved_job_store(const struct saved_job *saved, const char *dir, struct err *err);
int saved_job_load(struct saved_job *ret, const char *dir, struct err *err);

#endif
