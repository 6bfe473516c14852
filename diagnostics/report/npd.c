/* SPDX-License-Identifier: Apache-2.0
 *
 * npd: see npd.h.
 */
#include "diagnostics/report/npd.h"

#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "diagnostics/report/verdict.h"

/* The first finding of this status, NULL: none; *ret_n: how many there are. */
static const struct result *first(const struct report *report, enum check_status status, int *ret_n)
{
    const struct result *found = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < report->n; i++) {
        const struct result *r = &report->results[i];
        if (r->status != status || r->silenced)
            continue;
        if (!found)
            found = r;
        ++*ret_n;
    }
    return found;
}

/* The length of s cut to max bytes, without splitting a UTF-8 character. */
static size_t cut(const char *s, size_t max)
{
    size_t n = strlen(s);
    if (n <= max)
        return n;
    while (max && utf8_inside((unsigned char)s[max]))
        max--;
    return max;
}

int report_npd(const struct report *report, struct buf *out)
{
    char line[RESULT_TEXT + 128], more[32] = "";
    int n;
    const struct result *r = first(report, CHECK_FAIL, &n);
    if (!r && report->verdict == VERDICT_FAIL)
        r = first(report, CHECK_WARN, &n);
    if (r)
        snprintf(line, sizeof(line), "%s: %s", r->check->id, r->summary);
    else
        verdict_line(report, line, sizeof(line));
    if (r && n > 1)
        snprintf(more, sizeof(more), " (+%d)", n - 1);
    for (char *p = line; *p; p++)
        if (*p == '\n')
            *p = ' ';
    buf_put(out, line, cut(line, NPD_LINE - strlen(more)));
    buf_put(out, more, strlen(more));
    buf_put(out, "\n", 1);
    return report->verdict == VERDICT_UNKNOWN ? 2 : report->verdict == VERDICT_FAIL ? 1 : 0;
}
