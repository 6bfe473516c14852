/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_replace: see roster_replace.h.
 */
#include "core/member/roster_replace.h"

#include "core/base/clock.h"

#define BACKOFF_FIRST CLOCK_S
#define BACKOFF_MAX   (60 * CLOCK_S)
#define HEALTHY       (60 * CLOCK_S) /* a run this long resets the backoff */

int roster_have(const struct roster *r)
{
    return roster_members_count(&r->members, member_is_wanted) + r->starts.n + r->ends.finished;
}

bool roster_limit_reached(const struct roster *r)
{
    return r->is_elastic && r->elastic.reset_limit > 0 && r->restarts >= r->elastic.reset_limit;
}

void roster_add_start(struct roster *r, int agent, uint64_t due, bool replaces)
{
    if (r->starts.n < r->elastic.max)
        roster_starts_add(&r->starts, (struct roster_start){agent, due, replaces});
}

void roster_forget_start(struct roster *r)
{
    r->restarts -= roster_starts_forget(&r->starts);
}

void roster_replace(struct roster *r, int member, uint64_t now)
{
    const struct roster_member *m = &r->members.list[member];
    struct roster_agent *a = &r->agents.list[m->agent];
    struct roster_slot *p = &a->slots[m->assignment.local_rank];
    bool healthy = m->started && now - m->started >= HEALTHY;
    uint64_t first = r->elastic.backoff_first ? r->elastic.backoff_first : BACKOFF_FIRST;
    uint64_t most = r->elastic.backoff_max ? r->elastic.backoff_max : BACKOFF_MAX;
    uint64_t twice = p->backoff * 2 < most ? p->backoff * 2 : most;
    p->backoff = healthy || !p->backoff ? first : twice;
    a->draining |= r->hosted; /* the pod ends with its rank */
    if (roster_have(r) >= r->target)
        return;
    if (roster_limit_reached(r))
        return;
    r->restarts++;
    roster_add_start(r, a->lost || a->draining ? -1 : m->agent, now + p->backoff, true);
}
