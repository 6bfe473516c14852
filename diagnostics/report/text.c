/* SPDX-License-Identifier: Apache-2.0
 *
 * text: see text.h.
 */
#include "diagnostics/report/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "diagnostics/report/verdict.h"

#define INDENT 10

void text_put(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *dst = n < 0 ? NULL : buf_reserve(out, (size_t)n + 1);
    if (!dst)
        return;
    va_start(ap, fmt);
    vsnprintf(dst, (size_t)n + 1, fmt, ap);
    va_end(ap);
    out->len += (size_t)n;
}

static void put_indent(struct buf *out, int indent)
{
    text_put(out, "\n%*s", indent, "");
}

/* The columns that n bytes of UTF-8 take, counting each character as one. */
static int columns(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++)
        c += !utf8_inside((unsigned char)s[i]);
    return c;
}

void text_wrap(struct buf *out, const char *text, int indent, int width)
{
    int column = indent;
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " \n");
        int c = columns(text, n);
        if (!first && width && column + 1 + c > width) {
            put_indent(out, indent);
            column = indent;
        } else if (!first) {
            buf_put(out, " ", 1);
            column++;
        }
        buf_put(out, text, n);
        column += c;
        first = false;
        text += n;
        if (*text == '\n') {
            put_indent(out, indent);
            column = indent;
            first = true;
            text++;
        } else if (*text == ' ') {
            text++;
        }
    }
}

/* Writes text to type: it is never wrapped, and its own lines are indented. */
static void put_fix(struct buf *out, const char *text, int indent)
{
    for (;;) {
        size_t n = strcspn(text, "\n");
        buf_put(out, text, n);
        if (!text[n] || !text[n + 1])
            return;
        put_indent(out, indent);
        text += n + 1;
    }
}

static const char *color_of(enum check_status status)
{
    static const char *const colors[] = {
        [CHECK_PASS] = "32", [CHECK_INFO] = "36", [CHECK_WARN] = "33",
        [CHECK_FAIL] = "31", [CHECK_SKIP] = "90", [CHECK_ERROR] = "35",
    };
    return colors[status];
}

/* Writes the status, eight columns wide. */
static void put_status(const struct result *r, const struct text_style *style, struct buf *out)
{
    const char *name = r->status == CHECK_FAIL ? "FAIL" : check_status_name(r->status);
    if (style->color)
        text_put(out, "\033[1;%sm%s\033[0m%*s", color_of(r->status), name, 8 - (int)strlen(name),
                 "");
    else
        text_put(out, "%-8s", name);
}

static void put_line(const struct result *r, const struct text_style *style, struct buf *out)
{
    put_status(r, style, out);
    text_put(out, "%s: %s", r->check->id, r->summary);
    if (r->silenced)
        text_put(out, " (silenced: %s)", r->silence_reason);
    text_put(out, "\n");
}

static void put_fix_line(const char *label, const char *fix, struct buf *out)
{
    text_put(out, "  %-*s", INDENT - 2, label);
    put_fix(out, fix, INDENT);
    text_put(out, "\n");
}

/* Writes the fix for the place where the doctor runs. If the check has none for that place, writes
 * its fixes for the other places. */
static void put_fixes(const struct result *r, enum fix_place here, struct buf *out)
{
    const char *fix = result_fix_text(r, here);
    if (fix) {
        put_fix_line("do", fix, out);
        return;
    }
    for (int place = 0; place < FIX_PLACES; place++) {
        fix = result_fix_text(r, (enum fix_place)place);
        if (fix)
            put_fix_line(fix_place_name((enum fix_place)place), fix, out);
    }
}

static void put_finding(const struct result *r, enum fix_place here, const struct text_style *style,
                        struct buf *out)
{
    put_line(r, style, out);
    const char *why = result_why_text(r);
    if (*why) {
        text_put(out, "  %-*s", INDENT - 2, "why");
        text_wrap(out, why, INDENT, style->width);
        text_put(out, "\n");
    }
    put_fixes(r, here, out);
    text_put(out, "  %-*shvd-doctor explain %s\n\n", INDENT - 2, "more", r->check->id);
}

static void put_findings(const struct report *report, const struct text_style *style,
                         struct buf *out)
{
    static const enum check_status order[] = {CHECK_FAIL, CHECK_ERROR, CHECK_WARN};
    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
        for (size_t i = 0; i < report->n; i++)
            if (report->results[i].status == order[k] && !report->results[i].silenced)
                put_finding(&report->results[i], report->place, style, out);
}

/* Writes "12 passed, 1 skipped": the counts of a group without its findings. */
static void put_group_counts(const struct report *report, enum check_group group, struct buf *out)
{
    static const struct {
        enum check_status status;
        const char *word;
    } parts[] = {{CHECK_FAIL, "failed"}, {CHECK_WARN, "warned"}, {CHECK_ERROR, "went wrong"},
                 {CHECK_PASS, "passed"}, {CHECK_INFO, "noted"},  {CHECK_SKIP, "skipped"}};
    int n = 0, silenced = 0;
    for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
        int count = 0;
        for (size_t i = 0; i < report->n; i++) {
            const struct result *r = &report->results[i];
            if (r->check->group != group || r->status != parts[k].status)
                continue;
            count += !r->silenced;
            silenced += r->silenced;
        }
        if (count)
            text_put(out, "%s%d %s", n++ ? ", " : "", count, parts[k].word);
    }
    if (silenced)
        text_put(out, "%s%d silenced", n ? ", " : "", silenced);
}

static bool group_has(const struct report *report, enum check_group group)
{
    for (size_t i = 0; i < report->n; i++)
        if (report->results[i].check->group == group)
            return true;
    return false;
}

static void put_groups(const struct report *report, const struct text_style *style, struct buf *out)
{
    for (int g = 0; g < GROUPS; g++) {
        enum check_group group = (enum check_group)g;
        if (!group_has(report, group))
            continue;
        text_put(out, "%-11s ", check_group_name(group));
        put_group_counts(report, group, out);
        text_put(out, "\n");
        for (size_t i = 0; style->verbose && i < report->n; i++)
            if (report->results[i].check->group == group)
                put_line(&report->results[i], style, out);
        if (style->verbose)
            text_put(out, "\n");
    }
    if (!style->verbose)
        text_put(out, "\n");
}

void report_text(const struct report *report, const struct text_style *style, struct buf *out)
{
    static const enum check_status worst[] = {
        [VERDICT_OK] = CHECK_PASS,
        [VERDICT_WARN] = CHECK_WARN,
        [VERDICT_FAIL] = CHECK_FAIL,
        [VERDICT_UNKNOWN] = CHECK_SKIP,
    };
    char line[RESULT_TEXT];
    if (!style->quiet) {
        put_findings(report, style, out);
        put_groups(report, style, out);
        text_put(out, "for a job of: %s\n", verdict_setting(&report->setting, line, sizeof(line)));
    }
    verdict_line(report, line, sizeof(line));
    if (style->color)
        text_put(out, "\033[1;%sm%s\033[0m\n", color_of(worst[report->verdict]), line);
    else
        text_put(out, "%s\n", line);
}
