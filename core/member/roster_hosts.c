/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_hosts: changes an elastic job's hosts while it runs: adds a host, changes a host's slots.
 * See roster.h.
 */
#include "core/member/roster_private.h"

int roster_set_slots(struct roster *r, int agent, int slots, struct err *err)
{
    struct roster_agent *a = &r->agents.list[agent];
    if (a->lost)
        return err_set(err, ENOENT, "host %.100s: its agent is lost", a->host);
    if (roster_agent_set_slots(a, slots) < 0)
        return err_set(err, ENOMEM, "no memory for %d slots", slots);
    a->draining = false;
    return 0;
}

int roster_rank_without_slot(const struct roster *r, int agent)
{
    int highest = -1;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (m->agent == agent && m->assignment.local_rank >= r->agents.list[agent].nslots &&
            member_survives(m) && !m->leaving && m->rank > highest)
            highest = m->rank;
    }
    return highest;
}
