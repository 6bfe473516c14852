/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: opens one library in a child process and calls its functions there. Two copies of a library
 * are never in one process, and a library that hangs or crashes does not affect the others. Main
 * thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_ASK_H
#define HVD_DIAGNOSTICS_PROBER_ASK_H

#include <stddef.h>

/* Runs in the child. handle is the opened library; writes its findings with out_put(). */
typedef void ask_f(void *handle);

/* The child's output, and how it ended. */
struct ask {
    char text[8192]; /* its complete lines, NUL-terminated */
    size_t len;
};

/* Opens a library (name: a path or a soname) in a child and calls ask there. The lines of ret:
 * "loaded" with the file that the loader chose, or "error" with the loader's message; then the
 * lines of ask; then "state timeout" or "state crashed Segmentation fault" if the child did not
 * end properly within ms. */
void ask_library(struct ask *ret, const char *name, ask_f *ask, int ms);

/* Copies the value of a key to dst. Returns 1; 0: there is no such key. */
int ask_value(const struct ask *a, const char *key, char *dst, size_t size);

/* Prints all lines as "list.i.key value". */
void ask_print(const struct ask *a, const char *list, int i);

#endif
