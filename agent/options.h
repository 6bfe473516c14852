/* SPDX-License-Identifier: Apache-2.0
 *
 * options: hvdrun's command line: one table of options, which is also its help text.
 */
#ifndef HVD_AGENT_OPTIONS_H
#define HVD_AGENT_OPTIONS_H

#include "agent/job.h"

enum options_what {
    OPTIONS_RUN,
    OPTIONS_DOCTOR, /* the tests across workers are the job */
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_CHECK_BUILD,
    OPTIONS_EXPLAIN_STATES,
};

struct options {
    enum options_what what;
    struct job job;
    const char *job_file; /* of argv; NULL: none */
};

/* Options end at the first word that is none, or at --: the rest is the command. err says what is
 * wrong with which option. ret->job goes to job_fini() whatever is returned. */
int options_parse(struct options *ret, int argc, char **argv, struct err *err);

/* HVD_LOG_LEVEL and HVD_SIMD as the ranks will have them, from the job or from hvdrun's own
 * environment: -EINVAL when one has a value that the ranks would refuse. */
int options_check_settings(const struct job *job, struct err *err);

/* Says on standard error which variables of the ranks are misspelt names of settings. */
void options_warn_of_names(const struct job *job);

/* The start timeout where the command line does not say it: HVD_START_TIMEOUT's whole seconds,
 * or 30. */
int options_start_timeout(struct job *job, struct err *err);

/* HVD_DOCTOR, where neither the command line nor the job file says what the doctor's policy is. */
int options_doctor(struct job *job, struct err *err);

/* np, min_np and max_np, as far as they were said, fit together. */
int options_check_sizes(const struct job *job, struct err *err);

/* What makes a job elastic, and its sizes: 1 <= min_np <= np <= max_np is so afterwards; what was
 * not said follows from what was. With the hosts known, before ranks are given to them. */
int options_elastic(struct job *job, struct err *err);

/* How long a job waits below its minimum, where the command line does not say it:
 * HVD_ELASTIC_TIMEOUT's whole seconds, or 600. */
int options_elastic_timeout(struct job *job, struct err *err);

/* The help text, to standard output. */
void options_help(void);

#endif
