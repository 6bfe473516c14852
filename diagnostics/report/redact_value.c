/* SPDX-License-Identifier: Apache-2.0
 *
 * redact_value: see redact_value.h. One matcher for all encodings: it knows the next byte of the
 * value, and tests whether the text has it in any encoding. Backslashes only encode characters, at
 * any depth of nesting, so they are skipped in the text and in the value.
 */
#include "diagnostics/report/redact_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CUT_MIN     12 /* a cut-off value is recognized by at least this many of its first bytes */
#define SLASHES_MAX 32 /* backslashes before a character: it was escaped up to five times */

struct value {
    char *text; /* without leading blanks and backslashes */
    size_t len;
    struct value *next; /* the next value with the same first byte */
};

static bool is_front(char c)
{
    return isspace((unsigned char)c) || c == '\\';
}

int values_add(struct values *values, const char *text, size_t len)
{
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    if (len < VALUE_MIN)
        return 0;
    while (len && is_front(*text))
        text++, len--;
    if (!len)
        return 0;
    struct value **at = &values->by_first[(unsigned char)*text];
    for (; *at; at = &(*at)->next)
        if ((*at)->len == len && memcmp((*at)->text, text, len) == 0)
            return 0;
    struct value *v = calloc(1, sizeof(*v));
    char *copy = malloc(len);
    if (!v || !copy) {
        free(v);
        free(copy);
        return -ENOMEM;
    }
    *v = (struct value){.text = memcpy(copy, text, len), .len = len};
    *at = v;
    return 0;
}

void values_fini(struct values *values)
{
    for (size_t i = 0; i < 256; i++) {
        for (struct value *v = values->by_first[i], *next; v; v = next) {
            next = v->next;
            free(v->text);
            free(v);
        }
        values->by_first[i] = NULL;
    }
}

/* ---- one character ---- */

/* Parses up to max digits at p; -1: none. */
static long digits(const char *p, size_t left, int base, size_t max, size_t *ret_n)
{
    long code = 0;
    size_t n = 0;
    for (; n < left && n < max; n++) {
        int c = tolower((unsigned char)p[n]);
        int d = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
        if (d >= base)
            break;
        code = code * base + d;
    }
    *ret_n = n;
    return n ? code : -1;
}

static size_t utf8(long code, char dst[4])
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6)
        dst[i] = (char)(0x80 | (code & 0x3f));
    dst[0] = (char)(heads[n] | code);
    return n;
}

struct shown {
    size_t used; /* bytes of text; 0: not an escape */
    char bytes[4];
    size_t n;
};

/* Decodes the 4 digits behind \u, or two such escapes for a character that needs a surrogate
 * pair. */
static struct shown shown_u(const char *p, size_t left)
{
    struct shown s = {0};
    size_t n, low_n, slashes = 0;
    long code = digits(p, left, 16, 4, &n);
    if (n != 4)
        return s;
    s.used = 4;
    if (code >= 0xd800 && code < 0xdc00) {
        while (4 + slashes < left && slashes < SLASHES_MAX && p[4 + slashes] == '\\')
            slashes++;
        size_t at = 4 + slashes + 1;
        long low = slashes && at < left ? digits(p + at, left - at, 16, 4, &low_n) : -1;
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            s.used = at + 4;
        }
    }
    s.n = utf8(code, s.bytes);
    return s;
}

/* Decodes the text behind a backslash. */
static struct shown shown_escape(const char *p, size_t left)
{
    static const char letters[] = "nrtbfave", bytes[] = "\n\r\t\b\f\a\v\033";
    const char *letter = left && *p ? strchr(letters, *p) : NULL;
    struct shown s = {0};
    size_t n;
    if (letter)
        return (struct shown){1, {bytes[letter - letters]}, 1};
    if (left && *p == 'u') {
        s = shown_u(p + 1, left - 1);
        s.used += s.used > 0;
    } else if (left && *p == 'x') {
        long code = digits(p + 1, left - 1, 16, 2, &n);
        if (n == 2)
            s = (struct shown){3, {(char)code}, 1};
    } else {
        long code = digits(p, left, 8, 3, &n);
        if (n == 3)
            s = (struct shown){3, {(char)code}, 1};
    }
    return s;
}

/* Decodes "&quot;", "&#39;" or "&#x27;"; p is at the ampersand. */
static struct shown shown_entity(const char *p, size_t left)
{
    static const struct {
        const char *name, byte;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    struct shown s = {0};
    size_t n;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t len = strlen(names[i].name);
        if (left >= len && strncasecmp(p, names[i].name, len) == 0)
            return (struct shown){len, {names[i].byte}, 1};
    }
    if (left < 4 || p[1] != '#')
        return s;
    size_t head = p[2] == 'x' || p[2] == 'X' ? 3 : 2;
    long code = digits(p + head, left - head, head == 3 ? 16 : 10, 7, &n);
    if (code > 0 && code < 0x110000 && head + n < left && p[head + n] == ';') {
        s.n = utf8(code, s.bytes);
        s.used = head + n + 1;
    }
    return s;
}

/* Decodes "%2F"; p is at the percent sign. */
static struct shown shown_percent(const char *p, size_t left)
{
    size_t n;
    long code = digits(p + 1, left - 1, 16, 2, &n);
    return n == 2 ? (struct shown){3, {(char)code}, 1} : (struct shown){0};
}

/* check_clean() and json_lossy_string() replace unprintable bytes by these characters. */
static bool stands_for(char c, unsigned char byte)
{
    return (c == ' ' && (byte < ' ' || byte == 0x7f)) || (c == '?' && byte >= 0x80);
}

/* How many bytes of v the text at p encodes, with the length of the encoding in *ret_used; 0: a
 * backslash alone, -1: other bytes. */
static int shows(const char *p, size_t left, const char *v, size_t vleft, size_t *ret_used)
{
    size_t slashes = 0;
    struct shown s = {0};
    while (slashes < left && slashes < SLASHES_MAX && p[slashes] == '\\')
        slashes++;
    p += slashes, left -= slashes;
    if (!left)
        return -1;
    if (slashes)
        s = shown_escape(p, left);
    else if (*p == '&')
        s = shown_entity(p, left);
    else if (*p == '%')
        s = shown_percent(p, left);
    if (s.used && s.n <= vleft && memcmp(s.bytes, v, s.n) == 0) {
        *ret_used = slashes + s.used;
        return (int)s.n;
    }
    if (*p == *v || stands_for(*p, (unsigned char)*v)) {
        *ret_used = slashes + 1;
        return 1;
    }
    *ret_used = slashes + s.used;
    return s.n == 1 && s.bytes[0] == '\\' ? 0 : -1;
}

/* ---- a value ---- */

static size_t value_at(const struct value *v, const char *p, size_t left)
{
    size_t i = 0, k = 0;
    while (k < v->len) {
        size_t used = 0;
        if (v->text[k] == '\\') {
            k++;
            continue;
        }
        int n = shows(p + i, left - i, v->text + k, v->len - k, &used);
        if (n < 0 || (n == 0 && k == 0))
            break;
        i += used;
        k += (size_t)n;
    }
    if (k == v->len && v->text[k - 1] == '\\')
        while (i < left && p[i] == '\\')
            i++;
    /* Paths share their beginnings with other paths: a cut-off path is not treated as the
     * secret. */
    return k == v->len || (k >= CUT_MIN && *v->text != '/') ? i : 0;
}

static size_t longest(const struct value *v, const char *p, size_t left)
{
    size_t most = 0;
    for (; v; v = v->next) {
        size_t n = value_at(v, p, left);
        most = n > most ? n : most;
    }
    return most;
}

size_t values_at(const struct values *values, const char *p, size_t left)
{
    if (!left)
        return 0;
    if (!strchr("\\&%?", *p) || !*p)
        return longest(values->by_first[(unsigned char)*p], p, left);
    size_t most = 0; /* any character may be written as such an escape */
    for (size_t i = 0; i < 256; i++) {
        size_t n = longest(values->by_first[i], p, left);
        most = n > most ? n : most;
    }
    return most;
}
