/* SPDX-License-Identifier: Apache-2.0
 *
 * job: what hvdrun is asked to run, from its command line or a job file. Owned by main.
 */
#ifndef HVD_AGENT_JOB_H
#define HVD_AGENT_JOB_H

#include <stdbool.h>

#include "agent/config.h"
#include "agent/hosts.h"

struct job {
    char *name;
    int np; /* 0: not said */
    /* An elastic job: 1 <= min_np <= np <= max_np, its ranks may die, leave and join. In a fixed
     * job all of this is 0. options_elastic() fills it. */
    bool elastic;
    int min_np, max_np;
    int elastic_timeout; /* seconds below min_np before the job gives up */
    int reset_limit;     /* ranks that are replaced at most; 0: no limit */
    /* Seconds before a rank, or the agent of a host, that failed is started again: the first time,
     * and at most. 0: not said. */
    int cooldown_min, cooldown_max;
    char *discovery_script; /* absolute path, NULL: the hosts are those named at the start */
    int slots_per_host;     /* of hosts that the script names without; 0: not said, 1 */
    struct hosts hosts;
    char **argv;
    char **env;        /* "NAME=value" for every rank: -x, options that stand for settings */
    char *cwd;         /* NULL: where hvdrun was started */
    char *output_dir;  /* NULL: none */
    int start_timeout; /* seconds; 0: not said */
    enum bind_to bind_to;
    bool report_bindings;
    enum doctor_policy doctor;
    char *metrics;    /* "[ADDR:]PORT" of each agent, NULL: none */
    bool doctor_said; /* on the command line or in the job file */
    bool no_prefix;
    bool reports; /* code 1 of rank 0 is what its output says */
    int verbose;
    int ssh_port;       /* 0: ssh's own */
    char *ssh_identity; /* NULL: ssh's own */
};

void job_init(struct job *job);
void job_fini(struct job *job);

/* Adds or replaces NAME=value. -ENOMEM. */
int job_setenv(struct job *job, const char *name, const char *value);

/* The value that ranks will have: the job's own, else that of this process; NULL: none. */
const char *job_getenv(const struct job *job, const char *name);

/* An absolute path: relative ones are so to the current directory. NULL: out of memory. */
char *job_absolute(const char *path);

#endif
