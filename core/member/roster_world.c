/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_world: see roster_world.h.
 */
#include "core/member/roster_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/member/roster_life.h"

/* The first epoch of a new term is higher than any epoch of an earlier term. */
static uint32_t next_epoch(const struct roster *r)
{
    if (r->epoch >> ROSTER_TERM_SHIFT >= r->term)
        return r->epoch + 1;
    return r->term << ROSTER_TERM_SHIFT | (roster_epoch_number(r->epoch) + 1);
}

/* Builds a roster of the members in list, in order of their new ranks, with copies of their present
 * cards. A later card of a rank is for a later epoch. */
static int make_world(const struct roster *r, const struct roster_placed *list, int n,
                      bool new_world, struct roster_body *ret)
{
    struct roster_body world = {
        .epoch = next_epoch(r), .keep_places = r->elastic.keep_places, .n = n};
    memcpy(world.key, r->key, sizeof(world.key));
    world.cards = calloc((size_t)n, sizeof(*world.cards));
    if (!world.cards)
        return -ENOMEM;
    bool failed = false;
    for (int i = 0; i < n; i++) {
        const struct roster_member *m = &r->members.list[list[i].member];
        const struct roster_agent *a = &r->agents.list[m->agent];
        struct card *c = &world.cards[i];
        c->member = list[i].member;
        c->rank = i;
        c->place = list[i].place;
        /* In the first epoch no rank counts as new, because no rank has training state yet. */
        c->is_new = r->epoch > 0 && member_says_join(m) && !(new_world && m->was_in);
        snprintf(c->agent, sizeof(c->agent), "%s", a->uid);
        snprintf(c->host, sizeof(c->host), "%s", a->host);
        buf_put(&c->bytes, m->card.data, m->card.len);
        failed |= c->bytes.failed;
    }
    if (failed) {
        roster_body_fini(&world);
        return -ENOMEM;
    }
    *ret = world;
    return 0;
}

static void install(struct roster *r, uint64_t now)
{
    for (int i = 0; i < r->members.n; i++)
        r->members.list[i].rank = r->members.list[i].place = -1;
    for (int i = 0; i < r->world.n; i++) {
        int member = r->world.cards[i].member;
        struct roster_member *m = &r->members.list[member];
        roster_step(r, member, RANK_INSTALL, now, NULL);
        m->rank = m->was_rank = i;
        m->place = r->world.cards[i].place;
        m->is_new = r->world.cards[i].is_new;
        if (m->is_new)
            r->ends.unreplaced = -1; /* a new member has replaced the failed one */
        m->was_in = true;
        m->unable = false;
        m->left_at = 0;
        m->moved = now;
    }
}

void roster_publish(struct roster *r, const struct roster_placed *list, int n, bool new_world,
                    uint64_t now)
{
    struct roster_body world;
    if (make_world(r, list, n, new_world, &world) < 0)
        return;
    roster_body_fini(&r->world);
    r->world = world;
    r->world.change = r->changes.applied;
    r->world.announced = r->changes.announced;
    r->world.departed_done = r->departed_done;
    r->epoch = world.epoch;
    r->size = n;
    install(r, now);
    r->last = (struct roster_last){.epoch = r->epoch, .at = now};
    r->last.took = r->next.cause_at ? now - r->next.cause_at : 0;
    snprintf(r->last.cause, sizeof(r->last.cause), "%s", r->next.cause);
    roster_next_published(&r->next);
}
