/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_late: see roster_late.h.
 *
 * While an agent of the world is away, no epoch begins: its members count as survivors that have
 * not answered. So an agent that is not lost is in the present epoch, and can come back. An agent
 * outside the world can come back as long as its ranks have never been in an epoch.
 */
#include "core/member/roster_late.h"

#include <errno.h>

#include "core/member/roster_epoch.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_rebuild.h"
#include "core/member/roster_replace.h"

/* Whether the roster has that member in its world, on that agent, and has not given it up. */
static bool is_in_world(const struct roster *r, int agent, int member)
{
    const struct roster_member *m = member < r->members.n ? &r->members.list[member] : NULL;
    return m && agent >= 0 && m->agent == agent && m->rank >= 0 && !rank_has_ended(m->state);
}

/* A member outside the world that has ended means nothing to the roster any more. */
static bool is_of_interest(const struct roster *r, int agent, const struct rejoin_member *t)
{
    return is_in_world(r, agent, t->member) || !(t->over || t->dead);
}

/* current: a member of the agent is in the world. Others that were in an epoch have left it. */
static int check_member(const struct roster *r, int agent, bool current, const struct rejoin *told,
                        int i, struct err *err)
{
    const struct rejoin_member *t = &told->members[i];
    bool wrong = t->member >= roster_members_end(r) ||
                 (agent >= 0 && t->local_rank >= r->agents.list[agent].room);
    for (int k = 0; k < i && !wrong; k++)
        wrong = told->members[k].member == t->member;
    if (wrong)
        return err_set(err, EINVAL, "member %d in slot %d cannot be", t->member, t->local_rank);
    if (is_in_world(r, agent, t->member) || !is_of_interest(r, agent, t))
        return 0;
    if (t->epoch > 0 && !current)
        return err_set(err, ESTALE, "member %d was in epoch %u, and epoch %u goes on without it",
                       t->member, roster_epoch_number(t->epoch), roster_epoch_number(r->epoch));
    if (t->member < r->members.n && !roster_is_unreported(&r->members.list[t->member]))
        return err_set(err, EINVAL, "the number of member %d has been given again", t->member);
    return 0;
}

static int check(const struct roster *r, int agent, const struct rejoin *told, struct err *err)
{
    int rc = 0;
    bool current = false;
    if (told->world.epoch > r->epoch)
        return err_set(err, ESTALE, "this coordinator began without epoch %u",
                       roster_epoch_number(told->world.epoch));
    for (int i = 0; i < told->n; i++)
        current |= is_in_world(r, agent, told->members[i].member);
    for (int i = 0; i < told->n && rc == 0; i++)
        rc = check_member(r, agent, current, told, i, err);
    return rc;
}

int roster_check_late(const struct roster *r, const struct rejoin *told, struct err *err)
{
    return check(r, -1, told, err);
}

/* The late agent reports that it was told of a planned change of the members, of which no other
 * agent has reported. */
static void take_change(struct roster *r, uint32_t change)
{
    if (change <= r->changes.announced)
        return;
    r->changes.announced = change;
    if (r->changes.requested < change)
        r->changes.requested = change;
    roster_note(r, NOTE_CHANGE, -1, (int)change, "");
}

int roster_take_late(struct roster *r, int agent, struct rejoin *told, uint64_t now,
                     struct err *err)
{
    int rc =
        told ? check(r, agent, told, err)
             : err_set(err, EEXIST, "agent \"%.64s\" has joined before", r->agents.list[agent].uid);
    int n = 0;
    for (int i = 0; rc == 0 && i < told->n; i++)
        if (is_of_interest(r, agent, &told->members[i]) && told->members[i].member >= n)
            n = told->members[i].member + 1;
    if (rc == 0 && roster_add_ended(r, n) < 0)
        rc = err_set(err, ENOMEM, "no memory for %d members", n);
    if (rc < 0)
        return rc;
    r->agents.list[agent].away = false;
    r->agents.list[agent].joined = true;
    take_change(r, told->change);
    for (int i = 0; i < told->n; i++) {
        struct rejoin_member *t = &told->members[i];
        if (!is_of_interest(r, agent, t))
            continue;
        roster_take_member(r, agent, t, now);
        roster_take_end(r, t, now);
    }
    roster_take_missing(r, agent, told, now);
    if (!r->stopping && !r->closing)
        roster_shrink(r, roster_have(r) - r->target, "the job is to be smaller");
    roster_consider(r, now);
    return 0;
}
