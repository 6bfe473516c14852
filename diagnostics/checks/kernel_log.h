/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_log: the answer "kmsg" (keys: probes/kmsg.h) for checks of all groups. Pure, any thread.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_KERNEL_LOG_H
#define HVD_DIAGNOSTICS_CHECKS_KERNEL_LOG_H

#include "diagnostics/check.h"

/* Gets the answer "kmsg". Returns false when the log could not be read; the result then says
 * what would allow it. */
bool kernel_log_read(const struct view *v, struct result *r, const struct answer **ret);

/* Returns how many lines a list has. ret_line: the newest one ("" without any); its age in
 * seconds, -1: unknown. */
int kernel_log_newest(const struct answer *a, const char *list, const char **ret_line,
                      int64_t *ret_age);

/* "12 min ago". Returns dst. */
char *kernel_log_age(char *dst, size_t size, int64_t seconds);

#endif
