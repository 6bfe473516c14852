/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_leave: see roster_leave.h.
 */
#include "core/member/roster_leave.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/member/roster_replace.h"

void roster_ask_to_leave(struct roster *r, int member, const char *text)
{
    struct roster_member *m = &r->members.list[member];
    m->leaving = true;
    if (!member_survives(m))
        roster_note(r, NOTE_LEAVE, member, 0, text);
}

/* Whether m, which has the higher number, leaves before b. Where hosts have an order: the last host
 * first. Then members without the state, the newest first. Then the highest rank. */
static bool goes_before(const struct roster *r, const struct roster_member *m,
                        const struct roster_member *b)
{
    int mine = r->agents.list[m->agent].order, other = r->agents.list[b->agent].order;
    bool survives = member_survives(m);
    if (mine != other)
        return mine > other;
    if (survives != member_survives(b))
        return !survives;
    return !survives || m->rank >= b->rank;
}

/* The next member to leave, -1: none. */
static int choose_leaver(const struct roster *r)
{
    int best = -1;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!member_is_wanted(m) || member_may_return(m))
            continue;
        const struct roster_member *b = best < 0 ? NULL : &r->members.list[best];
        if (!b || goes_before(r, m, b))
            best = i;
    }
    return best;
}

static bool has_place_and_stays(const struct roster_member *m)
{
    return member_survives(m) && member_is_wanted(m);
}

static bool is_present(const struct roster_member *m)
{
    return member_is_wanted(m) && !member_may_return(m);
}

/* Where places are kept: the member with the highest place, if joiners and pending starts cannot
 * fill all places below it; -1: none. Where hosts have an order, that order counts instead. */
static int choose_place(const struct roster *r)
{
    int best = -1, have = roster_members_count(&r->members, is_present) + r->starts.n;
    for (int i = 0; i < r->members.n && r->elastic.keep_places && !r->hosted; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (has_place_and_stays(m) && m->place >= have - 1 &&
            (best < 0 || m->place > r->members.list[best].place))
            best = i;
    }
    return best;
}

void roster_shrink(struct roster *r, int n, const char *text)
{
    for (; n > 0; n--) {
        int leaver = choose_place(r);
        if (leaver < 0 && r->starts.n > 0) {
            r->starts.n--;
            continue;
        }
        leaver = leaver < 0 ? choose_leaver(r) : leaver;
        if (leaver >= 0)
            roster_ask_to_leave(r, leaver, text);
    }
}

/* Does not count ranks that may still come back: each is counted when it does. */
void roster_came_back(struct roster *r)
{
    int n = roster_have(r) - roster_members_count(&r->members, member_may_return) - r->target;
    if (r->is_elastic && !r->rebuilding && !r->stopping && !r->closing)
        roster_shrink(r, n,
                      "a rank that had left came back, and the job has more ranks than its target");
}

/* Describes why this joiner was never admitted before the job ended. */
static void describe_outsider(const struct roster *r, int member, uint64_t now, char *dst,
                              size_t size)
{
    const struct roster_member *m = &r->members.list[member];
    if (m->state != RANK_READY)
        snprintf(dst, size, "the job ends before it was ready for admission");
    else if (r->had_boundary)
        snprintf(dst, size, "the job ends before the step boundary that would have admitted it");
    else
        snprintf(
            dst, size,
            "the job ends; it was ready for admission for %.1f s, but the ranks reached no step "
            "boundary: a program that never calls hvd_commit() (Python: state.commit()) admits "
            "no rank",
            (double)(now - m->waits) / CLOCK_S);
}

void roster_wind_down(struct roster *r, uint64_t now)
{
    char text[256];
    r->starts.n = 0;
    for (int i = 0; i < r->members.n && !r->stopping; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!member_is_wanted(m) || (m->was_in && !member_awaits_boundary(m)))
            continue;
        describe_outsider(r, i, now, text, sizeof(text));
        roster_ask_to_leave(r, i, text);
    }
}
