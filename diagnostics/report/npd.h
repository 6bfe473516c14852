/* SPDX-License-Identifier: Apache-2.0
 *
 * npd: a report for a custom plugin of node-problem-detector: one line of at most 80 characters,
 * exit code 0 good, 1 a problem, 2 unknown.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_NPD_H
#define HVD_DIAGNOSTICS_REPORT_NPD_H

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

#define NPD_LINE 80 /* node-problem-detector cuts longer messages */

/* Writes the line to out. Returns the exit code. */
int report_npd(const struct report *report, struct buf *out);

#endif
