/* SPDX-License-Identifier: Apache-2.0
 *
 * junit: a report as JUnit XML, for CI systems: a test suite for each group, a test case for each
 * check.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_JUNIT_H
#define HVD_DIAGNOSTICS_REPORT_JUNIT_H

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

/* strict: a warning is a failure; otherwise it is output of a test case that passed. */
void report_junit(const struct report *report, bool strict, struct buf *out);

#endif
