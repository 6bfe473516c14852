/* SPDX-License-Identifier: Apache-2.0
 *
 * expected: what is found on a captured machine, as its expected.json: a line a check, so that a
 * difference reads well in a diff. Results that say nothing (skip, "does not apply") stand there
 * too only when they are findings: a new check must not change every machine.
 */
#ifndef HVD_DIAGNOSTICS_CLI_EXPECTED_H
#define HVD_DIAGNOSTICS_CLI_EXPECTED_H

#include "core/base/buf.h"
#include "core/json/json.h"
#include "diagnostics/doctor.h"

/* {"verdict": "fail", "checks": {"shm-size": ["fail", "summary"], ...}}; info, warn, fail, error
 * and pass; a newline at its end. */
void expected_put(const struct report *report, struct buf *out);

/* Compares a report with the text of expected.json; appends a line for each difference to ret and
 * returns how many. A check of expected that was not chosen or not found is one; a finding (warn,
 * fail, error) that expected lacks is one; a pass or info that it lacks is none. */
size_t expected_compare(const struct report *report, const char *text, size_t len, struct buf *ret);

#endif
