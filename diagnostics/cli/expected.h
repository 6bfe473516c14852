/* SPDX-License-Identifier: Apache-2.0
 *
 * expected: the findings on a captured machine, as its expected.json: one line for each check, so
 * that a diff is readable. Skipped checks are left out: a new check must not change the file of
 * every machine.
 */
#ifndef HVD_DIAGNOSTICS_CLI_EXPECTED_H
#define HVD_DIAGNOSTICS_CLI_EXPECTED_H

#include "core/base/buf.h"
#include "core/json/json.h"
#include "diagnostics/doctor.h"

/* Writes {"verdict": "fail", "checks": {"shm-size": ["fail", "summary"], ...}} with every result
 * but skips, and a newline at the end. */
void expected_put(const struct report *report, struct buf *out);

/* Compares a report with the text of expected.json. Appends a line for each difference to ret
 * and returns how many there are. Differences are: an expected check that did not run or has
 * another result, and a finding (warn, fail, error) that is not expected. An unexpected pass or
 * info is not a difference. */
size_t expected_compare(const struct report *report, const char *text, size_t len, struct buf *ret);

#endif
