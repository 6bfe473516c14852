/* SPDX-License-Identifier: Apache-2.0
 *
 * redact_form: see redact_form.h. Each form is tested at the first byte of a possible secret, and
 * looks back for the text that announces it. So text that is not a secret cannot hide a secret
 * behind it.
 */
#include "diagnostics/report/redact_form.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "diagnostics/report/redact.h"
#include "diagnostics/report/redact_value.h"

#define NAME_LIMIT 128  /* bytes; the end of a longer name is enough to classify it */
#define USER_LIMIT 256  /* bytes of the user name in a URL */
#define PASS_LIMIT 1024 /* bytes of the password in a URL */
#define BLANKS     16   /* blanks around the colon of JSON */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool starts(const char *p, size_t left, const char *word)
{
    size_t n = strlen(word);
    return left >= n && strncasecmp(p, word, n) == 0;
}

/* Returns whether text[..end) ends with word. */
static bool ends(const char *text, size_t end, const char *word)
{
    size_t n = strlen(word);
    return end >= n && strncasecmp(text + end - n, word, n) == 0;
}

static size_t slashes_before(const char *text, size_t end)
{
    size_t n = 0;
    while (n < end && text[end - n - 1] == '\\')
        n++;
    return n;
}

/* ---- quotes --------------------------------------------------------------------------------- */

/* A quote as it is written: plain, behind backslashes (JSON inside JSON), or as an XML entity. */
struct quote {
    char c;             /* '"' or '\''; 0: an entity */
    const char *entity; /* NULL: none */
    size_t slashes, len;
};

static bool quote_before(const char *text, size_t end, struct quote *ret)
{
    static const char *const entities[] = {"&quot;", "&#34;", "&apos;", "&#39;"};
    char c = end ? text[end - 1] : '\0';
    if (c == '"' || c == '\'') {
        size_t n = slashes_before(text, end - 1);
        *ret = (struct quote){.c = c, .slashes = n, .len = n + 1};
        return true;
    }
    for (size_t i = 0; c == ';' && i < sizeof(entities) / sizeof(entities[0]); i++) {
        if (!ends(text, end, entities[i]))
            continue;
        *ret = (struct quote){.entity = entities[i], .len = strlen(entities[i])};
        return true;
    }
    return false;
}

/* A text that was opened by a quote behind k backslashes contains a quote behind n. Returns how
 * many of those backslashes belong to the quote if it closes that text or an enclosing one; -1:
 * the quote is inside the text. Nesting a text in a text doubles its backslashes and adds one. */
static long closing_slashes(size_t k, size_t n)
{
    long shift = 0;
    for (; n % 2; k = (k - 1) / 2, n = (n - 1) / 2, shift++) {
        if (k == 0)
            return -1;
    }
    return (1L << shift) - 1;
}

/* The length up to the closing quote in the same line; -1: there is none. */
static long quoted_length(const char *p, size_t left, const struct quote *q)
{
    size_t slashes = 0;
    for (size_t i = 0; i < left && p[i] != '\n' && p[i] != '\0'; i++) {
        if (q->entity && p[i] == '&' && starts(p + i, left - i, q->entity))
            return (long)i;
        if (!q->entity && p[i] == q->c) {
            long own = closing_slashes(q->slashes, slashes);
            if (own >= 0)
                return (long)i - own;
        }
        slashes = p[i] == '\\' ? slashes + 1 : 0;
    }
    return -1;
}

/* ---- NAME=value ----------------------------------------------------------------------------- */

static bool is_value_end(char c)
{
    return c == '\0' || isspace((unsigned char)c) || c == '"' || c == '\'' || c == '&' ||
           c == ',' || c == ';' || c == '<' || c == ')';
}

/* The end of a value without quotes: a blank, a quote or similar. Of backslashes before a quote,
 * the last of an odd number belongs to the quote. from: the bytes before it are covered already,
 * so that KEY=KEY=KEY=... is scanned only once. */
static size_t bare_end(const char *text, size_t len, size_t from)
{
    size_t n = from;
    while (n < len && !is_value_end(text[n]))
        n++;
    if (n > from && n < len && (text[n] == '"' || text[n] == '\''))
        n -= slashes_before(text, n) % 2;
    return n;
}

/* Returns whether n bytes at p are only punctuation of JSON, and no value: in {"a": "KEY=", "b": 1}
 * the quote behind KEY= does not open a value. */
static bool is_punctuation(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t,:{}[]", p[i]) || !p[i])
            return false;
    return true;
}

bool form_is_plain(const char *value, size_t len)
{
    static const char *const words[] = {"", "true", "false", "yes", "no", "on", "off", "none"};
    size_t digits = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == len && strncasecmp(value, words[i], len) == 0)
            return true;
    while (digits < len && isdigit((unsigned char)value[digits]))
        digits++;
    return digits == len && len < VALUE_MIN;
}

static size_t skip_blanks(const char *text, size_t end)
{
    for (int n = 0; n < BLANKS && end && (text[end - 1] == ' ' || text[end - 1] == '\t'); n++)
        end--;
    return end;
}

/* Returns whether the name of a secret ends at end. */
static bool secret_name_before(const char *text, size_t end)
{
    size_t n = 0;
    while (n < end && n < NAME_LIMIT && is_name_char(text[end - n - 1]))
        n++;
    return n && redact_is_secret_name(text + end - n, n);
}

/* Returns whether a quoted secret name and a colon ("NAME": ) end at end. */
static bool member_before(const char *text, size_t end)
{
    struct quote q;
    end = skip_blanks(text, end);
    if (!end || text[end - 1] != ':')
        return false;
    end = skip_blanks(text, end - 1);
    return quote_before(text, end, &q) && secret_name_before(text, end - q.len);
}

static size_t assigned_at(const char *text, size_t len, size_t i, size_t hidden)
{
    struct quote q;
    long n = -1;
    if (quote_before(text, i, &q)) {
        size_t end = i - q.len;
        bool equals = end && text[end - 1] == '=' && secret_name_before(text, end - 1);
        if (!equals && !member_before(text, end))
            return 0;
        n = quoted_length(text + i, len - i, &q);
    } else if (!i || text[i - 1] != '=' || !secret_name_before(text, i - 1)) {
        return 0;
    }
    size_t length = n < 0 ? bare_end(text, len, i > hidden ? i : hidden) - i : (size_t)n;
    return form_is_plain(text + i, length) || is_punctuation(text + i, length) ? 0 : length;
}

/* ---- the others ----------------------------------------------------------------------------- */

/* Returns whether "://user:" ends at end. */
static bool user_before(const char *text, size_t end)
{
    if (!end || text[end - 1] != ':')
        return false;
    for (size_t n = 1; n < end && n < USER_LIMIT; n++) {
        char c = text[end - n - 1];
        if (c == '/')
            return ends(text, end - n, "://");
        if (c == '\0' || isspace((unsigned char)c) || strchr(":@\"'<>\\", c))
            return false;
    }
    return false;
}

/* The length of the password in ://user:password@ at i, up to the last @ before the host. A port
 * is not a password. */
static size_t password_at(const char *text, size_t len, size_t i)
{
    size_t at = i;
    bool port = true;
    if (!user_before(text, i))
        return 0;
    for (size_t k = i; k < len && k - i < PASS_LIMIT; k++) {
        char c = text[k];
        if (c == '\0' || isspace((unsigned char)c) || strchr("\"'<>\\", c))
            break;
        if (strchr("/?#", c) && (at > i || port))
            break;
        if (c == '@')
            at = k;
        port = port && isdigit((unsigned char)c);
    }
    return at - i;
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

static size_t bearer_at(const char *text, size_t len, size_t i)
{
    if (!ends(text, i, "bearer "))
        return 0;
    size_t n = span(text + i, len - i, "._~+/=-");
    bool token =
        n >= 20 ||
        (n >= 8 &&
         has_digit(text + i,
                   n)); /* a short word must have a digit: "a bearer credential" is English */
    return token ? n : 0;
}

/* Returns whether a word begins at i, also directly behind an escape ("\n", or \u and four
 * digits). */
static bool is_word(const char *text, size_t i)
{
    return i == 0 || !is_name_char(text[i - 1]) || text[i - 1] == '-' ||
           (i >= 2 && text[i - 2] == '\\') ||
           (i >= 6 && text[i - 6] == '\\' && tolower((unsigned char)text[i - 5]) == 'u');
}

/* The length of a token with a well-known prefix. */
static size_t prefixed(const char *p, size_t left)
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
        size_t head = strlen(forms[i].prefix);
        if (left < head || memcmp(p, forms[i].prefix, head) != 0)
            continue;
        size_t n = span(p, left, "_.-");
        return n >= head + forms[i].least ? n : 0;
    }
    if (left < 20 || (memcmp(p, "AKIA", 4) != 0 && memcmp(p, "ASIA", 4) != 0))
        return 0;
    size_t n = 0;
    while (n < left && (isupper((unsigned char)p[n]) || isdigit((unsigned char)p[n])))
        n++;
    return n == 20 ? n : 0;
}

size_t form_at(const char *text, size_t len, size_t i, size_t hidden)
{
    char before = i ? text[i - 1] : '\0';
    size_t n = 0;
    if (before == '=' || before == '"' || before == '\'' || before == ';')
        n = assigned_at(text, len, i, hidden);
    else if (before == ':')
        n = password_at(text, len, i);
    else if (before == ' ')
        n = bearer_at(text, len, i);
    if (n == 0 && isalpha((unsigned char)text[i]) && (i == hidden || is_word(text, i)))
        n = prefixed(text + i, len - i);
    return n;
}
