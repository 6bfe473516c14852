/* SPDX-License-Identifier: Apache-2.0
 *
 * lines: see lines.h.
 */
#include "operator/api/lines.h"

#include <string.h>

#define KEEP_MAX (64u << 10) /* bytes; a larger buffer is freed after its line */

static int keep(struct lines *l, const char *bytes, size_t n, struct err *err)
{
    if (n > LINES_MAX || l->rest.len > LINES_MAX - n)
        return err_set(err, EMSGSIZE, "a line of a watch has more than %u bytes", LINES_MAX);
    buf_put(&l->rest, bytes, n);
    return l->rest.failed ? err_set(err, ENOMEM, "no memory for a line of a watch") : 0;
}

static int hand_over(struct lines *l, const char *bytes, size_t n, lines_line_f *line, void *arg,
                     struct err *err)
{
    if (l->rest.len == 0)
        return n > 0 ? line(arg, bytes, n, err) : 0;
    int rc = keep(l, bytes, n, err);
    if (rc == 0)
        rc = line(arg, (const char *)l->rest.data, l->rest.len, err);
    if (l->rest.cap > KEEP_MAX)
        buf_fini(&l->rest);
    else
        buf_reset(&l->rest);
    return rc;
}

int lines_feed(struct lines *l, const char *bytes, size_t n, lines_line_f *line, void *arg,
               struct err *err)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        if (!end)
            return keep(l, bytes, n, err);
        size_t len = (size_t)(end - bytes);
        int rc = hand_over(l, bytes, len, line, arg, err);
        if (rc != 0)
            return rc;
        bytes += len + 1;
        n -= len + 1;
    }
    return 0;
}

void lines_fini(struct lines *l)
{
    buf_fini(&l->rest);
}
