/* SPDX-License-Identifier: Apache-2.0
 *
 * procs: a line of /proc/PID/stat, for the probe and its fuzzer. Any thread.
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

/* False when it is no such line. */
bool procs_stat_parse(const char *text, struct procs_stat *ret);

#endif
