/* SPDX-License-Identifier: Apache-2.0
 *
 * sanitize: see sanitize.h.
 */
#include "operator/objects/sanitize.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/json/json.h"

#define MARK       "hvd.dev/sanitized" /* no field of an object has such a name */
#define DIGITS_MAX 18

struct sanitizing {
    const char *at, *end;
    struct buf *dst;
    int depth;
    const char *why;
};

static void put(struct sanitizing *t, const char *bytes, size_t n)
{
    if (t->depth <= SANITIZE_DEPTH)
        buf_put(t->dst, bytes, n);
}

/* Copies a string, from its opening to its closing quote. */
static void take_string(struct sanitizing *t)
{
    put(t, t->at++, 1);
    while (t->at < t->end && *t->at != '"') {
        size_t n = *t->at == '\\' && t->end - t->at > 1 ? 2 : 1;
        if (t->end - t->at >= 6 && memcmp(t->at, "\\u0000", 6) == 0) {
            put(t, "\\ufffd", 6);
            t->why = "the character U+0000";
            t->at += 6;
            continue;
        }
        put(t, t->at, n);
        t->at += n;
    }
    if (t->at < t->end)
        put(t, t->at++, 1);
}

static void take_number(struct sanitizing *t)
{
    const char *from = t->at;
    bool real = false;
    while (t->at < t->end && *t->at && strchr("+-.0123456789eE", *t->at)) {
        real |= *t->at == '.' || *t->at == 'e' || *t->at == 'E';
        t->at++;
    }
    put(t, from, (size_t)(t->at - from));
    if (real || t->at - from - (*from == '-') <= DIGITS_MAX)
        return;
    put(t, "e0", 2);
    t->why = "an integer of more than 18 digits";
}

static void take_bracket(struct sanitizing *t)
{
    bool opens = *t->at == '{' || *t->at == '[';
    if (opens && ++t->depth == SANITIZE_DEPTH + 1) {
        buf_put(t->dst, "null", 4);
        t->why = "more than 500 lists or mappings within each other";
    }
    put(t, t->at++, 1);
    t->depth -= !opens;
}

int sanitize(const char *text, size_t len, struct buf *dst, const char **ret_why)
{
    struct sanitizing t = {.at = text, .end = text + len, .dst = dst};
    while (t.at < t.end) {
        if (*t.at == '"')
            take_string(&t);
        else if (*t.at == '-' || (*t.at >= '0' && *t.at <= '9'))
            take_number(&t);
        else if (*t.at && strchr("{}[]", *t.at))
            take_bracket(&t);
        else
            put(&t, t.at++, 1);
    }
    *ret_why = t.why;
    return dst->failed ? -ENOMEM : 0;
}

int sanitize_read(const char *text, size_t len, const char *what, json_t **ret,
                  const char **ret_why, struct err *err)
{
    struct buf other = {0};
    const char *why = NULL;
    *ret_why = NULL;
    int rc = json_read(text, len, what, ret, err);
    if (rc != -EINVAL)
        return rc;
    if (sanitize(text, len, &other, &why) < 0)
        rc = err_set(err, ENOMEM, "%s: no memory", what);
    else if (why)
        rc = json_read((const char *)other.data, other.len, what, ret, err);
    if (rc == 0)
        *ret_why = why;
    buf_fini(&other);
    return rc;
}

int sanitize_mark(json_t *object, const char *why)
{
    return !why || json_object_set_new(object, MARK, json_string(why)) == 0 ? 0 : -ENOMEM;
}

const char *sanitize_reason(json_t *object)
{
    return json_string_value(json_object_get(object, MARK));
}
