/* SPDX-License-Identifier: Apache-2.0
 *
 * kmsg: the kernel's log for checks, and the two forms in which the kernel hands it out, for the
 * probe and its fuzzer. The text is changed and stays the caller's. Any thread.
 *
 * Keys of the answer "kmsg" (fails with EPERM or EACCES where the log may not be read):
 *   source        "/dev/kmsg" or "syslog(2)"
 *   lines         how many there were
 *   <list>_count  how many of that kind there were; lists: oom hung lockup xid
 *   <list>.N.line the newest 16 of them, oldest first, without time and level:
 *                 xid.0.line "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
 *   <list>.N.age_s seconds ago; absent where the log has no times
 */
#ifndef HVD_DIAGNOSTICS_PROBES_KMSG_H
#define HVD_DIAGNOSTICS_PROBES_KMSG_H

#include <stdbool.h>

/* A record of /dev/kmsg; a line of syslog(2). ret_at: seconds since boot, < 0 where it is not said.
 */
bool kmsg_record(char *record, const char **ret_text, double *ret_at);
bool kmsg_line(char *line, const char **ret_text, double *ret_at);

#endif
