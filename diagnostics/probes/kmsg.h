/* SPDX-License-Identifier: Apache-2.0
 *
 * kmsg: parses the two formats of the kernel's log, for the probe and its fuzzer. The functions
 * split the caller's text in place. Any thread.
 *
 * Keys of the answer "kmsg" (fails with EPERM or EACCES where the log may not be read):
 *   source        "/dev/kmsg" or "syslog(2)"
 *   lines         how many there were
 *   <list>_count  how many lines of that kind there were; lists: oom hung lockup xid
 *   <list>.N.line the newest 16 of them, oldest first, without time and level:
 *                 xid.0.line "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
 *   <list>.N.age_s seconds ago; absent where the log has no times
 */
#ifndef HVD_DIAGNOSTICS_PROBES_KMSG_H
#define HVD_DIAGNOSTICS_PROBES_KMSG_H

#include <stdbool.h>

/* Parse a record of /dev/kmsg, and a line of syslog(2). Return false when there is no text in it.
 * ret_at: seconds since boot, < 0 when the line has no time. */
bool kmsg_record(char *record, const char **ret_text, double *ret_at);
bool kmsg_line(char *line, const char **ret_text, double *ret_at);

#endif
