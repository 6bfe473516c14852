/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_target: see roster_target.h.
 */
#include "core/member/roster_target.h"

#include "core/member/roster_epoch.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_life.h"
#include "core/member/roster_replace.h"

void roster_start_due(struct roster *r, uint64_t now)
{
    for (int i = 0; i < r->starts.n; i++) {
        const struct roster_start *s = &r->starts.list[i];
        int slot = -1, agent = -1;
        if (s->due <= now)
            agent = roster_agents_choose(&r->agents, &r->members, s->agent, &slot);
        if (agent < 0)
            continue;
        int member = roster_add_member(r, agent, slot);
        if (member < 0)
            return; /* out of memory: the next tick tries again */
        roster_step(r, member, RANK_JOIN, now, NULL);
        roster_note(r, NOTE_START, member, slot, "");
        roster_starts_remove(&r->starts, i--);
    }
}

void roster_fill(struct roster *r, uint64_t now)
{
    int limit = r->elastic.reset_limit;
    while (roster_have(r) < r->target && r->starts.n < r->elastic.max && !roster_is_finished(r) &&
           (limit == 0 || r->restarts < limit)) {
        r->restarts += limit > 0;
        roster_add_start(r, -1, now, limit > 0);
    }
    roster_shrink(r, roster_have(r) - r->target, "the job is to be smaller");
    roster_start_due(r, now);
    roster_consider(r, now);
}

uint32_t roster_apply_change(struct roster *r, uint64_t now)
{
    r->changes.requested++;
    while (roster_have(r) < r->target && r->starts.n < r->elastic.max)
        roster_add_start(r, -1, now, false);
    roster_shrink(r, roster_have(r) - r->target, "the job is to be smaller");
    roster_start_due(r, now);
    roster_consider(r, now);
    return r->changes.requested;
}
