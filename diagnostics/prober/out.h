/* SPDX-License-Identifier: Apache-2.0
 *
 * out: writes lines "key value" to standard output, as diagnostics/answer.h reads them. Each line
 * is written at once, so that lines from before a hang or crash are not lost. Main thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_OUT_H
#define HVD_DIAGNOSTICS_PROBER_OUT_H

/* Writes a line. Newlines and backslashes in the value are escaped; a long value is cut. */
void out_put(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with the key "list.i.key". */
void out_at(const char *list, int i, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* From now on writes to fd instead of standard output: for a child whose parent reads a pipe. */
void out_to(int fd);

#endif
