/* SPDX-License-Identifier: Apache-2.0
 *
 * expand: see expand.h.
 */
#include "agent/expand.h"

#include <stddef.h>
#include <string.h>

#include "core/base/buf.h"

static const char *value_of(const char *name, size_t n, char *const *env)
{
    for (char *const *e = env; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

/* Appends what the reference at $ stands for. Returns the length of the reference. */
static size_t put_reference(struct buf *out, const char *at, char *const *env)
{
    if (at[1] == '$') {
        buf_put(out, "$", 1);
        return 2;
    }
    const char *end = at[1] == '(' ? strchr(at, ')') : NULL;
    const char *value = end ? value_of(at + 2, (size_t)(end - at) - 2, env) : NULL;
    if (!value) {
        size_t n = end ? (size_t)(end - at) + 1 : 1;
        buf_put(out, at, n);
        return n;
    }
    buf_put(out, value, strlen(value));
    return (size_t)(end - at) + 1;
}

char *expand(const char *text, char *const *env)
{
    struct buf out = {0};
    while (*text) {
        size_t n = strcspn(text, "$");
        buf_put(&out, text, n);
        text += n;
        if (*text)
            text += put_reference(&out, text, env);
    }
    buf_put(&out, "", 1);
    if (!out.failed)
        return (char *)out.data;
    buf_fini(&out);
    return NULL;
}
