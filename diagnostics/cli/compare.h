/* SPDX-License-Identifier: Apache-2.0
 *
 * compare: two reports in JSON (schema hvd-doctor/1) side by side: which checks have another
 * status, which saw another value, which are in one of them only. Foreign bytes: what is no such
 * report is refused with the field. Pure; for `hvd-doctor diff`.
 */
#ifndef HVD_DIAGNOSTICS_CLI_COMPARE_H
#define HVD_DIAGNOSTICS_CLI_COMPARE_H

#include "core/base/buf.h"
#include "core/json/json.h"

/* A report that can be compared: -EINVAL with "NAME: what is wrong". The caller's reference. */
int compare_read(const char *text, size_t len, const char *name, json_t **ret, struct err *err);

/* {"schema": "hvd-doctor-diff/1", "a": {"host", "time", "version", "verdict"}, "b": ..., "equal",
 *  "summary", "setting": [{"name", "a", "b"}],
 *  "changes": [{"id", "code", "group", "change": "worse" | "better" | "status" | "observed" |
 *               "only-a" | "only-b", "a": {"status", "summary", "observed"} | null, "b": ...}]}
 * Checks in the order of a, then those of b alone. A skipped check that is missing in the other
 * report is no change. NULL: no memory. */
json_t *compare_reports(json_t *a, json_t *b);

/* The same for a person; quiet: the last line alone. */
void compare_text(json_t *diff, bool color, bool quiet, struct buf *out);

#endif
