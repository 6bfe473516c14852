/* SPDX-License-Identifier: Apache-2.0
 *
 * compare: see compare.h.
 */
#include "diagnostics/cli/compare.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/report/json.h"
#include "diagnostics/report/text.h"

#define CHECKS_MAX 4096

/* ---- reading -------------------------------------------------------------------------------- */

static int check_rank(const char *status)
{
    for (int s = CHECK_PASS; s <= CHECK_ERROR; s++) {
        if (strcmp(check_status_name((enum check_status)s), status) == 0)
            return s;
    }
    return -1;
}

static int read_row(json_t *row, size_t i, const char *name, struct err *err)
{
    const char *id, *code, *group, *status, *summary, *observed;
    int rc =
        json_expect(row, "check", err, "{s:s, s:s, s:s, s:s, s:s, s:s}", "id", &id, "code", &code,
                    "group", &group, "status", &status, "summary", &summary, "observed", &observed);
    if (rc < 0)
        return err_prefix(err, "%s: checks[%zu]", name, i);
    if (check_rank(status) < 0)
        return err_set(err, EINVAL, "%s: checks[%zu]: status: \"%.40s\"", name, i, status);
    return 0;
}

int compare_read(const char *text, size_t len, const char *name, json_t **ret, struct err *err)
{
    auto_json json_t *j = NULL;
    const char *schema = NULL, *host, *when, *version, *verdict;
    json_t *checks, *setting, *row;
    size_t i;
    int rc = json_read(text, len, name, &j, err);
    if (rc < 0)
        return rc;
    json_unpack(j, "{s:s}", "schema", &schema);
    if (!schema || strcmp(schema, REPORT_SCHEMA) != 0)
        return err_set(err, EINVAL, "%s: schema: want \"" REPORT_SCHEMA "\" (hvd-doctor --json)",
                       name);
    rc = json_expect(j, name, err, "{s:s, s:s, s:s, s:s, s:o, s:o}", "host", &host, "time", &when,
                     "version", &version, "verdict", &verdict, "setting", &setting, "checks",
                     &checks);
    if (rc < 0)
        return rc;
    if (!json_is_array(checks) || !json_is_object(setting))
        return err_set(err, EINVAL, "%s: %s: wrong type", name,
                       json_is_array(checks) ? "setting" : "checks");
    if (json_array_size(checks) > CHECKS_MAX)
        return err_set(err, EINVAL, "%s: checks: more than %d", name, CHECKS_MAX);
    json_array_foreach(checks, i, row)
    {
        rc = read_row(row, i, name, err);
        if (rc < 0)
            return rc;
    }
    *ret = TAKE(j);
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static const char *word(const json_t *row, const char *field)
{
    return json_string_value(json_object_get(row, field));
}

static json_t *find(json_t *report, const char *id)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(report, "checks"), i, row)
    {
        if (strcmp(word(row, "id"), id) == 0)
            return row;
    }
    return NULL;
}

/* How bad a status is for a job, to tell better from worse: 0 pass, info and skip, 1 warn, 2 fail
 * and error. */
static int badness(int status)
{
    return status == CHECK_WARN ? 1 : status == CHECK_FAIL || status == CHECK_ERROR ? 2 : 0;
}

static const char *change_of(const json_t *a, const json_t *b)
{
    if (!b)
        return strcmp(word(a, "status"), "skip") == 0 ? NULL : "only-a";
    if (!a)
        return strcmp(word(b, "status"), "skip") == 0 ? NULL : "only-b";
    int sa = check_rank(word(a, "status")), sb = check_rank(word(b, "status"));
    if (badness(sa) != badness(sb))
        return badness(sb) > badness(sa) ? "worse" : "better";
    if (sa != sb)
        return "status";
    return strcmp(word(a, "observed"), word(b, "observed")) != 0 ? "observed" : NULL;
}

static json_t *side(json_t *row)
{
    return row ? json_pack("{s:O, s:O, s:O}", "status", json_object_get(row, "status"), "summary",
                           json_object_get(row, "summary"), "observed",
                           json_object_get(row, "observed"))
               : json_null();
}

static void add_change(json_t *changes, json_t *a, json_t *b)
{
    const char *change = change_of(a, b);
    json_t *row = a ? a : b;
    if (change)
        json_array_append_new(changes, json_pack("{s:O, s:O, s:O, s:s, s:o, s:o}", "id",
                                                 json_object_get(row, "id"), "code",
                                                 json_object_get(row, "code"), "group",
                                                 json_object_get(row, "group"), "change", change,
                                                 "a", side(a), "b", side(b)));
}

static json_t *changes_of(json_t *a, json_t *b)
{
    json_t *changes = json_array(), *row;
    size_t i;
    json_array_foreach(json_object_get(a, "checks"), i, row)
    {
        add_change(changes, row, find(b, word(row, "id")));
    }
    json_array_foreach(json_object_get(b, "checks"), i, row)
    {
        if (!find(a, word(row, "id")))
            add_change(changes, NULL, row);
    }
    return changes;
}

/* Differences between the two settings: they explain other differences. */
static json_t *settings_of(json_t *a, json_t *b)
{
    json_t *list = json_array(), *sa = json_object_get(a, "setting"), *value;
    json_t *sb = json_object_get(b, "setting");
    const char *name;
    json_object_foreach(sa, name, value)
    {
        json_t *other = json_object_get(sb, name);
        if (other && !json_equal(value, other))
            json_array_append_new(
                list, json_pack("{s:s, s:O, s:O}", "name", name, "a", value, "b", other));
    }
    return list;
}

static json_t *who(json_t *report)
{
    return json_pack("{s:O, s:O, s:O, s:O}", "host", json_object_get(report, "host"), "time",
                     json_object_get(report, "time"), "version", json_object_get(report, "version"),
                     "verdict", json_object_get(report, "verdict"));
}

static int count(json_t *changes, const char *a, const char *b)
{
    json_t *row;
    size_t i;
    int n = 0;
    json_array_foreach(changes, i, row)
    {
        const char *change = word(row, "change");
        n += strcmp(change, a) == 0 || strcmp(change, b) == 0;
    }
    return n;
}

/* "2 worse, 1 better, 3 with another value, 1 in one report only" */
static void summarize(json_t *changes, struct buf *out)
{
    static const struct {
        const char *a, *b, *text;
    } parts[] = {{"worse", "worse", "worse"},
                 {"better", "better", "better"},
                 {"status", "status", "with another status"},
                 {"observed", "observed", "with another value"},
                 {"only-a", "only-b", "in one report only"}};
    size_t start = out->len;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        int n = count(changes, parts[i].a, parts[i].b);
        if (n)
            text_put(out, "%s%d %s", out->len > start ? ", " : "", n, parts[i].text);
    }
    if (out->len == start)
        text_put(out, "no difference");
}

json_t *compare_reports(json_t *a, json_t *b)
{
    struct buf line = {0};
    json_t *changes = changes_of(a, b), *settings = settings_of(a, b);
    summarize(changes, &line);
    json_t *diff = json_pack("{s:s, s:o, s:o, s:b, s:o, s:o, s:o}", "schema", "hvd-doctor-diff/1",
                             "a", who(a), "b", who(b), "equal", json_array_size(changes) == 0,
                             "summary", json_lossy_string((const char *)line.data, line.len),
                             "setting", settings, "changes", changes);
    buf_fini(&line);
    return diff;
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *color_of(const char *change)
{
    return strcmp(change, "worse") == 0    ? "\033[1;31m"
           : strcmp(change, "better") == 0 ? "\033[1;32m"
                                           : "";
}

/* printf of one line that makes its text printable: a report may hold anything, and a terminal
 * interprets escape sequences. */
static void put(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct buf *out, const char *fmt, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    check_clean(line);
    text_put(out, "%s\n", line);
}

static void put_side(const json_t *row, const char *name, struct buf *out)
{
    json_t *s = json_object_get(row, name);
    if (json_is_object(s))
        put(out, "  %s  %-6s %s", name, word(s, "status"), word(s, "summary"));
    else
        text_put(out, "  %s  not in that report\n", name);
}

static void put_who(json_t *diff, const char *name, struct buf *out)
{
    json_t *w = json_object_get(diff, name);
    put(out, "%s: %s, %s, hvd-doctor %s: %s", name, word(w, "host"), word(w, "time"),
        word(w, "version"), word(w, "verdict"));
}

static void put_setting(json_t *diff, struct buf *out)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(diff, "setting"), i, row)
    {
        auto_free char *a = json_dumps(json_object_get(row, "a"), JSON_ENCODE_ANY | JSON_COMPACT);
        auto_free char *b = json_dumps(json_object_get(row, "b"), JSON_ENCODE_ANY | JSON_COMPACT);
        put(out, "the two reports are for different settings: %s: %s, %s", word(row, "name"),
            a ? a : "?", b ? b : "?");
    }
}

void compare_text(json_t *diff, bool color, bool quiet, struct buf *out)
{
    json_t *row;
    size_t i;
    if (!quiet) {
        put_who(diff, "a", out);
        put_who(diff, "b", out);
        put_setting(diff, out);
        text_put(out, "\n");
        json_array_foreach(json_object_get(diff, "changes"), i, row)
        {
            const char *change = word(row, "change"), *paint = color ? color_of(change) : "";
            text_put(out, "%s%-9s%s ", paint, change, *paint ? "\033[0m" : "");
            put(out, "%s", word(row, "id"));
            put_side(row, "a", out);
            put_side(row, "b", out);
        }
        if (json_array_size(json_object_get(diff, "changes")))
            text_put(out, "\n");
    }
    text_put(out, "%s\n", word(diff, "summary"));
}
