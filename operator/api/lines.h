/* SPDX-License-Identifier: Apache-2.0
 *
 * lines: splits the byte stream of a watch into lines. Pure. One owner (informer.c), one thread.
 */
#ifndef HVD_OPERATOR_API_LINES_H
#define HVD_OPERATOR_API_LINES_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* Bytes. An object has at most 1.5 MB in etcd; its JSON may be longer. */
#define LINES_MAX (4u << 20)

struct lines {
    struct buf rest; /* the beginning of an incomplete line */
};

/* Gets one line without its newline, not NUL-terminated. A result other than 0 ends lines_feed().
 */
typedef int lines_line_f(void *arg, const char *line, size_t len, struct err *err);

/* Calls line for each line that ends within these bytes, except empty ones. -EMSGSIZE: a line is
 * longer than LINES_MAX; -ENOMEM; or the result of line. Must not be called again after a
 * failure. */
int lines_feed(struct lines *l, const char *bytes, size_t n, lines_line_f *line, void *arg,
               struct err *err);

/* Drops an incomplete line. l can be used again. */
void lines_fini(struct lines *l);

#endif
