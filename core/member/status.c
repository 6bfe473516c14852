/* SPDX-License-Identifier: Apache-2.0
 *
 * status: see status.h.
 */
#include "core/member/status.h"

#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/json/json.h"

#define GONE_FOR (60 * CLOCK_S) /* how long an elastic job's ended members are shown */

static json_t *list_findings(const struct roster *r)
{
    json_t *list = json_array();
    for (int a = 0; a < r->agents.n; a++) {
        for (int i = 0; i < r->agents.list[a].findings.n; i++) {
            const struct finding *f = &r->agents.list[a].findings.list[i];
            json_append(&list,
                        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "host", r->agents.list[a].host,
                                  "source", f->source, "id", f->id, "code", f->code, "status",
                                  finding_status_name(f->status), "summary", f->summary));
        }
    }
    return list;
}

static json_t *one_member(const struct roster *r, int member, uint64_t now)
{
    const struct roster_member *m = &r->members.list[member];
    uint64_t idle = m->moved ? (now - m->moved) / CLOCK_MS : 0;
    /* In a fixed job the rank is known before the first epoch. */
    int rank = r->is_elastic ? m->rank : member;
    json_t *j = json_pack("{s:i, s:i, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I}", "rank", rank,
                          "member", member, "host", r->agents.list[m->agent].host, "state",
                          rank_state_name(m->state), "pid", m->pid, "code", m->code, "batches",
                          (json_int_t)m->batches, "bytes", (json_int_t)m->bytes, "idle_ms",
                          (json_int_t)idle, "since", (json_int_t)clock_unix_ms(m->started, now));
    if (r->elastic.keep_places && m->rank >= 0)
        json_put(&j, "place", json_integer(m->place));
    if (m->sets)
        set_report_put(m->sets, &j);
    if (m->leaving)
        json_put(&j, "leaving", json_true());
    return j;
}

static json_t *list_members(const struct roster *r, uint64_t now)
{
    json_t *list = json_array();
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!r->is_elastic || !rank_has_ended(m->state) || now - m->ended_at < GONE_FOR)
            json_append(&list, one_member(r, i, now));
    }
    return list;
}

static json_t *last_change(const struct roster *r, uint64_t now)
{
    return json_pack("{s:I, s:o, s:I, s:f}", "epoch", (json_int_t)r->last.epoch, "cause",
                     json_lossy_string(r->last.cause, strlen(r->last.cause)), "unix_ms",
                     (json_int_t)clock_unix_ms(r->last.at, now), "ms",
                     (double)r->last.took / CLOCK_MS);
}

static json_t *throughput(const struct roster *r, uint64_t now)
{
    double batches, bytes;
    roster_work_rates(&r->work, r->size, now, &batches, &bytes);
    return json_pack("{s:f, s:f}", "batches_per_s", batches, "bytes_per_s", bytes);
}

char *status_text(const struct roster *r, uint64_t now)
{
    char waiting[512];
    roster_waiting_for(r, now, waiting, sizeof(waiting));
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:i, s:I, s:i, s:s, s:s, s:b, s:i, s:i, s:i, s:I, s:I, s:i}", "job", r->job,
        "name", r->job, "size", r->size, "epoch", (json_int_t)r->epoch, "ended", r->ends.ended,
        "state", roster_state(r), "waiting_for", waiting, "elastic", r->is_elastic, "np", r->target,
        "min_np", r->is_elastic ? r->elastic.min : r->size, "max_np",
        r->is_elastic ? r->elastic.max : r->size, "change", (json_int_t)r->changes.applied,
        "asked_change", (json_int_t)r->changes.requested, "restarts", r->restarts);
    json_put(&j, "last_change", last_change(r, now));
    json_put(&j, "repair_ms",
             json_pack("{s:f, s:f}", "last", (double)r->work.repair_last / CLOCK_MS, "max",
                       (double)r->work.repair_max / CLOCK_MS));
    json_put(&j, "throughput", throughput(r, now));
    json_put(&j, "ranks", list_members(r, now));
    json_put(&j, "findings", list_findings(r));
    return json_write(j);
}
