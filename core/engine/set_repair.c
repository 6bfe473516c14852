/* SPDX-License-Identifier: Apache-2.0
 *
 * set_repair: the circles of sets when the world enters another epoch (REPAIR.md, Sets). When the
 * world's epoch ends, those of all sets end, too. In the new epoch the members of each set meet on
 * the world's control tree (negotiate/rendezvous): each brings its report and a fresh card. When
 * all have come they make a mesh, settle what was in flight, and go on (set_renew.c). No other rank
 * takes part, and other sets and the world do not wait, but for a rank that is making a mesh at
 * that moment.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_private.h"

/* ---- the end of an epoch -------------------------------------------------------------------- */

static void forget_id(void *ctx, struct slot *slot)
{
    (void)ctx;
    if (slot->set != 0)
        slot->has_id = false;
}

void set_drop_meeting(struct set *set)
{
    set->meets = false;
    mesh_listener_destroy(set->listener);
    set->listener = NULL;
    set->next_met = NULL;
    boot_drop_cards(&set->boot);
}

/* A member of a broken set goes on telling its report: if the epoch ends, others may not have heard
 * it. */
static bool meets_again(const struct set *set)
{
    return set->circle.state == CIRCLE_LOST || set->broken;
}

void set_end_epoch(struct engine *e, struct set *set, const char *why)
{
    struct circle *c = &set->circle;
    sets_unwatch(e, set);
    if (c->batches.running || gpu_lane_is_aloft(c))
        mesh_abort(c->mesh, why);
    else
        mesh_part(c->mesh);
    remains_keep(c);
    if (c->state == CIRCLE_WORKS)
        c->state = CIRCLE_LOST;
}

void sets_revoke_gpus(struct engine *e)
{
    for (size_t i = 0; i < e->sets.n; i++)
        gpu_lane_revoke(&e->sets.table[i]->circle);
}

void sets_revoke(struct engine *e, const char *why)
{
    struct sets *sets = &e->sets;
    if (sets->epoll_fd < 0)
        return;
    for (size_t i = 0; i < sets->n; i++) {
        if (meets_again(sets->table[i]))
            set_drop_meeting(sets->table[i]);
        sets->table[i]->held = false;
        sets->table[i]->told_of_removal = false;
    }
    sets->met = NULL;
    sets->met_end = &sets->met;
    while (sets->ncircles > 0)
        set_end_epoch(e, list_entry(sets->circles[0], struct set, circle), why);
    queue_each(e->queue, forget_id, NULL);
}

void sets_forget_met(struct engine *e, struct set *set)
{
    struct sets *sets = &e->sets;
    struct set **at = &sets->met;
    while (*at && *at != set)
        at = &(*at)->next_met;
    if (!*at)
        return;
    *at = set->next_met;
    set->next_met = NULL;
    sets->met_end = &sets->met;
    while (*sets->met_end)
        sets->met_end = &(*sets->met_end)->next_met;
}

void sets_drop_lost(struct engine *e, const struct err *why)
{
    for (size_t i = 0; i < e->sets.n; i++) {
        struct circle *c = &e->sets.table[i]->circle;
        if (c->state != CIRCLE_LOST)
            continue;
        coll_stop(c->remains.coll);
        if (gpu_lane_in_use(c))
            device_end(c->device);
        messages_fail(c, why); /* behind that: NCCL does not touch their memory any more */
        batches_drop(c);
    }
}

/* ---- meeting -------------------------------------------------------------------------------- */

/* The members of a set that is lost have met, or one of them cannot come. */
static void met(struct circle *world, struct meeting *self, const struct rendezvous_end *end)
{
    struct engine *e = world->engine;
    struct set *set = list_entry(self, struct set, meeting);
    set->meets = end->err.code == 0; /* until go_on() */
    if (end->err.code == -ESHUTDOWN) {
        e->conflict = end->err; /* the members go on without that rank, in the next epoch */
        return;
    }
    if (end->err.code) {
        struct err err = end->err;
        err_prefix(&err, "%s: its ranks did not come together after a loss", set->text);
        coll_stop(set->circle.remains.coll);
        circle_break(&set->circle, UINT32_MAX, &err);
        remains_fini(&set->circle);
        return;
    }
    for (int i = 0; i < end->n; i++) {
        buf_put(&set->boot.cards[i], end->of[i].data, end->of[i].len);
        if (set->boot.cards[i].failed)
            err_set(&e->trouble, ENOMEM, "no memory for the cards of %s", set->text);
    }
    *e->sets.met_end = set;
    e->sets.met_end = &set->next_met;
}

/* The members of the set that are in this epoch. A set that shrinks does without those that are
 * part of a broken unit. */
static void take_members(struct engine *e, struct set *set)
{
    const struct world *w = e->worlds;
    struct boot *b = &set->boot;
    b->size = set_view_filter(set->members, b->size, w, b->epoch, !set->fixed);
    b->epoch = w->epoch;
    for (int i = 0; i < b->size; i++) {
        set->ranks[i] = world_rank_of(w, set->members[i]);
        if (set->ranks[i] == w->rank)
            b->rank = i;
    }
}

static uint8_t flags_of(const struct set *set)
{
    return (uint8_t)((set->circle.ending ? SET_REMOVES : 0) | (set->fixed ? SET_FIXED : 0) |
                     (set->moves ? SET_SETTLES : 0) | (set->stale ? SET_STALE : 0) |
                     (set->blank    ? SET_BLANK
                      : set->broken ? SET_BROKEN
                                    : 0));
}

static int enter(struct engine *e, struct set *set, struct buf *mine, struct err *err)
{
    char name[32];
    take_members(e, set);
    if (set->generation) /* a member of the old group does not meet those of the new one */
        snprintf(name, sizeof(name), "%d of %u", set->number, set->generation);
    else
        snprintf(name, sizeof(name), "%d", set->number);
    const struct rendezvous_point point = {
        .name = name, .round = SET_ROUND_REPAIR, .ranks = set->ranks, .n = set->boot.size};
    set->meeting.end = met;
    set->meets = true;
    set->told_of_removal |= set->circle.ending;
    buf_put_u8(mine, flags_of(set));
    report_put(&set->circle.remains.report, mine);
    int rc = boot_make_cards(&set->boot, false, err);
    if (rc == 0)
        rc = mesh_listen_within(e->circle.mesh, &set->boot, &set->listener, mine, err);
    return rc == 0 ? meet_enter(&e->circle, &point, mine, e->set.start_timeout_ms * CLOCK_MS,
                                &set->meeting, err)
                   : rc;
}

void set_enter(struct engine *e, struct set *set)
{
    struct buf mine = {0};
    struct err err = {0};
    set->held = false;
    int rc = enter(e, set, &mine, &err);
    buf_fini(&mine);
    if (rc == -ESHUTDOWN) /* rank 0, or the first rank of this host: it is out of the next epoch */
        e->conflict = err;
    else if (rc < 0 && !e->trouble.code) /* the others can go on without this rank */
        err_set(&e->trouble, -rc, "%s: %s", set->text, err.msg);
}

bool set_stays_out(struct engine *e, struct set *set)
{
    struct circle *c = &set->circle;
    struct err why = {0};
    if (!e->worlds->broken[e->worlds->rank] || set->fixed || set->view.rank < 0)
        return false;
    set->gains = set->held = false;
    set->out = true;
    if (c->state != CIRCLE_LOST)
        return true;
    set_unit_error(e, set->text, &why);
    set->blank = true;
    coll_stop(c->remains.coll);
    batches_dissolve(c);
    circle_break(c, UINT32_MAX, &why);
    remains_fini(c);
    return true;
}

void sets_enter(struct engine *e)
{
    struct sets *sets = &e->sets;
    if (sets->epoll_fd >= 0 && sets_watch_world(e, &e->trouble) < 0)
        return;
    for (size_t i = 0; i < sets->n; i++) {
        struct set *set = sets->table[i];
        if (set_stays_out(e, set))
            continue;
        if (set->gains)
            set_gain(e, set);
        else if (meets_again(set) && sets->sharing)
            set->held = true;
        else if (meets_again(set))
            set_enter(e, set);
    }
}
