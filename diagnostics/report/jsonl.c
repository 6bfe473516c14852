/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonl: see jsonl.h.
 */
#include "diagnostics/report/jsonl.h"

static void put(const char *type, json_t *rest, struct buf *out)
{
    json_t *j = json_pack("{s:s}", "type", type);
    if (!rest || json_object_update(j, rest) < 0)
        out->failed = true;
    json_decref(rest);
    json_into(j, JSON_COMPACT, out);
}

void report_jsonl_result(const struct result *r, struct buf *out)
{
    put("check", report_json_result(r), out);
}

void report_jsonl_end(const struct report *report, const struct json_origin *origin,
                      struct buf *out)
{
    put("report", report_json_head(report, origin), out);
}
