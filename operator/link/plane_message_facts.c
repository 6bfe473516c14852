/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_message_facts: a job's facts and the plane's counters as messages. See plane_message.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/link/plane_message.h"

json_t *plane_write_facts(const char *job_uid, const struct plane_facts *f,
                          const struct job_findings *findings)
{
    json_t *change = json_pack("{s:I, s:f, s:o}", "at", (json_int_t)f->last_change.unix_ms, "ms",
                               f->last_change.ms, "cause", json_lossy_text(f->last_change.cause));
    json_t *first =
        json_pack("{s:b, s:i, s:i, s:i, s:o}", "known", f->first_failure.known, "rank",
                  f->first_failure.rank, "worker", f->first_failure.worker, "code",
                  f->first_failure.code, "text", json_lossy_text(f->first_failure.text));
    json_t *j = json_pack(
        "{s:s, s:s, s:b, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:i, "
        "s:f, s:f, s:f, s:i, s:i, s:i}",
        "type", "facts", "job", job_uid, "there", f->there, "rebuilding", f->rebuilding, "state",
        f->state, "epoch", (int)f->epoch, "size", f->size, "target", f->target, "agents", f->agents,
        "readyWorkers", f->ready_workers, "restarts", f->restarts, "anyFinished", f->any_finished,
        "allFinished", f->all_finished, "exitCode", f->exit_code, "repairMs", f->repair_ms,
        "batchesPerS", f->batches_per_s, "bytesPerS", f->bytes_per_s, "findingCount", f->nfindings,
        "failureCount", f->nfailures, "findingsLeftOut", findings->more);
    json_put(&j, "waitingFor", json_lossy_text(f->waiting_for));
    json_put(&j, "lastChange", change);
    json_put(&j, "firstFailure", first);
    json_put(&j, "findings", job_findings_write(findings));
    return j;
}

struct flags {
    int there, rebuilding, known, any, all;
};

struct texts {
    const char *state, *waiting_for, *cause, *first;
};

static int unpack(json_t *j, struct plane_facts *f, struct flags *b, struct texts *t, int *more,
                  json_t **findings, struct err *err)
{
    const char *type, *job;
    json_int_t at = 0;
    int epoch = 0;
    int rc = json_expect(
        j, "facts", err,
        "{s:s, s:s, s:b, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:i, s:F, s:F, s:F, "
        "s:i, s:i, s:i, s:s, s:{s:I, s:F, s:s !}, s:{s:b, s:i, s:i, s:i, s:s !}, s:o !}",
        "type", &type, "job", &job, "there", &b->there, "rebuilding", &b->rebuilding, "state",
        &t->state, "epoch", &epoch, "size", &f->size, "target", &f->target, "agents", &f->agents,
        "readyWorkers", &f->ready_workers, "restarts", &f->restarts, "anyFinished", &b->any,
        "allFinished", &b->all, "exitCode", &f->exit_code, "repairMs", &f->repair_ms, "batchesPerS",
        &f->batches_per_s, "bytesPerS", &f->bytes_per_s, "findingCount", &f->nfindings,
        "failureCount", &f->nfailures, "findingsLeftOut", more, "waitingFor", &t->waiting_for,
        "lastChange", "at", &at, "ms", &f->last_change.ms, "cause", &t->cause, "firstFailure",
        "known", &b->known, "rank", &f->first_failure.rank, "worker", &f->first_failure.worker,
        "code", &f->first_failure.code, "text", &t->first, "findings", findings);
    if (rc == 0 && (epoch < 0 || *more < 0 || !json_is_array(*findings) ||
                    json_array_size(*findings) > JOB_FINDINGS_MAX))
        rc = err_set(err, EINVAL, "facts: a number is out of range, or too many findings");
    f->epoch = (uint32_t)epoch;
    f->last_change.unix_ms = at;
    return rc;
}

int plane_read_facts(json_t *message, struct plane_facts *ret, struct job_findings *ret_findings,
                     struct err *err)
{
    struct plane_facts f = {0};
    struct flags b = {0};
    struct texts t = {0};
    json_t *findings = NULL;
    int more = 0;
    int rc = unpack(message, &f, &b, &t, &more, &findings, err);
    if (rc < 0)
        return rc;
    const struct {
        const char *from;
        char *to;
        size_t size;
    } copies[] = {{t.state, f.state, sizeof(f.state)},
                  {t.waiting_for, f.waiting_for, sizeof(f.waiting_for)},
                  {t.cause, f.last_change.cause, sizeof(f.last_change.cause)},
                  {t.first, f.first_failure.text, sizeof(f.first_failure.text)}};
    for (size_t i = 0; rc == 0 && i < sizeof(copies) / sizeof(copies[0]); i++)
        rc = plane_copy_text("facts", copies[i].from, copies[i].to, copies[i].size, err);
    if (rc == 0 && ret_findings)
        rc = job_findings_parse(findings, ret_findings, err);
    if (rc < 0)
        return rc;
    if (ret_findings)
        ret_findings->more = more;
    f.there = b.there;
    f.rebuilding = b.rebuilding;
    f.first_failure.known = b.known;
    f.any_finished = b.any;
    f.all_finished = b.all;
    *ret = f;
    return 0;
}

/* ---- counters -------------------------------------------------------------------------------- */

json_t *plane_write_counts(const struct plane_counts *n)
{
    return json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type",
                     "counts", "jobs", n->jobs, "agents", n->agents, "joins", (json_int_t)n->joins,
                     "rejoins", (json_int_t)n->rejoins, "refusedToken",
                     (json_int_t)n->refused_token, "refusedPod", (json_int_t)n->refused_pod,
                     "refusedBody", (json_int_t)n->refused_body, "reviews", (json_int_t)n->reviews,
                     "losses", (json_int_t)n->losses, "epochsPlanned",
                     (json_int_t)n->epochs_planned, "epochsLost", (json_int_t)n->epochs_lost);
}

int plane_read_counts(json_t *message, struct plane_counts *ret, struct err *err)
{
    json_int_t n[9] = {0};
    const char *type;
    int jobs = 0, agents = 0;
    bool negative = false;
    int rc = json_expect(
        message, "counts", err, "{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I !}",
        "type", &type, "jobs", &jobs, "agents", &agents, "joins", &n[0], "rejoins", &n[1],
        "refusedToken", &n[2], "refusedPod", &n[3], "refusedBody", &n[4], "reviews", &n[5],
        "losses", &n[6], "epochsPlanned", &n[7], "epochsLost", &n[8]);
    for (int i = 0; i < 9; i++)
        negative |= n[i] < 0;
    if (rc == 0 && (negative || jobs < 0 || agents < 0))
        rc = err_set(err, EINVAL, "counts: a negative number");
    if (rc < 0)
        return rc;
    *ret = (struct plane_counts){.jobs = jobs,
                                 .agents = agents,
                                 .joins = (uint64_t)n[0],
                                 .rejoins = (uint64_t)n[1],
                                 .refused_token = (uint64_t)n[2],
                                 .refused_pod = (uint64_t)n[3],
                                 .refused_body = (uint64_t)n[4],
                                 .reviews = (uint64_t)n[5],
                                 .losses = (uint64_t)n[6],
                                 .epochs_planned = (uint64_t)n[7],
                                 .epochs_lost = (uint64_t)n[8]};
    return 0;
}
