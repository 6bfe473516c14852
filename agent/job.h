/* SPDX-License-Identifier: Apache-2.0
 *
 * job: the job that hvdrun is to run, from its command line or a job file. Owned by main.
 */
#ifndef HVD_AGENT_JOB_H
#define HVD_AGENT_JOB_H

#include <stdbool.h>

#include "agent/config.h"
#include "agent/hosts.h"

struct job {
    char *name;
    int np; /* 0: not given */
    /* An elastic job has 1 <= min_np <= np <= max_np: its ranks may die, leave and join. In a fixed
     * job min_np and max_np are 0. Filled by options_elastic(). */
    bool elastic;
    int min_np, max_np;
    bool keep_places;    /* elastic: a joiner takes the place of a lost rank */
    int elastic_timeout; /* seconds below min_np before the job gives up */
    int reset_limit;     /* most ranks that are replaced; 0: no limit */
    /* Seconds before a failed rank, or the agent of a lost host, is started again: the first time,
     * and at most. 0: not given. */
    int cooldown_min, cooldown_max;
    char *discovery_script; /* absolute path, NULL: the hosts are those named at the start */
    int slots_per_host;     /* slots of hosts that the script names without a number; 0: 1 */
    struct hosts hosts;
    char **argv;
    char **env;        /* "NAME=value" for every rank: -x, and options that set a setting */
    char *cwd;         /* NULL: where hvdrun was started */
    char *output_dir;  /* NULL: none */
    int start_timeout; /* seconds; 0: not given */
    enum bind_to bind_to;
    bool report_bindings;
    enum doctor_policy doctor;
    char *metrics;    /* "[ADDR:]PORT" for the pages of each agent, NULL: none */
    bool doctor_said; /* the doctor's policy was given on the command line or in the job file */
    bool no_prefix;
    bool stamps; /* each prefix begins with the time */
    /* The ranks' output, which is shown as it is, explains their exit codes; 1 of rank 0 is no
     * failure. */
    bool reports;
    int verbose;
    int ssh_port;       /* 0: ssh's default */
    char *ssh_identity; /* NULL: ssh's default */
};

void job_init(struct job *job);
void job_fini(struct job *job);

/* Adds or replaces NAME=value. -ENOMEM. */
int job_setenv(struct job *job, const char *name, const char *value);

/* The value that ranks will have: from the job, else from this process; NULL: none. */
const char *job_getenv(const struct job *job, const char *name);

/* Makes a path absolute, relative to the current directory. NULL: no memory. */
char *job_absolute(const char *path);

/* The environment for agents of other hosts, with the job's own variables at the end. The caller
 * frees the list but not its entries. NULL: no memory. */
char **job_remote_environment(const struct job *job);

#endif
