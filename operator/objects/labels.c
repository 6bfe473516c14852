/* SPDX-License-Identifier: Apache-2.0
 *
 * labels: see labels.h.
 */
#include "operator/objects/labels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"

int labels_parse(json_t *j, struct labels *ret, struct err *err)
{
    struct buf text = {0};
    const char *name;
    json_t *value;
    if (j && !json_is_null(j) && !json_is_object(j))
        return err_set(err, EINVAL, "want a mapping of texts");
    json_object_foreach(j, name, value)
    {
        if (!*name || !json_is_string(value)) {
            buf_fini(&text);
            return err_set(err, EINVAL, "%.80s: want a name with a text", name);
        }
        buf_put(&text, name, strlen(name) + 1);
        buf_put(&text, json_string_value(value), strlen(json_string_value(value)) + 1);
    }
    if (text.len > 0)
        buf_put(&text, "", 1);
    if (text.failed) {
        buf_fini(&text);
        return err_set(err, ENOMEM, "no memory");
    }
    ret->text = (char *)text.data;
    return 0;
}

void labels_fini(struct labels *l)
{
    free(l->text);
    l->text = NULL;
}

/* Bytes of the text without its last NUL. */
static size_t length(const struct labels *l)
{
    const char *p = l->text;
    while (p && *p) {
        p += strlen(p) + 1; /* a value, which may be empty, follows each name */
        p += strlen(p) + 1;
    }
    return p ? (size_t)(p - l->text) : 0;
}

int labels_copy(const struct labels *l, struct labels *ret)
{
    size_t n = length(l);
    char *text = n > 0 ? malloc(n + 1) : NULL;
    if (n > 0 && !text)
        return -ENOMEM;
    if (text) {
        memcpy(text, l->text, n);
        text[n] = '\0';
    }
    ret->text = text;
    return 0;
}

const char *labels_get(const struct labels *l, const char *name)
{
    for (const char *p = l->text; p && *p;) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, name) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

bool labels_match(const struct labels *l, const struct labels *want, const char **ret_missing)
{
    *ret_missing = NULL;
    for (const char *p = want->text; p && *p;) {
        const char *value = p + strlen(p) + 1, *have = labels_get(l, p);
        if (!have || strcmp(have, value) != 0) {
            *ret_missing = p;
            return false;
        }
        p = value + strlen(value) + 1;
    }
    return true;
}
