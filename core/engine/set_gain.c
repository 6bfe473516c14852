/* SPDX-License-Identifier: Apache-2.0
 *
 * set_gain: see set_gain.h.
 */
#include "core/engine/set_gain.h"

#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/messages.h"
#include "core/engine/set_private.h"

/* ---- who comes ------------------------------------------------------------------------------ */

/* The user's world before w, which the user has entered or is about to enter. NULL: there was none.
 */
static const struct world *before(const struct engine *e, const struct world *w)
{
    return w == e->world ? e->previous : e->world;
}

static bool has_missed(const struct engine *e, const struct world *w, int rank)
{
    const struct world *from = before(e, w);
    return w->fresh[rank] || (from && !world_has_worked(w, from->epoch, w->members[rank]));
}

bool sets_will_gain(const struct engine *e, const struct world *w)
{
    bool any = false;
    for (int r = 0; e->boot.keeps_places && r < w->size; r++)
        any = any || (!w->broken[r] && has_missed(e, w, r));
    return any;
}

bool sets_is_stale(const struct engine *e, const struct world *w)
{
    return has_missed(e, w, w->rank);
}

/* The members at the set's places. Returns their number; -1: it is a fixed set that is not whole.
 */
static int find_members(const struct set *set, const struct world *w, uint32_t *members)
{
    int n = 0;
    bool whole = true;
    for (int i = 0; i < set->whole; i++) {
        int r = world_at_place(w, set->places[i]);
        whole = whole && r >= 0 && !w->broken[r];
        if (r >= 0 && !w->broken[r])
            members[n++] = w->members[r];
    }
    return set->fixed && !whole ? -1 : n;
}

bool set_has_target(const struct engine *e, const struct set *set)
{
    int n = 0, have = set->boot.size;
    uint32_t since = set->since;
    for (int i = 0; i < set->ntarget; i++) {
        uint32_t member = set->target[i];
        if (set->fixed ? !world_has_kept(e->worlds, since, member)
                       : !world_has_worked(e->worlds, since, member))
            continue;
        if (n >= have || set->members[n++] != member)
            return false;
    }
    return n == have;
}

/* ---- the circle ----------------------------------------------------------------------------- */

void set_clear_failure(struct set *set)
{
    struct circle *c = &set->circle;
    if (c->state != CIRCLE_FAILED)
        return;
    messages_fini(c);
    c->state = CIRCLE_LOST;
    c->failure = (struct err){0};
}

/* The members have met, and some of them may be making the circle. */
static bool is_answered(const struct engine *e, const struct set *set)
{
    const struct set *at = e->sets.met;
    while (at && at != set)
        at = at->next_met;
    return at != NULL;
}

static void leave_meeting(struct engine *e, struct set *set)
{
    if (set->meets)
        rendezvous_forget(e->circle.rendezvous, &set->meeting);
    set_drop_meeting(set);
}

/* Its members have met in this epoch, and it lacks a rank again. */
static bool has_broken_again(const struct engine *e, const struct set *set)
{
    return set->broken && set->circle.state == CIRCLE_FAILED && set->boot.epoch == e->worlds->epoch;
}

void set_gain(struct engine *e, struct set *set)
{
    if (is_answered(e, set)) { /* first that circle is made: others wait for this rank there */
        set_clear_failure(set);
        return;
    }
    set->gains = set->held = false;
    if (set_has_target(e, set) && set->meets) { /* rank 0 takes no other card for this meeting */
        set_clear_failure(set);
        return;
    }
    if (set_has_target(e, set) && has_broken_again(e, set))
        return;
    if (set->circle.state == CIRCLE_WORKS)
        set_end_epoch(e, set, "ranks come to the set");
    leave_meeting(e, set);
    set_clear_failure(set);
    memcpy(set->members, set->target, (size_t)set->ntarget * sizeof(*set->members));
    set->boot.size = set->ntarget;
    set->boot.epoch = set->since;
    set_enter(e, set);
}

/* ---- the user's view ------------------------------------------------------------------------ */

static int find_source(const struct set *set, const uint8_t *stale)
{
    for (int i = 0; i < set->view.size; i++)
        if (!stale[set->view.ranks[i]])
            return i;
    return -1;
}

/* All locks are held. */
static void show(struct engine *e, struct set *set, const struct world *w, const uint8_t *stale)
{
    int n = set->places && !w->broken[w->rank] ? find_members(set, w, set->target) : -1;
    if (n < 0)
        return;
    set->ntarget = n;
    set->target_epoch = w->epoch;
    set->since = e->worlds->epoch;
    set_view_become(&set->view, w, set->target, n);
    set->source = find_source(set, stale);
    queue_change_set(e->queue, set->number, set->view.rank, n);
    set_write_text(set);
    bool complete = !set->blank && !set->broken && set_has_target(e, set);
    set->gains = set->view.rank >= 0 && !complete;
    set->outdated |= set->gains;
    if (set->view.rank >= 0 && !set->gains)
        set_update_maps(set);
}

static void show_all(struct engine *e, struct world *w, const uint8_t *stale)
{
    pthread_mutex_lock(&e->sets.lock);
    queue_lock(e->queue);
    for (size_t i = 0; i < e->sets.n; i++)
        show(e, e->sets.table[i], w, stale);
    int source = 0;
    while (source < w->size && stale[source])
        source++;
    pthread_mutex_lock(&e->world_lock);
    w->source = source < w->size ? source : 0;
    pthread_mutex_unlock(&e->world_lock);
    queue_unlock(e->queue);
    pthread_mutex_unlock(&e->sets.lock);
}

/* This rank has joined a unit that is still broken. */
static void fail_blank(struct engine *e, struct set *set)
{
    struct err why = {0};
    if (!set->blank || set->circle.state != CIRCLE_LOST || set->meets)
        return;
    set_unit_error(e, set->text, &why);
    circle_break(&set->circle, UINT32_MAX, &why);
}

/* This rank has just learned of a fixed set that lacks a rank, and the others of its unit do not
 * know that. In the next epoch it tells them. */
static void tell_of_units(struct engine *e)
{
    struct err why = {0};
    for (size_t i = 0; i < e->sets.n && !why.code; i++)
        if (e->sets.table[i]->blank && set_is_untold(e, e->sets.table[i]))
            err_set(&why, EOWNERDEAD, "%s lacks a rank, and not all ranks know that",
                    e->sets.table[i]->text);
    if (why.code && !e->failed)
        engine_repair(e, &why);
}

/* If the members of a broken set have met, and this rank has not acted on that, it does so now:
 * from here on the user's requests are for the ranks that come. */
static void gain(struct engine *e, struct set *set)
{
    if (set->fixed && is_answered(e, set) && set_is_broken_now(e, set))
        set_go_on(e, set);
    else
        set_gain(e, set);
}

void sets_gain(struct engine *e, struct world *w, const uint8_t *stale)
{
    drive_lock(e);
    e->sets.sharing = false;
    show_all(e, w, stale);
    tell_of_units(e);
    for (size_t i = 0; i < e->sets.n && !e->failed; i++) {
        struct set *set = e->sets.table[i];
        if (set_stays_out(e, set)) /* another rank was lost before this one has heard of the gain */
            continue;
        if (set->gains)
            gain(e, set);
        else if (set->held)
            set_enter(e, set);
        else
            fail_blank(e, set);
    }
    drive_leave(e);
}
