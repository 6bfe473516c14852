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

/* Where and when, for report_json(). */
struct json_origin {
    const char *host;
    int64_t time; /* seconds since 1970 */
};

/* One of "checks". A fresh reference; NULL when memory is out. */
json_t *report_json_result(const struct result *r);

/* All of it but "checks". */
json_t *report_json_head(const struct report *report, const struct json_origin *origin);

/* The document, indented, a newline at its end. Out of memory: out->failed. */
void report_json(const struct report *report, const struct json_origin *origin, struct buf *out);

/* The text of j and a newline; takes the reference. */
void json_into(json_t *j, size_t flags, struct buf *out);

#endif
