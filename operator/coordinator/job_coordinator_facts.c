/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_facts: reports on a job's ranks, for its status. See job_coordinator.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "operator/coordinator/job_coordinator.h"

/* Workers whose ranks are all in the current epoch. */
static int count_ready(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    auto_free int *train = calloc((size_t)r->agents.n + 1, sizeof(*train));
    int n = 0;
    for (int i = 0; train && i < r->members.n; i++)
        train[r->members.list[i].agent] +=
            r->members.list[i].rank >= 0 && !rank_has_ended(r->members.list[i].state);
    for (int a = 0; train && a < r->agents.n; a++)
        n += r->agents.list[a].joined && !r->agents.list[a].lost && train[a] >= c->slots;
    return n;
}

static void sign_finding(void *arg, const char *pod, const struct finding *f)
{
    uint64_t *sum = arg;
    *sum += hash_mix(hash_str(pod) ^ hash_mix(hash_str(f->id) ^ hash_str(f->summary)));
}

uint64_t job_coordinator_fingerprint(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    char waiting_for[512];
    uint64_t findings = 0;
    roster_waiting_for(r, 0, waiting_for, sizeof(waiting_for));
    job_coordinator_findings(c, sign_finding, &findings);
    uint64_t parts[] = {(uint64_t)r->epoch,
                        (uint64_t)r->ends.ended,
                        (uint64_t)r->target,
                        (uint64_t)r->restarts,
                        (uint64_t)r->ends.finished,
                        (uint64_t)r->rebuilding,
                        (uint64_t)c->first_known,
                        (uint64_t)job_coordinator_count_agents(c),
                        findings,
                        (uint64_t)roster_state(r)[0],
                        hash_str(waiting_for)};
    uint64_t sum = 1469598103934665603ULL;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sum = (sum ^ parts[i]) * 1099511628211ULL;
    return sum;
}

static void take_last(const struct roster *r, uint64_t now, struct plane_facts *ret)
{
    snprintf(ret->last_change.cause, sizeof(ret->last_change.cause), "%s", r->last.cause);
    ret->last_change.unix_ms = clock_unix_ms(r->last.at, now);
    ret->last_change.ms = (double)r->last.took / CLOCK_MS;
    ret->repair_ms = (double)r->work.repair_last / CLOCK_MS;
}

static void take_first(const struct job_coordinator *c, struct plane_facts *ret)
{
    ret->first_failure.known = c->first_known;
    ret->first_failure.rank = c->first_rank;
    ret->first_failure.worker = c->first_worker;
    ret->first_failure.code = c->first_code;
    snprintf(ret->first_failure.text, sizeof(ret->first_failure.text), "%s", c->first_text);
}

static void count_finding(void *arg, const char *pod, const struct finding *f)
{
    struct plane_facts *ret = arg;
    (void)pod;
    ret->nfindings++;
    ret->nfailures += f->status == FINDING_FAIL;
}

void job_coordinator_facts(const struct job_coordinator *c, struct plane_facts *ret)
{
    const struct roster *r = &c->roster;
    uint64_t now = clock_ns();
    *ret = (struct plane_facts){
        .there = r->agents.n > 0,
        .rebuilding = r->rebuilding,
        .epoch = roster_epoch_number(r->epoch),
        .size = r->epoch ? r->size : 0,
        .target = r->target,
        .agents = job_coordinator_count_agents(c),
        .ready_workers = count_ready(c),
        .restarts = r->restarts,
        .any_finished = r->ends.finished > 0,
        .all_finished = r->members.n > 0 && roster_done(r),
    };
    snprintf(ret->state, sizeof(ret->state), "%s", roster_state(r));
    roster_waiting_for(r, 0, ret->waiting_for, sizeof(ret->waiting_for));
    take_last(r, now, ret);
    take_first(c, ret);
    job_coordinator_findings(c, count_finding, ret);
    roster_work_rates(&r->work, r->size, now, &ret->batches_per_s, &ret->bytes_per_s);
    ret->exit_code = ret->all_finished ? roster_exit_code(r) : 0;
}
