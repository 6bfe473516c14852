/* SPDX-License-Identifier: Apache-2.0
 *
 * out: lines "key value" on standard output, as diagnostics/answer.h reads them. Each line leaves
 * at once: what was found before a library hangs or crashes is not lost. Main thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_OUT_H
#define HVD_DIAGNOSTICS_PROBER_OUT_H

/* Newlines and backslashes of the value are escaped; a long one is cut. */
void out_put(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The key "list.i.key". */
void out_at(const char *list, int i, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Into fd instead of standard output, from now on: for a child that its parent listens to. */
void out_to(int fd);

#endif
