/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: opens one library in a child of its own and asks it. Two copies of a library never meet in
 * one process, and one that hangs or crashes does not take the others along. Main thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_ASK_H
#define HVD_DIAGNOSTICS_PROBER_ASK_H

#include <stddef.h>

/* In the child: handle is the opened library; says what it finds with out_put(). */
typedef void ask_f(void *handle);

/* What the child said: lines, and how it ended. */
struct ask {
    char text[8192]; /* its lines, NUL-terminated, whole lines only */
    size_t len;
};

/* name: a path or a soname. The lines hold "loaded" (the real file that the loader took) or "error"
 * (what the loader says), then what ask says, then "state timeout" or "state crashed Segmentation
 * fault" when it
 * did not come back within ms. */
void ask_library(struct ask *ret, const char *name, ask_f *ask, int ms);

/* The value of a key in the lines, into dst; false where there is none. */
int ask_value(const struct ask *a, const char *key, char *dst, size_t size);

/* All lines as "list.i.key value" to the output. */
void ask_print(const struct ask *a, const char *list, int i);

#endif
