/* SPDX-License-Identifier: Apache-2.0
 *
 * object: see object.h.
 *
 * Finds the bytes "managedFields" with both quotes. They are a member's name, and not part of a
 * string, if a brace or comma precedes them: inside a string the quote is escaped by a backslash.
 */
#include "operator/api/object.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"

static const char name[] = "\"managedFields\"";

#define NAME_LEN (sizeof(name) - 1)

static size_t skip_space(const char *text, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at;
}

/* The end of the string that begins at at, after its closing quote. len: it is not closed. */
static size_t skip_text(const char *text, size_t len, size_t at)
{
    for (at++; at < len && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < len ? at + 1 : len;
}

/* The end of the list that begins at at. len: it is not closed. */
static size_t skip_list(const char *text, size_t len, size_t at)
{
    int depth = 0;
    while (at < len) {
        char c = text[at];
        if (c == '"') {
            at = skip_text(text, len, at);
            continue;
        }
        at++;
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (depth == 0)
            return at;
    }
    return len;
}

/* A range of bytes to leave out. */
struct hole {
    size_t from, to;
};

/* *ret: the member whose name begins at at, with one adjacent comma. False: no such member. */
static bool is_hole(const char *text, size_t len, size_t at, struct hole *ret)
{
    size_t before = at;
    while (before > 0 && strchr(" \t\r\n", text[before - 1]) && text[before - 1])
        before--;
    char opens = before > 0 ? text[before - 1] : '\0';
    size_t colon = skip_space(text, len, at + NAME_LEN);
    size_t value = colon < len && text[colon] == ':' ? skip_space(text, len, colon + 1) : len;
    if ((opens != '{' && opens != ',') || value == len || text[value] != '[')
        return false;
    size_t end = skip_list(text, len, value), next = skip_space(text, len, end);
    if (next == len)
        return false;
    if (text[next] == ',')
        *ret = (struct hole){at, next + 1};
    else
        *ret = (struct hole){opens == ',' ? before - 1 : at, end};
    return true;
}

static bool find_hole(const char *text, size_t len, size_t from, struct hole *ret)
{
    const char *end = text + len, *at = text + from;
    while (at < end && (at = memmem(at, (size_t)(end - at), name, NAME_LEN))) {
        if (is_hole(text, len, (size_t)(at - text), ret) && ret->from >= from)
            return true;
        at += NAME_LEN;
    }
    return false;
}

size_t object_prune(const char *text, size_t len, char *dst)
{
    struct hole hole;
    size_t from = 0, n = 0;
    while (find_hole(text, len, from, &hole)) {
        memcpy(dst + n, text + from, hole.from - from);
        n += hole.from - from;
        from = hole.to;
    }
    memcpy(dst + n, text + from, len - from);
    return n + len - from;
}

int object_read(const char *text, size_t len, const char *what, json_t **ret, const char **ret_why,
                struct err *err)
{
    auto_free char *pruned = malloc(len + 1);
    if (!pruned)
        return err_set(err, ENOMEM, "%s: no memory", what);
    return sanitize_read(pruned, object_prune(text, len, pruned), what, ret, ret_why, err);
}
