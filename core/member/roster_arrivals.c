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

/* Whether the place of this member of the world is free at the next boundary. */
static bool is_vacant(const struct roster *r, const struct card *c)
{
    const struct roster_member *m = &r->members.list[c->member];
    return r->elastic.keep_places && (!member_survives(m) || m->leaving);
}

/* Number of joiners that come before this one where each takes the lowest free place. */
static int count_before(const struct roster *r, int member)
{
    int n = 0;
    for (int i = 0; i < member && r->elastic.keep_places; i++) {
        const struct roster_member *m = &r->members.list[i];
        n += member_is_joiner(m) || (m->state == RANK_ARRIVED && member_is_wanted(m));
    }
    return n;
}

/* The place that this joiner takes if the joiners before it are admitted, too: the lowest one that
 * is free then. Where places are not kept: the one behind the world's last rank. */
static int place_of(const struct roster *r, int member)
{
    int place = 0, skip = count_before(r, member);
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        if (is_vacant(r, c))
            continue;
        if (c->place - place > skip)
            break;
        skip -= c->place - place;
        place = c->place + 1;
    }
    return place + skip;
}

/* The numbers as if this member alone were admitted now: the last rank of its host, and of the
 * world where places are not kept. */
static struct rank_numbers numbers_of(const struct roster *r, int member)
{
    int agent = r->members.list[member].agent, local = count_there(r, agent);
    struct rank_numbers p = {.epoch = r->epoch,
                             .place = place_of(r, member),
                             .size = r->world.n + 1,
                             .local_size = local + 1,
                             .cross_size = 1};
    while (p.rank < r->world.n && r->world.cards[p.rank].place < p.place)
        p.rank++;
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
