/* SPDX-License-Identifier: Apache-2.0
 *
 * prometheus: see prometheus.h.
 */
#include "diagnostics/report/prometheus.h"

#include "diagnostics/report/text.h"

void prometheus_head(struct buf *out, const char *name, const char *type, const char *help)
{
    text_put(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void report_prometheus(const struct report *report, struct buf *out)
{
    prometheus_head(out, "hvd_doctor_check_status", "gauge",
                    "0 pass, 1 info, 2 warn, 3 fail, 4 skip, 5 error");
    for (size_t i = 0; i < report->n; i++) {
        const struct check *c = report->results[i].check;
        text_put(out, "hvd_doctor_check_status{id=\"%s\",group=\"%s\"} %d\n", c->id,
                 check_group_name(c->group), (int)report->results[i].status);
    }
    prometheus_head(out, "hvd_doctor_check_silenced", "gauge", "1 where --silence names the check");
    for (size_t i = 0; i < report->n; i++) {
        const struct check *c = report->results[i].check;
        text_put(out, "hvd_doctor_check_silenced{id=\"%s\",group=\"%s\"} %d\n", c->id,
                 check_group_name(c->group), report->results[i].silenced);
    }
    prometheus_head(out, "hvd_doctor_verdict", "gauge", "0 ok, 1 warn, 2 fail, 3 unknown");
    text_put(out, "hvd_doctor_verdict %d\n", (int)report->verdict);
    prometheus_head(out, "hvd_doctor_duration_seconds", "gauge",
                    "how long the last run of the checks took");
    text_put(out, "hvd_doctor_duration_seconds %.3f\n", report->ms / 1000.0);
}
