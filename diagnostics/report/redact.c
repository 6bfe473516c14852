/* SPDX-License-Identifier: Apache-2.0
 *
 * redact: see redact.h. One pass over the text; at each byte the values are tried first (by their
 * first byte), then the forms. What is found is replaced, and the pass goes on behind it.
 */
#include "diagnostics/report/redact.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"

#define VALUE_MIN  6  /* shorter values are words and numbers of their own right */
#define CUT_MIN    12 /* so much of the beginning of a value is the value, cut off */
#define NAME_LIMIT 128

struct value {
    char *text;
    size_t len;
    struct value *next; /* with the same first byte */
};

struct redact {
    struct value *values[256];
};

/* ---- names ---- */

static const char *const secret_words[] = {"TOKEN",      "SECRET", "PASSWORD",  "PASSWD",
                                           "PASSPHRASE", "KEY",    "CREDENTIAL"};
static const char *const secret_ends[] = {"PASS", "_PWD", "_AUTH", "COOKIE"};
static const char *const path_ends[] = {"_FILE", "_PATH", "_DIR"};

static bool holds(const char *name, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (strncasecmp(name + i, word, n) == 0)
            return true;
    return false;
}

static bool ends_with(const char *name, size_t len, const char *end)
{
    size_t n = strlen(end);
    return len >= n && strncasecmp(name + len - n, end, n) == 0;
}

bool redact_is_secret_name(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(path_ends) / sizeof(path_ends[0]); i++)
        if (ends_with(name, len, path_ends[i]))
            return false;
    for (size_t i = 0; i < sizeof(secret_words) / sizeof(secret_words[0]); i++)
        if (holds(name, len, secret_words[i]))
            return true;
    for (size_t i = 0; i < sizeof(secret_ends) / sizeof(secret_ends[0]); i++)
        if (ends_with(name, len, secret_ends[i]))
            return true;
    return false;
}

/* TOKENIZERS_PARALLELISM=false, KEEP_KEYS=1: no secret, whatever the name. */
static bool is_plain_value(const char *value, size_t len)
{
    static const char *const words[] = {"", "true", "false", "yes", "no", "on", "off", "none"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == len && strncasecmp(value, words[i], len) == 0)
            return true;
    size_t digits = 0;
    while (digits < len && isdigit((unsigned char)value[digits]))
        digits++;
    return digits == len && len < VALUE_MIN;
}

/* ---- values ---- */

static int add_value(struct redact *r, const char *text, size_t len)
{
    struct value **at = &r->values[(unsigned char)*text];
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

typedef const char *escape_f(char c);

static const char *escape_answer(char c)
{
    return c == '\n' ? "\\n" : c == '\\' ? "\\\\" : NULL;
}

static const char *escape_json(char c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

static const char *escape_xml(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    default:
        return NULL;
    }
}

static int add_escaped(struct redact *r, const char *text, size_t len, escape_f *escape)
{
    struct buf b = {0};
    for (size_t i = 0; i < len; i++) {
        const char *e = escape(text[i]);
        buf_put(&b, e ? e : &text[i], e ? strlen(e) : 1);
    }
    int rc = b.failed ? -ENOMEM : add_value(r, (const char *)b.data, b.len);
    buf_fini(&b);
    return rc;
}

static int add_variable(struct redact *r, const char *entry)
{
    size_t name = strcspn(entry, "=");
    const char *value = entry + name + 1;
    if (!entry[name] || !redact_is_secret_name(entry, name))
        return 0;
    size_t len = strlen(value);
    while (len && isspace((unsigned char)value[len - 1])) /* a summary has no blanks at its end */
        len--;
    if (len < VALUE_MIN || is_plain_value(value, len))
        return 0;
    int rc = add_value(r, value, len);
    escape_f *const escapes[] = {escape_answer, escape_json, escape_xml};
    for (size_t i = 0; rc == 0 && i < sizeof(escapes) / sizeof(escapes[0]); i++)
        rc = add_escaped(r, value, len, escapes[i]);
    return rc;
}

int redact_create(struct redact **ret, const struct machine *m)
{
    struct redact *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    const char *entry;
    int rc = 0;
    for (size_t i = 0; m && rc == 0 && (entry = machine_env_at(m, i)); i++)
        rc = add_variable(r, entry);
    if (rc < 0) {
        redact_destroy(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void redact_destroy(struct redact *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < 256; i++) {
        for (struct value *v = r->values[i], *next; v; v = next) {
            next = v->next;
            free(v->text);
            free(v);
        }
    }
    free(r);
}

/* ---- the pass: each finds out how many bytes are a secret (skip), behind how many that stay
 * (keep) ---- */

struct hit {
    size_t keep, skip;
};

static size_t common(const char *a, size_t alen, const char *b, size_t blen)
{
    size_t n = 0;
    while (n < alen && n < blen && a[n] == b[n])
        n++;
    return n;
}

static bool hit_value(const struct redact *r, const char *p, size_t left, struct hit *hit)
{
    *hit = (struct hit){0};
    for (const struct value *v = r->values[(unsigned char)*p]; v; v = v->next) {
        size_t n = common(p, left, v->text, v->len);
        /* Half an escape or half a character is not taken. */
        while (n < v->len && n > 0 &&
               (p[n - 1] == '\\' || (n < left && ((unsigned char)p[n] & 0xc0) == 0x80)))
            n--;
        /* Paths share their beginnings with other paths: all of it or nothing. */
        if ((n == v->len || (n >= CUT_MIN && *v->text != '/')) && n > hit->skip)
            hit->skip = n;
    }
    return hit->skip > 0;
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool is_value_end(char c)
{
    return c == '\0' || isspace((unsigned char)c) || c == '"' || c == '\'' || c == '&' ||
           c == ',' || c == ';' || c == '<' || c == ')';
}

static bool starts(const char *p, size_t left, const char *word)
{
    size_t n = strlen(word);
    return left >= n && strncasecmp(p, word, n) == 0;
}

/* The bytes of a quote at p, as it stands or as JSON and XML write it; 0: none. */
static size_t quote(const char *p, size_t left)
{
    static const char *const forms[] = {"\"", "'", "\\\"", "\\'", "&quot;", "&#39;"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (starts(p, left, forms[i]))
            return strlen(forms[i]);
    return 0;
}

/* Up to a blank, a quote or the like. Backslashes before a quote: the last of an odd number belongs
 * to it, as JSON writes it. */
static size_t value_length(const char *p, size_t left)
{
    size_t len = 0;
    while (len < left && !is_value_end(p[len]) && !starts(p + len, left - len, "&quot;")) {
        size_t run = 0;
        while (len + run < left && p[len + run] == '\\')
            run++;
        if (run == 0) {
            len++;
            continue;
        }
        bool quoted = len + run < left && (p[len + run] == '"' || p[len + run] == '\'');
        if (quoted && run % 2)
            return len + run - 1;
        len += run;
    }
    return len;
}

/* NAME=value, "NAME": "value"; p is the first byte of a name. */
static bool hit_assignment(const struct redact *r, const char *p, size_t left, struct hit *hit)
{
    size_t name = 0, at;
    while (name < left && name < NAME_LIMIT && is_name_char(p[name]))
        name++;
    at = name;
    if (at < left && p[at] == '=')
        at++;
    else if (starts(p + at, left - at, "\": \""))
        at += 4;
    else if (starts(p + at, left - at, "\":\""))
        at += 3;
    else
        return false;
    if (!redact_is_secret_name(p, name))
        return false;
    size_t opening = quote(p + at, left - at);
    /* NAME= at the end of a JSON string: its quote opens nothing. */
    if (opening == 1 && at + 1 < left && p[at] == '"' && p[at + 1] && strchr("}]:", p[at + 1]))
        return false;
    at += opening;
    size_t len = value_length(p + at, left - at);
    if (at < left && hit_value(r, p + at, left - at, hit) && hit->skip > len)
        len = hit->skip; /* it has a comma inside, or a blank */
    *hit = (struct hit){at, len};
    return len > 0 && !is_plain_value(p + at, len) && !starts(p + at, len, REDACTED);
}

/* ://user:password@ ; p is the colon. */
static bool hit_url(const char *p, size_t left, struct hit *hit)
{
    size_t colon = 0, i = 3;
    if (!starts(p, left, "://"))
        return false;
    for (; i < left && p[i] != '@'; i++) {
        if (p[i] == '\0' || isspace((unsigned char)p[i]) || strchr("/\"'<>\\", p[i]))
            return false;
        if (p[i] == ':' && !colon)
            colon = i;
    }
    if (i == left || !colon || colon + 1 == i)
        return false;
    *hit = (struct hit){colon + 1, i - colon - 1};
    return true;
}

static size_t span(const char *p, size_t left, const char *also)
{
    size_t n = 0;
    while (n < left && p[n] && (isalnum((unsigned char)p[n]) || strchr(also, p[n])))
        n++;
    return n;
}

static bool has_digit(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isdigit((unsigned char)p[i]))
            return true;
    return false;
}

static bool hit_bearer(const char *p, size_t left, struct hit *hit)
{
    const size_t head = strlen("bearer ");
    if (!starts(p, left, "bearer "))
        return false;
    size_t n = span(p + head, left - head, "._~+/=-");
    *hit = (struct hit){head, n};
    return n >= 20 || (n >= 8 && has_digit(p + head, n)); /* "a bearer credential" is English */
}

/* Tokens that say what they are; p is the beginning of a word. */
static bool hit_prefix(const char *p, size_t left, struct hit *hit)
{
    static const struct {
        const char *prefix;
        size_t least;
    } forms[] = {
        {"ghp_", 20},        {"gho_", 20},  {"ghs_", 20},   {"ghu_", 20},   {"ghr_", 20},
        {"github_pat_", 20}, {"hf_", 20},   {"glpat-", 16}, {"nvapi-", 20}, {"xoxb-", 16},
        {"xoxp-", 16},       {"xoxa-", 16}, {"eyJ", 30},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t n = strlen(forms[i].prefix);
        if (left < n || strncmp(p, forms[i].prefix, n) != 0)
            continue;
        *hit = (struct hit){0, span(p, left, "_.-")};
        return hit->skip >= n + forms[i].least;
    }
    if (left < 20 || (strncmp(p, "AKIA", 4) != 0 && strncmp(p, "ASIA", 4) != 0))
        return false;
    size_t n = 0;
    while (n < left && (isupper((unsigned char)p[n]) || isdigit((unsigned char)p[n])))
        n++;
    *hit = (struct hit){0, n};
    return n == 20;
}

static bool hit_form(const struct redact *r, const char *p, size_t left, bool word, struct hit *hit)
{
    if (*p == ':')
        return hit_url(p, left, hit);
    if (!word || !isalpha((unsigned char)*p))
        return word && *p == '_' && hit_assignment(r, p, left, hit);
    return hit_bearer(p, left, hit) || hit_prefix(p, left, hit) || hit_assignment(r, p, left, hit);
}

/* What a form keeps ("NAME=") may hold a value itself: that goes first. */
static void value_inside(const struct redact *r, const char *p, size_t left, struct hit *hit)
{
    struct hit inner;
    for (size_t j = 1; j < hit->keep; j++) {
        if (hit_value(r, p + j, left - j, &inner)) {
            *hit = (struct hit){j, inner.skip};
            return;
        }
    }
}

void redact_text(const struct redact *r, const char *text, size_t len, struct buf *out)
{
    size_t done = 0, i = 0;
    while (i < len) {
        struct hit hit;
        bool word = i == done || !is_name_char(text[i - 1]) || text[i - 1] == '-';
        if (hit_value(r, text + i, len - i, &hit) || hit_form(r, text + i, len - i, word, &hit)) {
            value_inside(r, text + i, len - i, &hit);
            buf_put(out, text + done, i + hit.keep - done);
            buf_put(out, REDACTED, strlen(REDACTED));
            i += hit.keep + hit.skip;
            done = i;
        } else {
            i++;
        }
    }
    buf_put(out, text + done, len - done);
}

void redact_buf(const struct redact *r, struct buf *b, size_t offset)
{
    struct buf clean = {0};
    redact_text(r, (const char *)b->data + offset, b->len - offset, &clean);
    b->len = offset;
    buf_put(b, clean.data, clean.len);
    b->failed |= clean.failed;
    buf_fini(&clean);
}
