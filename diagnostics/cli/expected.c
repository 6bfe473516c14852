/* SPDX-License-Identifier: Apache-2.0
 *
 * expected: see expected.h.
 */
#include "diagnostics/cli/expected.h"

#include <string.h>

#include "diagnostics/report/json.h"
#include "diagnostics/report/text.h"
#include "diagnostics/report/verdict.h"

static void put_string(const char *s, struct buf *out)
{
    auto_json json_t *j = json_lossy_string(s, strlen(s));
    auto_free char *text = json_dumps(j, JSON_ENCODE_ANY);
    text_put(out, "%s", text ? text : "\"\"");
    out->failed |= !text;
}

void expected_put(const struct report *report, struct buf *out)
{
    bool first = true;
    text_put(out, "{\n\"verdict\": \"%s\",\n\"checks\": {", verdict_name(report->verdict));
    for (size_t i = 0; i < report->n; i++) {
        const struct result *r = &report->results[i];
        if (r->status == CHECK_SKIP)
            continue;
        text_put(out, "%s\n\"%s\": [\"%s\", ", first ? "" : ",", r->check->id,
                 check_status_name(r->status));
        put_string(r->summary, out);
        text_put(out, "]");
        first = false;
    }
    text_put(out, "\n}\n}\n");
}

static const struct result *find(const struct report *report, const char *id)
{
    for (size_t i = 0; i < report->n; i++) {
        if (strcmp(report->results[i].check->id, id) == 0)
            return &report->results[i];
    }
    return NULL;
}

static size_t compare_row(const struct report *report, const char *id, json_t *row, struct buf *ret)
{
    const char *status = json_string_value(json_array_get(row, 0));
    const char *summary = json_string_value(json_array_get(row, 1));
    const struct result *r = find(report, id);
    if (!status || !summary) {
        text_put(ret, "%s: want [status, summary]\n", id);
    } else if (!r) {
        text_put(ret, "%s: want %s (%s): did not run\n", id, status, summary);
    } else if (strcmp(check_status_name(r->status), status) != 0 ||
               strcmp(r->summary, summary) != 0) {
        text_put(ret, "%s: want %s: %s\n    is %s: %s\n", id, status, summary,
                 check_status_name(r->status), r->summary);
    } else {
        return 0;
    }
    return 1;
}

size_t expected_compare(const struct report *report, const char *text, size_t len, struct buf *ret)
{
    auto_json json_t *j = NULL;
    struct err err = {0};
    json_t *checks, *row;
    const char *verdict = NULL, *id;
    size_t n = 0;
    if (json_read(text, len, "expected.json", &j, &err) < 0 ||
        json_expect(j, "expected.json", &err, "{s:s, s:o}", "verdict", &verdict, "checks",
                    &checks) < 0) {
        text_put(ret, "%s\n", err_text(&err));
        return 1;
    }
    if (strcmp(verdict, verdict_name(report->verdict)) != 0) {
        text_put(ret, "verdict: want %s, is %s\n", verdict, verdict_name(report->verdict));
        n++;
    }
    json_object_foreach(checks, id, row)
    {
        n += compare_row(report, id, row, ret);
    }
    for (size_t i = 0; i < report->n; i++) {
        const struct result *r = &report->results[i];
        if (result_is_finding(r) && !json_object_get(checks, r->check->id)) {
            text_put(ret, "%s: not expected: %s: %s\n", r->check->id, check_status_name(r->status),
                     r->summary);
            n++;
        }
    }
    return n;
}
