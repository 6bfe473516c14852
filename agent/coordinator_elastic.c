/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_elastic: see coordinator_elastic.h.
 */
#include "agent/coordinator_elastic.h"

#include <stdio.h>

#include "core/base/clock.h"

#define HOLD_MS 500 /* the agent reports a death before the exit code */

/* ---- giving up ------------------------------------------------------------------------------ */

/* Returns whether no further rank will start or become ready. */
static bool is_hopeless(const struct roster *r)
{
    for (int i = 0; i < r->members.n; i++) {
        enum rank_state state = r->members.list[i].state;
        if (state == RANK_EXPECTED || state == RANK_ASSIGNED || state == RANK_RUNNING ||
            state == RANK_ARRIVED)
            return false;
    }
    return r->starts.n == 0 && roster_limit_reached(r);
}

static void consider_waiting(struct coordinator_elastic *e)
{
    char what[512];
    const struct roster *r = &e->core->roster;
    uint64_t now = clock_ns();
    if (!r->next.waiting_since || e->core->roster.stopping || roster_done(r)) {
        e->said_waiting = false;
        return;
    }
    roster_waiting_for(r, now, what, sizeof(what));
    if (!e->said_waiting)
        coordinator_say(e->core, 0, "waiting for %s", what);
    e->said_waiting = true;
    if (is_hopeless(r)) {
        e->gave_up = true;
        coordinator_fail(e->core,
                         "too few ranks are left, and --reset-limit %d is reached: no more are "
                         "started; it waited for %s",
                         r->elastic.reset_limit, what);
    } else if (now - r->next.waiting_since >= (uint64_t)e->core->job->elastic_timeout * CLOCK_S) {
        e->gave_up = true;
        coordinator_fail(e->core, "waited %d s (--elastic-timeout) for %s",
                         e->core->job->elastic_timeout, what);
    }
}

/* Before the first epoch: fails if too few ranks became ready in time. If enough are ready,
 * the first epoch begins without the other ranks. */
static void consider_first(struct coordinator_elastic *e)
{
    char list[512], ready[512];
    const struct roster *r = &e->core->roster;
    uint64_t limit = ((uint64_t)e->core->job->start_timeout + 1) * CLOCK_S;
    if (r->epoch > 0 || r->members.ready == 0 || e->core->roster.stopping ||
        clock_ns() - r->members.first_ready < limit)
        return;
    roster_list(r, RANK_RUNNING, list, sizeof(list));
    roster_list(r, RANK_READY, ready, sizeof(ready));
    coordinator_fail(
        e->core,
        "ranks %s did not call hvd_init within %d s; ranks %s waited for them, and are "
        "less than --min-np %d",
        list, e->core->job->start_timeout, ready, r->elastic.min);
}

/* Tells the user, as soon as it happens, that no rank is left with the state trained since the last
 * checkpoint. */
static void say_state_lost(struct coordinator_elastic *e)
{
    const struct roster *r = &e->core->roster;
    if (r->epoch == 0 || e->said_state_lost == r->epoch || e->core->roster.stopping ||
        roster_done(r) || roster_state_is_there(r))
        return;
    e->said_state_lost = r->epoch;
    coordinator_say(
        e->core, 0,
        "no rank is left that has the job's state in memory: the ranks begin anew, from "
        "what the program has stored (a checkpoint), or from its start");
}

/* ---- messages ------------------------------------------------------------------------------ */

/* Is the exit code of a rank that died or left still unknown? */
static bool any_unreaped(const struct roster *r)
{
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        bool left = m->state == RANK_LEFT && m->left_at;
        if ((rank_has_ended(m->state) || left) && !m->reaped && !r->agents.list[m->agent].lost)
            return true;
    }
    return false;
}

static void say_held(struct coordinator_elastic *e)
{
    if (e->change_held)
        coordinator_say(e->core, 0, "%s", e->change);
    e->change_held = 0;
}

/* Prints one line for each epoch. Holds it for HOLD_MS while a dead rank's exit code is unknown. */
static void say_epochs(struct coordinator_elastic *e)
{
    const struct roster *r = &e->core->roster;
    uint64_t now = clock_ns();
    bool fresh = r->epoch > e->said_epoch && r->epoch > 1;
    if (fresh)
        say_held(e);
    if (!fresh && !e->change_held)
        return;
    snprintf(e->change, sizeof(e->change), "epoch %u: %d of %d ranks after %.1f ms: %s",
             roster_epoch_number(r->epoch), r->size, r->target - r->ends.finished,
             (double)r->last.took / CLOCK_MS, r->last.cause);
    if (fresh)
        e->change_held = now;
    e->said_epoch = r->epoch;
    if (!any_unreaped(r) || now - e->change_held >= HOLD_MS * CLOCK_MS)
        say_held(e);
}

/* Prints events that the line of an epoch does not mention. */
static void say_notes(struct coordinator_elastic *e)
{
    const struct roster *r = &e->core->roster;
    for (; e->said_notes < r->notes.n; e->said_notes++) {
        const struct note *n = &r->notes.list[e->said_notes];
        bool joiner = n->member >= 0 && !r->members.list[n->member].was_in;
        if (n->type == NOTE_LOST && joiner && !r->stopping && r->ends.first < 0)
            coordinator_say(e->core, 0, "%s", n->text);
        else if (n->type == NOTE_START)
            coordinator_say(e->core, 1, "member %d is started on %s", n->member,
                            r->agents.list[r->members.list[n->member].agent].host);
        else if (n->type == NOTE_LEAVE)
            coordinator_say(e->core, joiner ? 0 : 1, "member %d leaves: %s", n->member, n->text);
        else if (n->type == NOTE_EVICT)
            coordinator_say(e->core, 0, "member %d: %s", n->member, n->text);
        else if (n->type == NOTE_CHANGE)
            coordinator_say(e->core, 1, "change %d waits for the next boundary", n->code);
    }
}

void coordinator_elastic_check(struct coordinator_elastic *e)
{
    struct roster *r = &e->core->roster;
    int notes = r->notes.n;
    uint32_t epoch = r->epoch;
    roster_tick(r, clock_ns());
    if (r->notes.n != notes || r->epoch != epoch)
        coordinator_changed(e->core);
    if (!r->is_elastic)
        return;
    printer_grow(&e->core->printer, r->members.n);
    explain_grow(&e->core->explain, r->members.n);
    say_notes(e);
    say_epochs(e);
    consider_first(e);
    say_state_lost(e);
    consider_waiting(e);
}
