/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pages: the HTTP pages of an agent: /metrics for Prometheus, /ready and /healthz for probes.
 * They show what the agent knows already. A finding does not make the agent unhealthy. See agent.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "core/base/log.h"
#include "diagnostics/report/prometheus.h"
#include "diagnostics/report/text.h"

static void put_ranks(struct buf *out, const struct agent *a)
{
    prometheus_head(out, "hvd_rank_up", "gauge", "1 while the rank's process runs");
    for (int i = 0; i < a->nranks; i++)
        text_put(out, "hvd_rank_up{rank=\"%d\"} %d\n", a->ranks[i]->assignment.member,
                 !a->ranks[i]->reaped);
    prometheus_head(out, "hvd_rank_in_world", "gauge", "1 between hvd_init and hvd_shutdown");
    for (int i = 0; i < a->nranks; i++) {
        text_put(out, "hvd_rank_in_world{rank=\"%d\"} %d\n", a->ranks[i]->assignment.member,
                 rank_in_epoch(a->ranks[i]));
    }
    prometheus_head(out, "hvd_rank_batches_total", "counter", "batches of fused collectives done");
    for (int i = 0; i < a->nranks; i++)
        text_put(out, "hvd_rank_batches_total{rank=\"%d\"} %llu\n", a->ranks[i]->assignment.member,
                 (unsigned long long)a->ranks[i]->progress.batches);
    prometheus_head(out, "hvd_rank_bytes_total", "counter", "bytes of tensors reduced or moved");
    for (int i = 0; i < a->nranks; i++)
        text_put(out, "hvd_rank_bytes_total{rank=\"%d\"} %llu\n", a->ranks[i]->assignment.member,
                 (unsigned long long)a->ranks[i]->progress.bytes);
}

static void put_watch(struct buf *out, const struct agent *a)
{
    const char *id, *unit;
    double value;
    enum check_status status;
    if (!a->watch)
        return;
    prometheus_head(out, "hvd_watch_value", "gauge", "last look of the watch at each condition");
    for (size_t i = 0; watch_at(a->watch, i, &id, &unit, &value, &status); i++)
        if (!isnan(value))
            text_put(out, "hvd_watch_value{id=\"%s\",unit=\"%s\"} %g\n", id, unit, value);
    prometheus_head(out, "hvd_watch_status", "gauge",
                    "0: all is well, 2: a warning stands, 3: a failure");
    for (size_t i = 0; watch_at(a->watch, i, &id, &unit, &value, &status); i++)
        text_put(out, "hvd_watch_status{id=\"%s\"} %d\n", id, (int)status);
}

static void put_preflight(struct buf *out, const struct agent *a)
{
    prometheus_head(out, "hvd_doctor_check_status", "gauge",
                    "0 pass, 1 info, 2 warn, 3 fail, 4 skip, 5 error");
    for (int i = 0; i < a->preflight.nresults; i++) {
        const struct preflight_result *r = &a->preflight.results[i];
        text_put(out, "hvd_doctor_check_status{id=\"%s\",group=\"%s\"} %d\n", r->id, r->group,
                 r->status);
    }
}

static int fill_metrics(void *arg, struct buf *out)
{
    const struct agent *a = arg;
    prometheus_head(out, "hvd_epoch", "gauge", "of the roster that this host's ranks work with");
    text_put(out, "hvd_epoch %u\n", a->epoch);
    put_ranks(out, a);
    put_watch(out, a);
    put_preflight(out, a);
    return 200;
}

/* In a pod: all ranks are in the current epoch. Under hvdrun, which watches the ranks itself,
 * always true. */
static bool trains(const struct agent *a)
{
    bool all = a->nranks > 0 || !a->config.pod;
    for (int i = 0; i < a->nranks && a->config.pod; i++)
        all &= !a->ranks[i]->reaped && rank_in_epoch(a->ranks[i]);
    return all;
}

static int fill_ready(void *arg, struct buf *out)
{
    const struct agent *a = arg;
    const char *why = !a->joined                    ? "it has not joined its job\n"
                      : a->refused                  ? "the doctor found a failure\n"
                      : a->stopping || a->abandoned ? "its ranks are being ended\n"
                      : !a->cwd                     ? "the preflight has not ended\n"
                      : !trains(a)                  ? "its ranks do not train yet\n"
                                                    : NULL;
    text_put(out, "%s", why ? why : "ready\n");
    return why ? 503 : 200;
}

static const struct page pages[] = {
    {"/metrics", PAGES_PROMETHEUS, fill_metrics},
    {"/ready", PAGES_TEXT, fill_ready},
    {"/healthz", PAGES_TEXT, pages_healthz},
};

int agent_open_pages(struct agent *a, struct err *err)
{
    char address[64];
    int port;
    if (!a->config.metrics)
        return 0;
    int rc = pages_parse(a->config.metrics, address, sizeof(address), &port, err);
    if (rc < 0)
        return rc;
    struct pages_config config = {.loop = &a->loop,
                                  .address = address[0] ? address : NULL,
                                  .port = port,
                                  .pages = pages,
                                  .n = sizeof(pages) / sizeof(pages[0]),
                                  .arg = a};
    rc = pages_open(&a->pages, &config, err);
    if (rc == 0)
        log_info("metrics on port %d", pages_port(a->pages));
    return rc;
}
