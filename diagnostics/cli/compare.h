/* SPDX-License-Identifier: Apache-2.0
 *
 * compare: two reports in JSON (schema hvd-doctor/1) compared: which checks have another status,
 * which have another value, which are in one of them only. The input is untrusted: an error names
 * the field that is wrong. Pure; for `hvd-doctor diff`.
 */
#ifndef HVD_DIAGNOSTICS_CLI_COMPARE_H
#define HVD_DIAGNOSTICS_CLI_COMPARE_H

#include "core/base/buf.h"
#include "core/json/json.h"

/* Parses a report. -EINVAL with "NAME: what is wrong" when it is not one. The caller owns the
 * reference. */
int compare_read(const char *text, size_t len, const char *name, json_t **ret, struct err *err);

/* {"schema": "hvd-doctor-diff/1", "a": {"host", "time", "version", "verdict"}, "b": ..., "equal",
 *  "summary", "setting": [{"name", "a", "b"}],
 *  "changes": [{"id", "code", "group", "change": "worse" | "better" | "status" | "observed" |
 *               "only-a" | "only-b", "a": {"status", "summary", "observed"} | null, "b": ...}]}
 * Checks in the order of a, then those of b alone. A skipped check that is missing in the other
 * report is no change. NULL: no memory. */
json_t *compare_reports(json_t *a, json_t *b);

/* Writes the result of compare_reports() as text for people; quiet: the last line only. */
void compare_text(json_t *diff, bool color, bool quiet, struct buf *out);

#endif
