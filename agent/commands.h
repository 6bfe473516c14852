/* SPDX-License-Identifier: Apache-2.0
 *
 * commands: what hvdrun does with a job that runs: list, status, scale, drain. They ask the job's
 * coordinator and change nothing by themselves. Called by main_hvdrun.c.
 */
#ifndef HVD_AGENT_COMMANDS_H
#define HVD_AGENT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

/* The first word of hvdrun's command line is one of them. */
bool commands_is(const char *word);

/* argv[0] is the command's word. Prints what it finds, or what went wrong: the exit code: 0 done, 1
 * not done, 2 wrong usage. */
int commands_run(int argc, char **argv);

/* The commands with their arguments, lines for the help text, to standard output. */
void commands_help(void);

#endif
