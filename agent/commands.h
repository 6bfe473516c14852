/* SPDX-License-Identifier: Apache-2.0
 *
 * commands: hvdrun's commands for a running job: list, status, scale, drain, attach. All but attach
 * only send requests to the job's coordinator. Called by main_hvdrun.c.
 */
#ifndef HVD_AGENT_COMMANDS_H
#define HVD_AGENT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

/* Is word, the first of hvdrun's command line, a command? */
bool commands_is(const char *word);

/* Runs the command argv[0] and prints its result or error. Returns the exit code: 0: done; 1:
 * failed; 2: wrong usage. */
int commands_run(int argc, char **argv);

/* Prints the commands with their arguments for the help text, on standard output. */
void commands_help(void);

#endif
