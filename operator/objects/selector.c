/* SPDX-License-Identifier: Apache-2.0
 *
 * selector: see selector.h.
 */
#include "operator/objects/selector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "operator/objects/parts.h"

void selector_fini(struct selector *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->all[i].key);
        free(s->all[i].values);
    }
    free(s->all);
    *s = (struct selector){.n = 0};
}

/* Adds one requirement. False: no memory. */
static bool add(struct selector *s, enum selector_op op, const char *key, struct buf *values)
{
    struct requirement *r = &s->all[s->n];
    r->op = op;
    r->key = strdup(key);
    r->values = (char *)values->data;
    r->len = values->len;
    bool ok = r->key && !values->failed;
    s->n++;
    *values = (struct buf){.len = 0};
    return ok;
}

static void put(struct buf *values, json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        buf_put(values, text, strlen(text) + 1);
}

static enum selector_op op_of(const char *text)
{
    static const char *const names[SELECTOR_ANY] = {"In",           "NotIn", "Exists",
                                                    "DoesNotExist", "Gt",    "Lt"};
    for (int i = 0; i < SELECTOR_ANY; i++)
        if (strcmp(names[i], text) == 0)
            return (enum selector_op)i;
    return SELECTOR_ANY;
}

int selector_parse(json_t *j, struct selector *ret)
{
    json_t *labels = json_object_get(j, "matchLabels"), *value, *item;
    json_t *expressions = json_object_get(j, "matchExpressions");
    struct selector s = {.nothing = !j || json_is_null(j)};
    const char *key;
    bool ok = true;
    size_t i, k;
    s.all = calloc(json_object_size(labels) + json_array_size(expressions) + 1, sizeof(*s.all));
    if (!s.all)
        return -ENOMEM;
    json_object_foreach(labels, key, value)
    {
        struct buf values = {0};
        put(&values, value);
        ok &= add(&s, SELECTOR_IN, key, &values);
    }
    json_array_foreach(expressions, i, item)
    {
        struct buf values = {0};
        json_array_foreach(json_object_get(item, "values"), k, value)
        {
            put(&values, value);
        }
        ok &= add(&s, op_of(parts_text(item, "operator")), parts_text(item, "key"), &values);
    }
    if (!ok) {
        selector_fini(&s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

static bool has_value(const struct requirement *r, const char *value)
{
    for (const char *p = r->values; p && p < r->values + r->len; p += strlen(p) + 1)
        if (strcmp(p, value) == 0)
            return true;
    return false;
}

/* Both must be whole numbers, as the scheduler reads them. Returns their difference's sign; 0:
 * equal or no numbers. */
static int compare(const struct requirement *r, const char *value)
{
    char *end, *wanted_end;
    if (!value || r->len == 0 || !*value || !*r->values)
        return 0;
    errno = 0;
    long long have = strtoll(value, &end, 10), want = strtoll(r->values, &wanted_end, 10);
    if (errno || *end || *wanted_end)
        return 0;
    return (have > want) - (have < want);
}

static bool fulfilled(const struct requirement *r, const struct labels *labels)
{
    const char *value = labels_get(labels, r->key);
    switch (r->op) {
    case SELECTOR_IN:
        return value && has_value(r, value);
    case SELECTOR_NOT_IN:
        return !value || !has_value(r, value);
    case SELECTOR_EXISTS:
        return value;
    case SELECTOR_MISSING:
        return !value;
    case SELECTOR_GREATER:
        return compare(r, value) > 0;
    case SELECTOR_LESS:
        return compare(r, value) < 0;
    case SELECTOR_ANY:
        break;
    }
    return true;
}

bool selector_matches(const struct selector *s, const struct labels *labels,
                      bool (*known)(const char *key))
{
    if (s->nothing)
        return false;
    for (int i = 0; i < s->n; i++)
        if ((!known || known(s->all[i].key)) && !fulfilled(&s->all[i], labels))
            return false;
    return true;
}
