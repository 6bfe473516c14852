/* SPDX-License-Identifier: Apache-2.0
 *
 * list_parser: see list_parser.h.
 */
#include "operator/api/list_parser.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"

#define KEEP_MAX (64u << 10)

void list_parser_init(struct list_parser *c, list_parser_item_f *cb, void *arg)
{
    *c = (struct list_parser){.cb = cb, .arg = arg};
}

void list_parser_fini(struct list_parser *c)
{
    buf_fini(&c->item);
    buf_fini(&c->rest);
}

static int bad(const char *what, struct err *err)
{
    return err_set(err, EINVAL, "a list: %s", what);
}

static int put(struct buf *dst, const char *bytes, size_t n, size_t max, const char *what,
               struct err *err)
{
    if (n > max || dst->len > max - n)
        return err_set(err, EMSGSIZE, "a list: %s has more than %zu bytes", what, max);
    buf_put(dst, bytes, n);
    return dst->failed ? err_set(err, ENOMEM, "no memory for %s of a list", what) : 0;
}

/* Inside a string: true if ch is its closing quote. */
static bool string_ends(struct list_parser *c, char ch)
{
    if (c->escape)
        c->escape = false;
    else if (ch == '\\')
        c->escape = true;
    else if (ch == '"')
        c->string = false;
    return !c->string;
}

static bool at_items(const struct list_parser *c)
{
    return c->depth == 2 && c->value && !c->seen && c->key_len == 5 &&
           memcmp(c->key, "items", 5) == 0;
}

/* Consumes one byte outside the list "items". */
static int step_around(struct list_parser *c, char ch, struct err *err)
{
    bool key = c->depth == 1 && !c->value;
    if (c->string) {
        if (!string_ends(c, ch) && key) {
            if (c->key_len < sizeof(c->key))
                c->key[c->key_len] = ch;
            c->key_len++;
        }
        return 0;
    }
    switch (ch) {
    case '"':
        c->string = true;
        if (key)
            c->key_len = 0;
        break;
    case ':':
    case ',':
        if (c->depth == 1)
            c->value = ch == ':';
        break;
    case '{':
    case '[':
        c->depth++;
        if (ch == '[' && at_items(c)) {
            c->where = LIST_PARSER_ITEMS;
            c->seen = c->want = c->may_end = true;
        }
        break;
    case '}':
    case ']':
        if (--c->depth < 0)
            return bad("a bracket too many", err);
        break;
    default:
        break;
    }
    return 0;
}

/* Consumes one byte between items. */
static int step_items(struct list_parser *c, char ch, struct err *err)
{
    switch (ch) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        return 0;
    case ',':
        if (c->want)
            return bad("a comma before the first item or after another", err);
        c->want = true;
        c->may_end = false;
        return 0;
    case ']':
        if (!c->may_end)
            return bad("a comma after the last item", err);
        c->where = LIST_PARSER_AROUND;
        c->depth = 1;
        return put(&c->rest, "]", 1, LIST_PARSER_REST_MAX, "the part without the items", err);
    case '{':
        if (!c->want)
            return bad("no comma between items", err);
        c->where = LIST_PARSER_ITEM;
        c->depth = 0;
        c->want = c->may_end = false;
        return 0;
    default:
        return bad("an item is no object", err);
    }
}

/* Returns how many of the bytes belong to the current item. Sets where to LIST_PARSER_ITEMS when it
 * is complete. */
static size_t scan_item(struct list_parser *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char ch = bytes[i];
        if (c->string) {
            string_ends(c, ch);
        } else if (ch == '"') {
            c->string = true;
        } else if (ch == '{' || ch == '[') {
            c->depth++;
        } else if ((ch == '}' || ch == ']') && --c->depth == 0) {
            c->where = LIST_PARSER_ITEMS;
            c->may_end = true;
            return i + 1;
        }
    }
    return n;
}

static int feed_item(struct list_parser *c, const char *bytes, size_t n, struct err *err)
{
    int rc = 0;
    bool whole = c->where == LIST_PARSER_ITEMS;
    if (!whole || c->item.len > 0)
        rc = put(&c->item, bytes, n, LIST_PARSER_ITEM_MAX, "an item", err);
    if (rc < 0 || !whole)
        return rc;
    if (c->item.len > 0)
        rc = c->cb(c->arg, (const char *)c->item.data, c->item.len, err);
    else
        rc = c->cb(c->arg, bytes, n, err);
    if (c->item.cap > KEEP_MAX)
        buf_fini(&c->item);
    else
        buf_reset(&c->item);
    return rc;
}

int list_parser_feed(struct list_parser *c, const char *bytes, size_t n, struct err *err)
{
    int rc = 0;
    size_t i = 0, from = 0;
    while (i < n && rc == 0) {
        switch (c->where) {
        case LIST_PARSER_AROUND:
            for (from = i; i < n && rc == 0 && c->where == LIST_PARSER_AROUND; i++)
                rc = step_around(c, bytes[i], err);
            if (rc == 0)
                rc = put(&c->rest, bytes + from, i - from, LIST_PARSER_REST_MAX,
                         "the part without the items", err);
            break;
        case LIST_PARSER_ITEMS:
            rc = step_items(c, bytes[i], err);
            if (c->where != LIST_PARSER_ITEM) /* the closing bracket belongs to the item */
                i++;
            break;
        case LIST_PARSER_ITEM:
            from = i;
            i += scan_item(c, bytes + i, n - i);
            rc = feed_item(c, bytes + from, i - from, err);
            break;
        }
    }
    return rc;
}

int list_parser_finish(struct list_parser *c, struct page *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    const char *version = "", *next = "";
    if (c->where != LIST_PARSER_AROUND || c->depth != 0 || c->string || c->rest.len == 0)
        return bad(c->rest.len == 0 ? "it is empty" : "it ends too early", err);
    int rc = json_read((const char *)c->rest.data, c->rest.len, "a list", &j, err);
    if (rc == 0)
        rc = json_expect(j, "a list", err, "{s:{s:s, s?s}}", "metadata", "resourceVersion",
                         &version, "continue", &next);
    if (rc < 0)
        return rc;
    json_t *items = json_object_get(j, "items");
    if (c->seen ? json_array_size(items) > 0 : !json_is_null(items))
        return bad("it has no items, or has them twice", err);
    if (!*version || strlen(version) >= sizeof(ret->version) || strlen(next) >= sizeof(ret->next))
        return bad("resourceVersion or continue is empty or too long", err);
    snprintf(ret->version, sizeof(ret->version), "%s", version);
    snprintf(ret->next, sizeof(ret->next), "%s", next);
    return 0;
}
