/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_epochs: adds each new epoch of a job to its history, and logs it. See
 * job_coordinator.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "operator/coordinator/job_coordinator.h"

#define PODS_LOGGED 16

static int by_worker(const void *a, const void *b)
{
    const struct roster_agent *x = *(const struct roster_agent *const *)a;
    const struct roster_agent *y = *(const struct roster_agent *const *)b;
    return x->order - y->order;
}

/* Writes " digits-0-0 digits-1-0", and after PODS_LOGGED names " and 5 more". */
static void list_pods(const struct job_coordinator *c, char *dst, size_t size)
{
    const struct roster *r = &c->roster;
    auto_free bool *in = calloc((size_t)r->agents.n + 1, sizeof(*in));
    auto_free const struct roster_agent **all = calloc((size_t)r->agents.n + 1, sizeof(*all));
    int count = 0;
    size_t n = 0;
    dst[0] = '\0';
    if (!in || !all)
        return;
    for (int i = 0; i < r->members.n; i++)
        in[r->members.list[i].agent] |=
            r->members.list[i].rank >= 0 && !rank_has_ended(r->members.list[i].state);
    for (int a = 0; a < r->agents.n; a++)
        if (in[a])
            all[count++] = &r->agents.list[a];
    qsort(all, (size_t)count, sizeof(*all), by_worker);
    for (int i = 0; i < count && i < PODS_LOGGED; i++)
        n += (size_t)snprintf(dst + n, size - n, " %s", all[i]->host);
    if (count > PODS_LOGGED)
        snprintf(dst + n, size - n, " and %d more", count - PODS_LOGGED);
}

static void log_epoch(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    char pods[PODS_LOGGED * (MEMBER_NAME_MAX + 1) + 32];
    if (log_level() < LOG_INFO)
        return;
    list_pods(c, pods, sizeof(pods));
    log_info("job %s: epoch %u, %d members:%s%s%s", r->job, roster_epoch_number(r->epoch), r->size,
             pods, r->last.cause[0] ? "; " : "", r->last.cause);
}

void job_coordinator_count_epochs(struct job_coordinator *c)
{
    if (epoch_history_update(&c->history, &c->roster))
        log_epoch(c);
}
