/* wrong usage.
 */
#ifndef HVD_AGENT_COMMANDS_H
#define HVD_AGENT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

/* Is word, the first of hvdrun's command line, a command? */
bool commands_is(const char *word);

/* Runs the command argv[0] and prints its result or error. Returns the exit code: 0: done; 1:
 * failed; */
int commands_run(int argc, char **argv);

/* Prints the commands with their arguments for the help text, on standard output. */
void commands_help(void);

#endif
