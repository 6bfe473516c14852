/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonl: a line of JSON for each result as soon as it is there, a last line with the verdict.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_JSONL_H
#define HVD_DIAGNOSTICS_REPORT_JSONL_H

#include "diagnostics/report/json.h"

/* Writes {"type":"check", ...} with the fields of an element of "checks". */
void report_jsonl_result(const struct result *r, struct buf *out);

/* Writes {"type":"report", ...} with the fields of report_json() except "checks". */
void report_jsonl_end(const struct report *report, const struct json_origin *origin,
                      struct buf *out);

#endif
