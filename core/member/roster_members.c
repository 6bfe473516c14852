/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_members: see roster_members.h.
 */
#include "core/member/roster_members.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int roster_members_reserve(struct roster_members *ms, int n)
{
    int cap = ms->cap ? ms->cap : n;
    while (cap < n)
        cap *= 2;
    if (cap == ms->cap)
        return 0;
    struct roster_member *grown = realloc(ms->list, (size_t)cap * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    ms->list = grown;
    ms->cap = cap;
    return 0;
}

int roster_members_add(struct roster_members *ms, int agent, int slot, int agents)
{
    if (ms->n == MEMBER_NUMBER_MAX || roster_members_reserve(ms, ms->n + 1) < 0)
        return -ENOMEM;
    int member = ms->n++;
    ms->list[member] = (struct roster_member){.agent = agent,
                                              .rank = -1,
                                              .was_rank = -1,
                                              .place = -1,
                                              .assignment = {member, slot, agent, agents}};
    return member;
}

static void member_fini(struct roster_member *m)
{
    buf_fini(&m->card);
    free(m->text);
    free(m->tail);
    free(m->sets);
}

void roster_members_fini(struct roster_members *ms)
{
    for (int i = 0; i < ms->n; i++)
        member_fini(&ms->list[i]);
    free(ms->list);
    *ms = (struct roster_members){0};
}

void member_take_tail(struct roster_member *m, const char *tail)
{
    free(m->tail);
    m->tail = tail[0] ? strdup(tail) : NULL;
}

void member_take_sets(struct roster_member *m, const struct set_report *sets)
{
    if (!sets || sets->n == 0) {
        free(m->sets);
        m->sets = NULL;
        return;
    }
    if (!m->sets)
        m->sets = malloc(sizeof(*m->sets));
    if (m->sets)
        *m->sets = *sets;
}

bool member_says_join(const struct roster_member *m)
{
    return m->why == CARD_JOIN || m->why == CARD_ENTER;
}

bool member_survives(const struct roster_member *m)
{
    return m->rank >= 0 &&
           (m->state == RANK_ACTIVE || (m->state == RANK_READY && !member_says_join(m)));
}

bool member_is_joiner(const struct roster_member *m)
{
    return m->state == RANK_READY && !m->leaving && (m->rank < 0 || member_says_join(m));
}

bool member_awaits_boundary(const struct roster_member *m)
{
    return member_is_joiner(m) && m->why == CARD_ENTER;
}

bool member_is_wanted(const struct roster_member *m)
{
    return !rank_has_ended(m->state) && !m->leaving && !m->unable;
}

bool member_may_return(const struct roster_member *m)
{
    return m->state == RANK_LEFT && member_is_wanted(m);
}

int roster_members_count(const struct roster_members *ms, bool (*is)(const struct roster_member *m))
{
    int n = 0;
    for (int i = 0; i < ms->n; i++)
        n += is(&ms->list[i]);
    return n;
}
