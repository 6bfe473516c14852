/* SPDX-License-Identifier: Apache-2.0
 *
 * commands_private: what the files of commands share: a command line that was read. commands.c has
 * the table and the words, commands_list.c list and status, commands_change.c scale and drain.
 */
#ifndef HVD_AGENT_COMMANDS_PRIVATE_H
#define HVD_AGENT_COMMANDS_PRIVATE_H

#include "agent/commands.h"
#include "agent/jobs.h"
#include "agent/status.h"

#define COMMANDS_ASK_MS 5000

struct command_line {
    const char *words[2]; /* JOB and what else it takes; NULL: not said */
    int nwords;
    bool json, verbose;
    double watch, wait; /* seconds; 0: not said */
};

/* Each returns an exit code, or a negative errno with err. */
typedef int command_f(const struct command_line *line, struct err *err);

command_f command_list, command_status, command_scale, command_drain;

/* commands_attach.c: the job's exit code. */
command_f command_attach;

/* The job of that name that runs; without a name the only one. err lists what there is. */
int commands_find(const char *name, struct job_entry *ret, struct err *err);

/* Its status; *ret_json, unless NULL, is the answer itself, the caller's reference. */
int commands_status(const struct job_entry *job, int timeout_ms, struct status *ret,
                    json_t **ret_json, struct err *err);

/* rc is what came of asking a job that has answered before: it failed because the job has ended. */
bool commands_ended(const struct job_entry *job, int rc);

/* Milliseconds since 1970. */
int64_t commands_now(void);

#endif
