/* SPDX-License-Identifier: Apache-2.0
 *
 * junit: a report as JUnit XML, for CI systems: a suite a group, a case a check.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_JUNIT_H
#define HVD_DIAGNOSTICS_REPORT_JUNIT_H

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

/* strict: a warning is a failure; else it is output of a case that passed. */
void report_junit(const struct report *report, bool strict, struct buf *out);

#endif
