/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_hosted: a roster whose hosts are pods that a cluster adds and removes. See roster.h.
 */
#include <stdio.h>

#include "core/member/roster_epoch.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_target.h"

int roster_resize(struct roster *r, int min, int max, int target, uint64_t now, struct err *err)
{
    char text[96];
    if (min < 1 || min > target || max < target || max > MEMBER_RANKS_MAX)
        return err_set(err, ERANGE, "%d ranks: want at least 1 <= min (%d) and at most max (%d)",
                       target, min, max);
    if (roster_starts_reserve(&r->starts, max) < 0)
        return err_set(err, ENOMEM, "no memory for %d ranks", max);
    r->elastic.min = min;
    if (max > r->elastic.max || r->starts.n <= max)
        r->elastic.max = max;
    if (r->rebuilding) {
        r->target = r->saved.target = target;
        return 0;
    }
    if (target == r->target) {
        roster_consider(r, now); /* min may have become lower */
        return 0;
    }
    snprintf(text, sizeof(text), "scaled from %d to %d ranks", r->target, target);
    r->target = target;
    if (r->stopping || r->closing || roster_is_finished(r))
        return 0;
    roster_changes_add_plan(&r->changes, text);
    roster_apply_change(r, now);
    return 0;
}

void roster_leave(struct roster *r, int agent, const char *text, uint64_t now)
{
    bool any = false;
    if (r->agents.list[agent].draining || r->agents.list[agent].lost || r->rebuilding ||
        r->stopping)
        return;
    r->agents.list[agent].draining = true;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (m->agent != agent || !member_is_wanted(m))
            continue;
        roster_ask_to_leave(r, i, text);
        any = true;
    }
    if (!any)
        return;
    roster_changes_add_plan(&r->changes, text);
    roster_apply_change(r, now);
}
