/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_ends: see roster_ends.h.
 */
#include "core/member/roster_ends.h"

void roster_ends_init(struct roster_ends *e)
{
    *e = (struct roster_ends){.first = -1,
                              .early = -1,
                              .follower = -1,
                              .at_end = -1,
                              .unreplaced = -1,
                              .last_failed = -1};
}

static void keep_first(int *member, int candidate)
{
    if (*member < 0)
        *member = candidate;
}

void roster_ends_record(struct roster_ends *e, int member, enum rank_end end)
{
    if (rank_end_counts(end))
        e->last_failed = member;
    switch (end) {
    case END_EARLY:
        keep_first(&e->early, member);
        break;
    case END_FAILS_JOB:
        keep_first(&e->first, member);
        break;
    case END_FOLLOWS:
        keep_first(&e->follower, member);
        break;
    case END_FAILS_AT_END:
        keep_first(&e->at_end, member);
        break;
    case END_REPLACED_OR_FAILS:
        e->unreplaced = member;
        break;
    case END_NONE:
    case END_FINISHED:
    case END_REPLACED:
    case END_AS_ASKED:
    case END_STOPPED:
    case RANK_ENDS:
        break;
    }
}

int roster_ends_culprit(const struct roster_ends *e, bool elastic, int survivors)
{
    if (e->first >= 0)
        return e->first;
    if (!elastic || e->follower >= 0)
        return e->follower;
    if (e->at_end >= 0)
        return e->at_end;
    if (e->unreplaced >= 0 && survivors == 0)
        return e->unreplaced;
    return e->finished == 0 ? e->last_failed : -1;
}
