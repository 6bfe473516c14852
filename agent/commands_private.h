/* SPDX-License-Identifier: Apache-2.0
 *
 * commands_private: what the files of commands share: a parsed command line. commands.c has the
 * table and the parser, commands_list.c list and status, commands_change.c scale and drain.
 */
#ifndef HVD_AGENT_COMMANDS_PRIVATE_H
#define HVD_AGENT_COMMANDS_PRIVATE_H

#include "agent/commands.h"
#include "agent/jobs.h"
#include "agent/status.h"

#define COMMANDS_ASK_MS 5000

struct command_line {
    const char *words[2]; /* JOB and the command's other argument; NULL: not given */
    int nwords;
    bool json, verbose;
    double watch, wait; /* seconds; 0: not given */
};

/* Returns an exit code, or -errno with err. */
typedef int command_f(const struct command_line *line, struct err *err);

command_f command_list, command_status, command_scale, command_drain;

/* commands_attach.c. Returns the job's exit code. */
command_f command_attach;

/* Finds the running job of that name, or the only running job if name is NULL. On failure err lists
 * the jobs. */
int commands_find(const char *name, struct job_entry *ret, struct err *err);

/* Asks the job for its status. *ret_json, unless NULL, is the raw answer, a reference that the
 * caller owns. */
int commands_status(const struct job_entry *job, int timeout_ms, struct status *ret,
                    json_t **ret_json, struct err *err);

/* Has the job ended? rc is the result of a request to a job that has answered before. */
bool commands_ended(const struct job_entry *job, int rc);

/* Milliseconds since 1970. */
int64_t commands_now(void);

#endif
