/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_hosts: changes an elastic job's hosts while it runs: adds a host, changes a host's slots.
 * See roster.h.
 */
#include <stdlib.h>

#include "core/member/roster_private.h"

int roster_add_host(struct roster *r, const struct roster_host *host, struct err *err)
{
    struct roster_agent *grown = realloc(r->agents, ((size_t)r->nagents + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for one more host");
    r->agents = grown;
    r->agents[r->nagents] = (struct roster_agent){0};
    if (roster_add_agent(r, host) < 0)
        return err_set(err, ENOMEM, "no memory for one more host");
    return 0;
}

int roster_set_slots(struct roster *r, int agent, int slots, struct err *err)
{
    struct roster_agent *a = &r->agents[agent];
    if (a->lost)
        return err_set(err, ENOENT, "host %.100s: its agent is lost", a->host);
    if (slots > a->room) {
        struct roster_slot *grown = realloc(a->slots, ((size_t)slots + 1) * sizeof(*grown));
        if (!grown)
            return err_set(err, ENOMEM, "no memory for %d slots", slots);
        a->slots = grown;
        for (; a->room < slots; a->room++)
            a->slots[a->room] = (struct roster_slot){.member = -1};
    }
    a->nslots = slots; /* a member beyond that number stays until it is drained */
    a->draining = false;
    return 0;
}

int roster_rank_without_slot(const struct roster *r, int agent)
{
    int highest = -1;
    for (int i = 0; i < r->nmembers; i++) {
        const struct roster_member *m = &r->members[i];
        if (m->agent == agent && m->assignment.local_rank >= r->agents[agent].nslots &&
            roster_survives(m) && !m->leaving && m->rank > highest)
            highest = m->rank;
    }
    return highest;
}
