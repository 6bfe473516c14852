/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_arrivals: see roster_arrivals.h.
 */
#include "core/member/roster_arrivals.h"

#include "core/member/roster_life.h"

/* Number of the world's ranks on an agent. */
static int count_there(const struct roster *r, int agent)
{
    int n = 0;
    for (int i = 0; i < r->world.n; i++)
        n += r->members.list[r->world.cards[i].member].agent == agent;
    return n;
}

/* The numbers as if this member alone were admitted now: the last rank of the world and of its
 * host.
 */
static struct rank_numbers numbers_of(const struct roster *r, int member)
{
    int agent = r->members.list[member].agent, local = count_there(r, agent);
    struct rank_numbers p = {.epoch = r->epoch,
                             .rank = r->world.n,
                             .size = r->world.n + 1,
                             .local_size = local + 1,
                             .cross_size = 1};
    for (int a = 0; a < r->agents.n; a++) {
        bool alike = a != agent && count_there(r, a) > local;
        p.cross_size += alike;
        p.cross_rank += alike && a < agent;
    }
    return p;
}

void roster_number_arrivals(struct roster *r)
{
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        /* A member that was in a world before has started up already, so it needs no numbers. */
        if (!member_is_joiner(m) || m->why != CARD_JOIN || m->was_in)
            continue;
        const struct note n = {
            .type = NOTE_NUMBERS, .member = i, .epoch = r->epoch, .numbers = numbers_of(r, i)};
        if (roster_notes_add(&r->notes, &n)) /* out of memory: the next tick tries again */
            roster_step(r, i, RANK_NUMBERS, 0, NULL);
    }
}
