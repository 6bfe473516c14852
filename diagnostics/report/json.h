/* SPDX-License-Identifier: Apache-2.0
 *
 * json: a report for programs: the schema hvd-doctor/1 of diagnostics/README.md.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_JSON_H
#define HVD_DIAGNOSTICS_REPORT_JSON_H

#include <stdint.h>

#include "core/base/buf.h"
#include "core/json/json.h"
#include "diagnostics/doctor.h"

#define REPORT_SCHEMA "hvd-doctor/1"

/* Host and time of the report, for report_json(). */
struct json_origin {
    const char *host;
    int64_t time; /* seconds since 1970 */
};

/* An element of "checks". The caller owns the reference; NULL: no memory. */
json_t *report_json_result(const struct result *r);

/* The document without "checks". */
json_t *report_json_head(const struct report *report, const struct json_origin *origin);

/* Writes the indented document with a newline at its end. No memory: out->failed is set. */
void report_json(const struct report *report, const struct json_origin *origin, struct buf *out);

/* Writes j and a newline; takes over the reference. */
void json_into(json_t *j, size_t flags, struct buf *out);

#endif
