/* SPDX-License-Identifier: Apache-2.0
 *
 * crew_epochs: each new epoch of a job, once: counted by its cause, and a line in the log. See
 * crew.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "operator/coordinator/crew.h"

#define PODS_LOGGED 16

/* " digits-0-0 digits-1-0", with how many where it becomes long. */
static void list_pods(const struct crew *c, char *dst, size_t size)
{
    const struct roster *r = &c->roster;
    int said = 0, all = 0;
    size_t n = 0;
    auto_free bool *in = calloc((size_t)r->nagents + 1, sizeof(*in));
    dst[0] = '\0';
    for (int i = 0; in && i < r->nmembers; i++)
        if (r->members[i].rank >= 0 && !rank_is_over(r->members[i].state))
            in[r->members[i].agent] = true;
    for (int a = 0; in && a < r->nagents; a++) {
        all += in[a];
        if (!in[a] || said == PODS_LOGGED)
            continue;
        n += (size_t)snprintf(dst + n, size - n, " %s", r->agents[a].host);
        said++;
    }
    if (all > said)
        snprintf(dst + n, size - n, " and %d more", all - said);
}

static void log_epoch(const struct crew *c)
{
    const struct roster *r = &c->roster;
    char pods[PODS_LOGGED * (MEMBER_NAME_MAX + 1) + 32];
    if (log_level() < LOG_INFO)
        return;
    list_pods(c, pods, sizeof(pods));
    log_info("job %s: epoch %u, %d members:%s%s%s", r->job, roster_epoch_number(r->epoch), r->size,
             pods, r->last.cause[0] ? "; " : "", r->last.cause);
}

void crew_count_epochs(struct crew *c)
{
    const struct roster *r = &c->roster;
    if (r->epoch == c->seen_epoch)
        return;
    if (c->seen_epoch > 0) {
        c->planned += !r->last.lost;
        c->unplanned += r->last.lost;
    }
    c->seen_epoch = r->epoch;
    log_epoch(c);
}
