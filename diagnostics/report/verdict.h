/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict: summarizes a report in one line, for text, JSON and node-problem-detector.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_VERDICT_H
#define HVD_DIAGNOSTICS_REPORT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnostics/doctor.h"

const char *verdict_name(enum verdict verdict); /* "ok" "warn" "fail" "unknown" */

/* "FAIL: 2 of 97 checks failed: shm-size, memlock-limit; 3 warnings". Returns dst. */
char *verdict_line(const struct report *report, char *dst, size_t size);

/* The setting in words: "cpu and k8s, 4 of 16 ranks here, 4 GPUs, level 1". Returns dst. */
char *verdict_setting(const struct setting *s, char *dst, size_t size);

/* Returns whether a person has to see the result: warn, fail or error, and not silenced. */
bool result_is_finding(const struct result *r);

/* The fix for a place: the result's own, else the check's; NULL: there is none. */
const char *result_fix_text(const struct result *r, enum fix_place place);

/* The reason: the result's own, else the check's. */
const char *result_why_text(const struct result *r);

#endif
