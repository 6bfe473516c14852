/* SPDX-License-Identifier: Apache-2.0
 *
 * prometheus: a report as metrics in the text format 0.0.4. Labels are ids and groups only, so that
 * their number is bounded.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_PROMETHEUS_H
#define HVD_DIAGNOSTICS_REPORT_PROMETHEUS_H

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

/* Writes hvd_doctor_check_status, hvd_doctor_check_silenced, hvd_doctor_verdict and
 * hvd_doctor_duration_seconds. */
void report_prometheus(const struct report *report, struct buf *out);

/* The lines before a metric's values. type: "gauge", "counter". */
void prometheus_head(struct buf *out, const char *name, const char *type, const char *help);

#endif
