/* SPDX-License-Identifier: Apache-2.0
 *
 * redact: see redact.h. At each byte both matchers (known values, known forms) return the length of
 * a secret that begins there. All covered bytes are replaced, overlapping secrets by one mark. Each
 * byte is examined, whether or not an earlier secret covers it, so that the order of matches does
 * not matter.
 */
#include "diagnostics/report/redact.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "diagnostics/report/redact_form.h"
#include "diagnostics/report/redact_value.h"

struct redact {
    struct values values;
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

static int add_variable(struct redact *r, const char *entry)
{
    size_t name = strcspn(entry, "=");
    const char *value = entry + name + 1;
    if (!entry[name] || !redact_is_secret_name(entry, name) || form_is_plain(value, strlen(value)))
        return 0;
    return values_add(&r->values, value, strlen(value));
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
    values_fini(&r->values);
    free(r);
}

/* ---- the pass ---- */

/* A cut is widened to whole characters (of UTF-8, of an escape): half of one would make the text
 * invalid, as JSON for instance. */

static bool is_escaped(const char *text, size_t at)
{
    size_t n = 0;
    while (n < at && text[at - n - 1] == '\\')
        n++;
    return n % 2;
}

/* If position at is inside an escape, returns the position of its backslash, otherwise at. */
static size_t escape_start(const char *text, size_t at)
{
    if (is_escaped(text, at))
        return at - 1;
    for (size_t d = 0; d < 4 && d < at; d++) { /* in \uXXXX a u and up to three digits precede it */
        char c = text[at - d - 1];
        if (c == 'u' && is_escaped(text, at - d - 1))
            return at - d - 2;
        if (!isxdigit((unsigned char)c))
            break;
    }
    return at;
}

static size_t whole_start(const char *text, size_t at)
{
    for (int n = 0; n < 3 && at && utf8_inside((unsigned char)text[at]); n++)
        at--;
    return escape_start(text, at);
}

static size_t whole_end(const char *text, size_t len, size_t at)
{
    size_t start = escape_start(text, at);
    if (at < len && start < at) {
        bool u = text[start + 1] == 'u';
        at = at > start + 2 ? at : start + 2;
        while (u && at < len && at < start + 6 && isxdigit((unsigned char)text[at]))
            at++;
    }
    for (int n = 0; n < 3 && at < len && utf8_inside((unsigned char)text[at]); n++)
        at++;
    return at;
}

void redact_text(const struct redact *r, const char *text, size_t len, struct buf *out)
{
    size_t done = 0; /* text is written up to here; a covered stretch ends here */
    for (size_t i = 0; i < len; i++) {
        size_t value = values_at(&r->values, text + i, len - i);
        size_t form = form_at(text, len, i, done);
        if (!value && !form)
            continue;
        size_t from = whole_start(text, i), to = i + (value > form ? value : form);
        if (from >= done) {
            buf_put(out, text + done, from - done);
            buf_put(out, REDACTED, strlen(REDACTED));
        }
        to = whole_end(text, len, to);
        done = to > done ? to : done;
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

void redact_string(const struct redact *r, char *text, size_t size)
{
    struct buf clean = {0};
    redact_text(r, text, strlen(text), &clean);
    size_t n = clean.len < size ? clean.len : size - 1;
    while (n < clean.len && n && utf8_inside(clean.data[n]))
        n--;
    memcpy(text, clean.failed ? "" : (const char *)clean.data, clean.failed ? 0 : n);
    text[clean.failed ? 0 : n] = '\0';
    buf_fini(&clean);
}

/* ---- JSON ---- */

static json_t *clean_string(const struct redact *r, const char *text, size_t len)
{
    struct buf clean = {0};
    redact_text(r, text, len, &clean);
    json_t *j = clean.failed ? NULL : json_lossy_string((const char *)clean.data, clean.len);
    buf_fini(&clean);
    return j;
}

static json_t *clean_member(const struct redact *r, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && redact_is_secret_name(name, strlen(name)) &&
        !form_is_plain(text, json_string_length(value)))
        return json_string(REDACTED);
    return redact_json(r, value);
}

static json_t *clean_object(const struct redact *r, const json_t *j)
{
    json_t *clean = json_object(), *value;
    const char *name;
    json_object_foreach((json_t *)j, name, value)
    {
        auto_json json_t *key = clean_string(r, name, strlen(name));
        json_put(&clean, key ? json_string_value(key) : "", clean_member(r, name, value));
        if (!key)
            json_put(&clean, "", NULL);
    }
    return clean;
}

static json_t *clean_array(const struct redact *r, const json_t *j)
{
    json_t *clean = json_array(), *value;
    size_t i;
    json_array_foreach(j, i, value)
    {
        json_append(&clean, redact_json(r, value));
    }
    return clean;
}

json_t *redact_json(const struct redact *r, const json_t *j)
{
    if (!j)
        return NULL;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return clean_object(r, j);
    case JSON_ARRAY:
        return clean_array(r, j);
    case JSON_STRING:
        return clean_string(r, json_string_value(j), json_string_length(j));
    default:
        return json_deep_copy(j);
    }
}
