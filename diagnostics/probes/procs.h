/* SPDX-License-Identifier: Apache-2.0
 *
 * procs: parses a line of /proc/PID/stat, for the probe and its fuzzer. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBES_PROCS_H
#define HVD_DIAGNOSTICS_PROBES_PROCS_H

#include <stdbool.h>

struct procs_stat {
    long pid, ppid;
    char state; /* R S D Z ... */
    unsigned long flags;
    char name[32]; /* printable */
};

/* Returns false when the text is not such a line. */
bool procs_stat_parse(const char *text, struct procs_stat *ret);

#endif
