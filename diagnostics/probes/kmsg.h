/* SPDX-License-Identifier: Apache-2.0
 *
 * kmsg: the two forms in which the kernel hands out its log, for the probe and its fuzzer. The text
 * is changed and stays the caller's. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBES_KMSG_H
#define HVD_DIAGNOSTICS_PROBES_KMSG_H

#include <stdbool.h>

/* A record of /dev/kmsg; a line of syslog(2). ret_at: seconds since boot, < 0 where it is not said.
 */
bool kmsg_record(char *record, const char **ret_text, double *ret_at);
bool kmsg_line(char *line, const char **ret_text, double *ret_at);

#endif
