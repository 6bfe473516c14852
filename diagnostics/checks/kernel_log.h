/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_log: the answer "kmsg" (keys: probes/kmsg.h) for checks of all groups. Pure, any thread.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_KERNEL_LOG_H
#define HVD_DIAGNOSTICS_CHECKS_KERNEL_LOG_H

#include "diagnostics/check.h"

/* The answer; false: there is none, and the result says what would grant it. */
bool kernel_log_read(const struct view *v, struct result *r, const struct answer **ret);

/* How many lines of a list there were; the newest ("" when there is none) and its age in seconds
 * (-1: unknown). */
int kernel_log_newest(const struct answer *a, const char *list, const char **ret_line,
                      int64_t *ret_age);

/* "12 min ago". Returns dst. */
char *kernel_log_age(char *dst, size_t size, int64_t seconds);

#endif
