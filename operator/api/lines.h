/* SPDX-License-Identifier: Apache-2.0
 *
 * lines: a watch's byte stream cut at its newlines, wherever it was split on the way. Pure. One
 * owner (informer.c), one thread.
 */
#ifndef HVD_OPERATOR_API_LINES_H
#define HVD_OPERATOR_API_LINES_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* An object has at most 1.5 MB in etcd; as JSON in an event it may be somewhat longer. */
#define LINES_MAX (4u << 20)

struct lines {
    struct buf rest; /* of a line whose end has not come */
};

/* One line without its newline; NUL-terminated it is not. Not 0 ends the feeding. */
typedef int lines_line_f(void *arg, const char *line, size_t len, struct err *err);

/* Calls line for each line that ends in these bytes; empty ones are left out. -EMSGSIZE: a line is
 * longer than LINES_MAX; -ENOMEM; or what line returned. Nothing may be fed after a failure. */
int lines_feed(struct lines *l, const char *bytes, size_t n, lines_line_f *line, void *arg,
               struct err *err);

/* What is left is forgotten: a torn line is worth nothing. Usable again. */
void lines_fini(struct lines *l);

#endif
