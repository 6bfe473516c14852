/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns_literal: the literal that every match of an expression contains, see patterns.h.
 *
 * Walks the top level of the expression. Groups, brackets and dots end a run; a character before
 * '?', '*' or '{' may be absent and does not belong to a run.
 */
#include <ctype.h>
#include <string.h>

#include "diagnostics/patterns.h"

struct run {
    char text[256];
    size_t len;
    char best[256];
    size_t best_len;
};

static void end_run(struct run *r)
{
    if (r->len > r->best_len) {
        memcpy(r->best, r->text, r->len);
        r->best_len = r->len;
    }
    r->len = 0;
}

static void add(struct run *r, char c)
{
    if (r->len < sizeof(r->text))
        r->text[r->len++] = (char)tolower((unsigned char)c);
}

/* Skips a bracket expression; p is behind '['. Returns the position behind it. */
static const char *skip_bracket(const char *p)
{
    if (*p == '^')
        p++;
    if (*p == ']')
        p++;
    while (*p && *p != ']') {
        if (p[0] == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
            const char *end = strstr(p + 2, (const char[]){p[1], ']', 0});
            if (!end)
                return p + strlen(p);
            p = end + 1;
        }
        p++;
    }
    return *p ? p + 1 : p;
}

/* Skips a group; p is behind '('. Returns the position behind it. */
static const char *skip_group(const char *p)
{
    int depth = 1;
    while (*p && depth > 0) {
        if (*p == '\\' && p[1]) {
            p += 2;
        } else if (*p == '[') {
            p = skip_bracket(p + 1);
        } else {
            depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
            p++;
        }
    }
    return p;
}

static const char *skip_count(const char *p)
{
    if (*p == '{')
        while (*p && *p++ != '}')
            ;
    else if (*p)
        p++;
    return p;
}

size_t patterns_literal(const char *regex, char *dst, size_t size)
{
    struct run r = {.len = 0};
    const char *p = regex;
    dst[0] = 0;
    while (*p) {
        char c = *p++;
        bool plain = false;
        if (c == '|')
            return 0;
        if (c == '[')
            p = skip_bracket(p);
        else if (c == '(')
            p = skip_group(p);
        else if (c == '\\' && *p)
            c = *p++, plain = true;
        else
            plain = !strchr(".^$*+?{)", c);
        bool optional = *p == '?' || *p == '*' || *p == '{';
        if (!plain || optional)
            end_run(&r);
        else
            add(&r, c);
        if (optional || *p == '+') {
            p = skip_count(p);
            end_run(&r);
        }
    }
    end_run(&r);
    size_t n = r.best_len < size - 1 ? r.best_len : size - 1;
    memcpy(dst, r.best, n);
    dst[n] = 0;
    return r.best_len;
}
