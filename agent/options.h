/* SPDX-License-Identifier: Apache-2.0
 *
 * options: hvdrun's command line: one table of options, which is also the help text.
 */
#ifndef HVD_AGENT_OPTIONS_H
#define HVD_AGENT_OPTIONS_H

#include "agent/job.h"

enum options_what {
    OPTIONS_RUN,
    OPTIONS_DOCTOR, /* run the tests across hosts instead of a command */
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_CHECK_BUILD,
    OPTIONS_EXPLAIN_STATES,
};

struct options {
    enum options_what what;
    struct job job;
    const char *job_file;    /* points into argv; NULL: none */
    const char *config_file; /* the same */
    bool horovod;            /* --horovod: for a program that imports horovod */
};

/* Options end at the first word that is no option, or at --; the rest is the command. On failure
 * err names the option. Always call job_fini() on ret->job. */
int options_parse(struct options *ret, int argc, char **argv, struct err *err);

/* Checks HVD_LOG_LEVEL and HVD_SIMD as the ranks will have them, from the job or from hvdrun's
 * environment. -EINVAL for a value that ranks would refuse. */
int options_check_settings(const struct job *job, struct err *err);

/* Warns on standard error about variables of the ranks that are misspelt settings. */
void options_warn_of_names(const struct job *job);

/* Sets the start timeout if the command line did not: HVD_START_TIMEOUT rounded up to seconds, or
 * 30. */
int options_start_timeout(struct job *job, struct err *err);

/* Sets the doctor's policy from HVD_DOCTOR, unless the command line or the job file gives it. */
int options_doctor(struct job *job, struct err *err);

/* Checks that np, min_np and max_np, where given, fit together, and that only an elastic job keeps
 * places. */
int options_check_sizes(const struct job *job, struct err *err);

/* Decides whether the job is elastic and fills its sizes, so that 1 <= min_np <= np <= max_np. Call
 * when the hosts are known and before hosts_assign*(). */
int options_elastic(struct job *job, struct err *err);

/* Sets how long a job waits below its minimum, if the command line did not: HVD_ELASTIC_TIMEOUT
 * rounded up to seconds, or 600. */
int options_elastic_timeout(struct job *job, struct err *err);

/* Prints the help text on standard output. */
void options_help(void);

#endif
