/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: see answer.h.
 */
#include "diagnostics/answer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 128

static const char *const state_names[] = {"ok", "timeout", "crashed", "failed", "absent"};

/* ---- writing ---- */

static void put_escaped(struct buf *out, const char *value)
{
    for (const char *s = value; *s; s++) {
        if (*s == '\n')
            buf_put(out, "\\n", 2);
        else if (*s == '\\')
            buf_put(out, "\\\\", 2);
        else
            buf_put(out, s, 1);
    }
    buf_put(out, "\n", 1);
}

static void put(struct buf *out, const char *key, const char *fmt, va_list ap)
{
    char value[4096];
    int n = vsnprintf(value, sizeof(value), fmt, ap);
    if (n < 0 || out->len + (size_t)n > ANSWER_MAX)
        return;
    buf_put(out, key, strlen(key));
    buf_put(out, " ", 1);
    put_escaped(out, value);
}

void answer_put(struct buf *out, const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(out, key, fmt, ap);
    va_end(ap);
}

void answer_put_at(struct buf *out, const char *list, int i, const char *key, const char *fmt, ...)
{
    char full[KEY_MAX];
    va_list ap;
    snprintf(full, sizeof(full), "%s.%d.%s", list, i, key);
    va_start(ap, fmt);
    put(out, full, fmt, ap);
    va_end(ap);
}

void answer_write(const struct answer *a, struct buf *out)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "state %s %d\n", state_names[a->state], a->detail);
    buf_put(out, line, (size_t)n);
    for (const char *p = a->text; a->text && p < a->text + a->len;) {
        const char *value = p + strlen(p) + 1;
        buf_put(out, p, strlen(p));
        buf_put(out, " ", 1);
        put_escaped(out, value);
        p = value + strlen(value) + 1;
    }
}

/* ---- reading ---- */

static bool parse_state(struct answer *a, const char *key, const char *value)
{
    char word[16];
    int detail = 0;
    if (strcmp(key, "state") != 0 || sscanf(value, "%15s %d", word, &detail) < 1)
        return false;
    for (size_t i = 0; i < sizeof(state_names) / sizeof(*state_names); i++) {
        if (strcmp(word, state_names[i]) == 0) {
            a->state = (enum answer_state)i;
            a->detail = detail;
            return true;
        }
    }
    return false;
}

/* Unescapes one line into "key\0value\0" at dst. Returns the bytes written, 0 for a line that is
 * not "key value". A NUL in the line ends the value. */
static size_t unescape(char *dst, const char *line, size_t len)
{
    const char *blank = memchr(line, ' ', len);
    size_t klen = blank ? (size_t)(blank - line) : 0, n;
    if (klen == 0 || klen >= KEY_MAX || memchr(line, '\0', klen))
        return 0;
    memmove(dst, line, klen);
    dst[klen] = '\0';
    n = klen + 1;
    for (size_t i = klen + 1; i < len && line[i]; i++) {
        char c = line[i];
        if (c == '\\' && i + 1 < len) {
            i++;
            c = line[i] == 'n' ? '\n' : line[i];
        }
        dst[n++] = c;
    }
    dst[n++] = '\0';
    return n;
}

void answer_parse(struct answer *ret, const char *text, size_t len)
{
    memset(ret, 0, sizeof(*ret));
    if (len > 2 * ANSWER_MAX)
        len = 2 * ANSWER_MAX;
    /* A last line without its newline needs one byte more. */
    ret->text = malloc(len + 2);
    if (!ret->text) {
        ret->state = ANSWER_FAILED;
        ret->detail = ENOMEM;
        return;
    }
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end ? (size_t)(end - (text + at)) : len - at;
        size_t n = unescape(ret->text + ret->len, text + at, line);
        const char *key = ret->text + ret->len;
        if (n && !(ret->len == 0 && parse_state(ret, key, key + strlen(key) + 1)))
            ret->len += n;
        at += line + 1;
    }
}

void answer_fini(struct answer *a)
{
    free(a->text);
    memset(a, 0, sizeof(*a));
}

const char *answer_str(const struct answer *a, const char *key, const char *def)
{
    if (!a || !a->text)
        return def;
    for (const char *p = a->text; p < a->text + a->len;) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, key) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return def;
}

int64_t answer_int(const struct answer *a, const char *key, int64_t def)
{
    const char *value = answer_str(a, key, NULL);
    char *end;
    if (!value)
        return def;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    return errno || end == value || *end ? def : n;
}

double answer_num(const struct answer *a, const char *key, double def)
{
    const char *value = answer_str(a, key, NULL);
    char *end;
    if (!value)
        return def;
    double x = strtod(value, &end);
    return end == value || *end ? def : x;
}

bool answer_has(const struct answer *a, const char *key)
{
    return answer_str(a, key, NULL) != NULL;
}

int answer_count(const struct answer *a, const char *list)
{
    size_t len = strlen(list);
    int n = 0;
    if (!a || !a->text)
        return 0;
    for (const char *p = a->text; p < a->text + a->len;) {
        const char *value = p + strlen(p) + 1;
        char *end;
        if (strncmp(p, list, len) == 0 && p[len] == '.') {
            long i = strtol(p + len + 1, &end, 10);
            if (end != p + len + 1 && *end == '.' && i == n)
                n++;
        }
        p = value + strlen(value) + 1;
    }
    return n;
}

const char *answer_str_at(const struct answer *a, const char *list, int i, const char *key,
                          const char *def)
{
    char full[KEY_MAX];
    snprintf(full, sizeof(full), "%s.%d.%s", list, i, key);
    return answer_str(a, full, def);
}

int64_t answer_int_at(const struct answer *a, const char *list, int i, const char *key, int64_t def)
{
    char full[KEY_MAX];
    snprintf(full, sizeof(full), "%s.%d.%s", list, i, key);
    return answer_int(a, full, def);
}

void answer_describe(const struct answer *a, char *dst, size_t size)
{
    switch (a->state) {
    case ANSWER_OK:
        snprintf(dst, size, "ok");
        return;
    case ANSWER_TIMEOUT:
        snprintf(dst, size, "timed out after %d ms", a->detail);
        return;
    case ANSWER_CRASHED:
        snprintf(dst, size, "crashed with SIG%s",
                 sigabbrev_np(a->detail) ? sigabbrev_np(a->detail) : "?");
        return;
    case ANSWER_FAILED:
        snprintf(dst, size, "failed: %s", strerror(a->detail));
        return;
    case ANSWER_ABSENT:
        snprintf(dst, size, "not asked");
        return;
    }
}
