/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_pages: see agent_pages.h.
 */
#include "agent/agent_pages.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/base/log.h"
#include "diagnostics/report/prometheus.h"
#include "diagnostics/report/text.h"

static void put_ranks(struct buf *out, const struct agent_pages *p)
{
    prometheus_head(out, "hvd_rank_up", "gauge", "1 while the rank's process runs");
    for (int i = 0; i < p->ranks->n; i++)
        text_put(out, "hvd_rank_up{rank=\"%d\"} %d\n", p->ranks->list[i]->assignment.member,
                 !p->ranks->list[i]->reaped);
    prometheus_head(out, "hvd_rank_in_world", "gauge", "1 between hvd_init and hvd_shutdown");
    for (int i = 0; i < p->ranks->n; i++) {
        text_put(out, "hvd_rank_in_world{rank=\"%d\"} %d\n", p->ranks->list[i]->assignment.member,
                 rank_in_epoch(p->ranks->list[i]));
    }
}

/* The numbers in the ranks' last reports of progress. */
static void put_progress(struct buf *out, const struct agent_pages *p)
{
    static const struct {
        const char *name, *type, *help;
        size_t at; /* of the value in a report */
    } all[] = {
        {"hvd_rank_batches_total", "counter", "batches of fused collectives done",
         offsetof(struct report_item, batches)},
        {"hvd_rank_bytes_total", "counter", "bytes of tensors reduced or moved",
         offsetof(struct report_item, bytes)},
        {"hvd_rank_sets", "gauge", "sets that the rank is in",
         offsetof(struct report_item, sets.n)},
        {"hvd_rank_descriptors", "gauge", "open descriptors of a rank that is in sets",
         offsetof(struct report_item, sets.descriptors)},
        {"hvd_rank_descriptors_max", "gauge", "the hard limit of hvd_rank_descriptors",
         offsetof(struct report_item, sets.descriptors_max)},
        {"hvd_rank_segment_bytes", "gauge",
         "memory in shared segments that the rank, if it is in sets, has made for its host",
         offsetof(struct report_item, sets.segments)},
        {"hvd_rank_memory_left_bytes", "gauge",
         "memory that is left to the container of a rank that is in sets",
         offsetof(struct report_item, sets.memory_left)},
        {"hvd_rank_memory_limit_bytes", "gauge",
         "the limit that hvd_rank_memory_left_bytes reaches first",
         offsetof(struct report_item, sets.memory_limit)},
        {"hvd_rank_communicators", "gauge",
         "communicators of NCCL's of a rank that is in sets, of the world and of sets",
         offsetof(struct report_item, sets.communicators)},
        {"hvd_rank_gpu_memory_left_bytes", "gauge",
         "free memory of its GPU when a communicator was last made or freed",
         offsetof(struct report_item, sets.gpu_memory_left)},
        {"hvd_rank_gpu_memory_bytes", "gauge", "all memory of that GPU",
         offsetof(struct report_item, sets.gpu_memory)},
        {"hvd_rank_broken_sets", "gauge", "fixed sets of the rank that have lost a rank",
         offsetof(struct report_item, sets.broken)},
    };
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        prometheus_head(out, all[k].name, all[k].type, all[k].help);
        for (int i = 0; i < p->ranks->n; i++) {
            const struct rank *rank = p->ranks->list[i];
            uint64_t value;
            memcpy(&value, (const char *)&rank->progress + all[k].at, sizeof(value));
            text_put(out, "%s{rank=\"%d\"} %llu\n", all[k].name, rank->assignment.member,
                     (unsigned long long)value);
        }
    }
}

static void put_watch(struct buf *out, const struct agent_pages *p)
{
    const char *id, *unit;
    double value;
    enum check_status status;
    if (!p->doctor->watch)
        return;
    prometheus_head(out, "hvd_watch_value", "gauge", "the watch's last value of each condition");
    for (size_t i = 0; watch_at(p->doctor->watch, i, &id, &unit, &value, &status); i++)
        if (!isnan(value))
            text_put(out, "hvd_watch_value{id=\"%s\",unit=\"%s\"} %g\n", id, unit, value);
    prometheus_head(out, "hvd_watch_status", "gauge",
                    "0: all is well, 2: a warning stands, 3: a failure");
    for (size_t i = 0; watch_at(p->doctor->watch, i, &id, &unit, &value, &status); i++)
        text_put(out, "hvd_watch_status{id=\"%s\"} %d\n", id, (int)status);
}

static void put_preflight(struct buf *out, const struct agent_pages *p)
{
    prometheus_head(out, "hvd_doctor_check_status", "gauge",
                    "0 pass, 1 info, 2 warn, 3 fail, 4 skip, 5 error");
    for (int i = 0; i < p->doctor->preflight.nresults; i++) {
        const struct preflight_result *r = &p->doctor->preflight.results[i];
        text_put(out, "hvd_doctor_check_status{id=\"%s\",group=\"%s\"} %d\n", r->id, r->group,
                 r->status);
    }
}

static int fill_metrics(void *arg, struct buf *out)
{
    const struct agent_pages *p = arg;
    prometheus_head(out, "hvd_epoch", "gauge", "epoch of this host's last roster");
    text_put(out, "hvd_epoch %u\n", p->relay->epoch);
    put_ranks(out, p);
    put_progress(out, p);
    put_watch(out, p);
    put_preflight(out, p);
    return 200;
}

/* Returns whether all ranks are in the current epoch, in a pod. Under hvdrun, which watches the
 * ranks itself, always true. */
static bool trains(const struct agent_pages *p)
{
    bool all = p->ranks->n > 0 || !p->link->config->pod;
    for (int i = 0; i < p->ranks->n && p->link->config->pod; i++)
        all &= !p->ranks->list[i]->reaped && rank_in_epoch(p->ranks->list[i]);
    return all;
}

static int fill_ready(void *arg, struct buf *out)
{
    const struct agent_pages *p = arg;
    const char *why = !p->link->joined                           ? "it has not joined its job\n"
                      : p->doctor->refused                       ? "the doctor found a failure\n"
                      : p->ranks->stopping || p->link->abandoned ? "its ranks are being ended\n"
                      : !p->ranks->cwd                           ? "the preflight has not ended\n"
                      : !trains(p)                               ? "its ranks do not train yet\n"
                                                                 : NULL;
    text_put(out, "%s", why ? why : "ready\n");
    return why ? 503 : 200;
}

static const struct page pages[] = {
    {"/metrics", PAGES_PROMETHEUS, fill_metrics},
    {"/ready", PAGES_TEXT, fill_ready},
    {"/healthz", PAGES_TEXT, pages_healthz},
};

int agent_pages_open(struct agent_pages *p, struct err *err)
{
    char address[64];
    const char *metrics = p->link->config->metrics;
    int port;
    if (!metrics)
        return 0;
    int rc = pages_parse(metrics, address, sizeof(address), &port, err);
    if (rc < 0)
        return rc;
    struct pages_config config = {.loop = p->link->loop,
                                  .address = address[0] ? address : NULL,
                                  .port = port,
                                  .pages = pages,
                                  .n = sizeof(pages) / sizeof(pages[0]),
                                  .arg = p};
    rc = pages_open(&p->server, &config, err);
    if (rc == 0)
        log_info("metrics on port %d", pages_port(p->server));
    return rc;
}

void agent_pages_close(struct agent_pages *p)
{
    pages_close(p->server);
    p->server = NULL;
}
