/* SPDX-License-Identifier: Apache-2.0
 *
 * junit: see junit.h.
 */
#include "diagnostics/report/junit.h"

#include <string.h>

#include "diagnostics/report/text.h"
#include "diagnostics/report/verdict.h"

/* XML does not allow control characters; bytes above 127 are assumed to be UTF-8. */
static void put_escaped(struct buf *out, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&':
            buf_put(out, "&amp;", 5);
            break;
        case '<':
            buf_put(out, "&lt;", 4);
            break;
        case '>':
            buf_put(out, "&gt;", 4);
            break;
        case '"':
            buf_put(out, "&quot;", 6);
            break;
        case '\n':
        case '\t':
            buf_put(out, s, 1);
            break;
        default:
            buf_put(out, (unsigned char)*s < 32 || *s == 127 ? "?" : s, 1);
        }
    }
}

enum outcome { GOOD, FAILED, BROKEN, SKIPPED };

static enum outcome outcome_of(const struct result *r, bool strict)
{
    if (r->silenced)
        return GOOD;
    switch (r->status) {
    case CHECK_FAIL:
        return FAILED;
    case CHECK_WARN:
        return strict ? FAILED : GOOD;
    case CHECK_ERROR:
        return BROKEN;
    case CHECK_SKIP:
        return SKIPPED;
    default:
        return GOOD;
    }
}

static void put_body(const struct result *r, struct buf *out)
{
    put_escaped(out, result_why_text(r));
    for (int place = 0; place < FIX_PLACES; place++) {
        const char *fix = result_fix_text(r, (enum fix_place)place);
        if (!fix)
            continue;
        text_put(out, "\n%s: ", fix_place_name((enum fix_place)place));
        put_escaped(out, fix);
    }
}

static void put_case(const struct result *r, bool strict, struct buf *out)
{
    static const char *const elements[] = {
        [FAILED] = "failure", [BROKEN] = "error", [SKIPPED] = "skipped"};
    enum outcome outcome = outcome_of(r, strict);
    text_put(out, "    <testcase classname=\"hvd-doctor.%s\" name=\"%s\" time=\"%.6f\">\n",
             check_group_name(r->check->group), r->check->id, r->us / 1e6);
    if (outcome == GOOD) {
        text_put(out, "      <system-out>%s: ", check_status_name(r->status));
        put_escaped(out, r->summary);
        if (r->silenced) {
            text_put(out, " (silenced: ");
            put_escaped(out, r->silence_reason);
            text_put(out, ")");
        }
        text_put(out, "</system-out>\n");
    } else {
        text_put(out, "      <%s message=\"", elements[outcome]);
        put_escaped(out, r->summary);
        if (outcome == SKIPPED) {
            text_put(out, "\"/>\n");
        } else {
            text_put(out, "\" type=\"%s\">", check_action_name(r->action));
            put_body(r, out);
            text_put(out, "</%s>\n", elements[outcome]);
        }
    }
    text_put(out, "    </testcase>\n");
}

/* group GROUPS stands for all groups. */
static void put_counts(const struct report *report, int group, bool strict, struct buf *out)
{
    int n[SKIPPED + 1] = {0}, all = 0;
    double seconds = 0;
    for (size_t i = 0; i < report->n; i++) {
        const struct result *r = &report->results[i];
        if (group != GROUPS && (int)r->check->group != group)
            continue;
        n[outcome_of(r, strict)]++;
        all++;
        seconds += r->us / 1e6;
    }
    text_put(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.6f\">\n",
             all, n[FAILED], n[BROKEN], n[SKIPPED], group == GROUPS ? report->ms / 1e3 : seconds);
}

void report_junit(const struct report *report, bool strict, struct buf *out)
{
    text_put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"hvd-doctor\"");
    put_counts(report, GROUPS, strict, out);
    for (int g = 0; g < GROUPS; g++) {
        bool open = false;
        for (size_t i = 0; i < report->n; i++) {
            const struct result *r = &report->results[i];
            if ((int)r->check->group != g)
                continue;
            if (!open) {
                text_put(out, "  <testsuite name=\"%s\"", check_group_name(r->check->group));
                put_counts(report, g, strict, out);
                open = true;
            }
            put_case(r, strict, out);
        }
        if (open)
            text_put(out, "  </testsuite>\n");
    }
    text_put(out, "</testsuites>\n");
}
