/* SPDX-License-Identifier: Apache-2.0
 *
 * set_renew: the circle of a set in a new epoch, or with ranks that have come (set_gain.c), once
 * its members have met (set_repair.c).
 *
 * Several sets of a rank are made one after the other, each of them while the others of its ranks
 * make it. No two ranks wait for each other in different sets: rank 0 answers one meeting after the
 * other, every rank gets the answers in that order, and a rank forwards an answer before it acts on
 * it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/resubmit.h"
#include "core/engine/set_brought.h"
#include "core/engine/set_private.h"
#include "core/engine/settle.h"
#include "core/negotiate/ranklist.h"

#define PATIENCE_MS 20 /* for each set of this rank: another one may make others first */

/* ---- decisions ------------------------------------------------------------------------------ */

/* Members have acted in an earlier epoch on a decision that this rank has not heard: an operation
 * that one of them has finished then is finished here, too, and no other one. */
static void follow(struct set *set, const struct set_brought *b)
{
    struct remains *f = &set->circle.remains;
    struct decision d = {
        .what = DECISION_NOTHING, .done = set_brought_done(b), .gpu_done = set_brought_gpu_done(b)};
    if (f->report.done < d.done)
        d.what = DECISION_FINISH;
    f->decision = d;
}

/* 0: the reports show the operations that a departed rank has finished. */
static int decide(struct set *set, const struct set_brought *b, struct err *err)
{
    int me = 0;
    auto_free struct report *reports = calloc((size_t)b->n, sizeof(*reports));
    if (!reports)
        return err_set(err, ENOMEM, "no memory for %d reports", b->n);
    int n = set_brought_reports(b, set->boot.rank, reports, &me);
    return remains_decide(&set->circle, reports, n, 0, me, err);
}

/* ---- a circle ------------------------------------------------------------------------------- */

static int connect_members(struct set *set, struct err *err)
{
    struct circle *c = &set->circle;
    const struct engine *e = c->engine;
    struct mesh *mesh = NULL;
    int rc = mesh_create(&set->boot, TAKE(set->listener),
                         deadline_in_ms(CONNECT_MS + PATIENCE_MS * e->sets.n), &mesh, err);
    boot_drop_cards(&set->boot);
    if (rc < 0)
        return rc;
    if (mesh->hosts == 1)
        mesh_close_listener(mesh);
    remains_take_mesh(c, mesh);
    inject_point("set connect");
    rc = set_make_coll(set, err);
    if (rc == 0)
        rc = batches_resize(c, err);
    return rc == 0 ? settle(c, err) : rc;
}

/* The decision is made. */
static int make_circle(struct engine *e, struct set *set, struct err *err)
{
    struct circle *c = &set->circle;
    int rc = connect_members(set, err);
    if (rc == 0)
        rc = circle_negotiate(c, err);
    if (rc == 0)
        rc = sets_watch(e, set, err);
    if (rc < 0)
        return rc;
    set_update_maps(set);
    c->state = CIRCLE_WORKS;
    bool was_broken = set->broken;
    set->blank = set->broken = set->outdated = set->stale = false;
    if (set->gains && set_has_target(e, set))
        set->gains = false; /* others may have heard of the gain only now, and have nothing to do */
    if (set->gains) /* requests of now are for the ranks that come, too, who are not in this circle
                     */
        batches_dissolve(c);
    else
        resubmit_circle(c);
    remains_fini(c);
    if (was_broken)
        sets_tell_agent(e);
    return 0;
}

/* Ranks have come to the set: those of its operations end of which the user submitted none in this
 * set of ranks, and that no rank has begun. */
static void end_stale(struct set *set, uint64_t gpu_done)
{
    struct circle *c = &set->circle;
    struct err why = {0};
    gpu_lane_settle(c, gpu_done);
    if (c->remains.coll) /* the callers may use their tensors again as soon as they know */
        coll_restore(c->remains.coll);
    device_drain(c->device);
    remains_drop_old(c);
    c->batches.gpu.finished = gpu_done;
    err_set(&why, ESTALE,
            "ranks have come to %s since this was submitted: no tensor was changed. Look at the "
            "set's ranks, and submit it again",
            set->text);
    batches_dissolve(c);
    queue_end_stale(c->engine->queue, set->number, set->target_epoch, &why);
    set->stale = true;
    drive_wake_waiters(c->engine);
}

/* The members have nothing in flight, or nothing in common. */
static int begin_anew(struct engine *e, struct set *set, const struct set_brought *b,
                      struct err *err)
{
    struct circle *c = &set->circle;
    uint64_t gpu_done = set_brought_gpu_done(b);
    end_stale(set, gpu_done);
    c->done = set_brought_done(b);
    c->remains.decision =
        (struct decision){.what = DECISION_NOTHING, .done = c->done, .gpu_done = gpu_done};
    return make_circle(e, set, err);
}

/* The mesh may be complete for other ranks. */
static void give_up(struct circle *c, const struct err *why)
{
    circle_dissolve(c);
    coll_destroy(c->coll);
    c->coll = NULL;
    if (!c->mesh || c->mesh == c->remains.mesh || mesh_fd(c->mesh) < 0)
        return;
    mesh_abort(c->mesh, err_text(why));
    mesh_retire(c->mesh);
}

/* ---- a fixed set ---------------------------------------------------------------------------- */

/* An operation that one of the members has finished is finished on all; all others fail that were
 * submitted before the world `before`. */
static int end_operations(struct set *set, const struct set_brought *b, uint32_t before,
                          const struct err *why, struct err *err)
{
    struct circle *c = &set->circle;
    int rc = 0;
    if (b->any & SET_BROKEN)
        follow(set, b);
    else
        rc = decide(set, b, err);
    if (rc == 0)
        rc = settle_without_mesh(c, err);
    if (rc < 0)
        return rc;
    batches_dissolve(c);
    circle_break(c, before, why);
    remains_fini(c);
    return 0;
}

int set_unit_error(const struct engine *e, const char *who, struct err *ret)
{
    char text[160];
    auto_free int *ranks = NULL;
    const struct world *w = e->worlds;
    int n = 0;
    ranks = calloc((size_t)w->size, sizeof(*ranks));
    for (int r = 0; ranks && r < w->size; r++)
        if (w->broken[r])
            ranks[n++] = w->places[r];
    snprintf(text, sizeof(text), "ranks");
    if (n > 0)
        ranklist_text(ranks, n, text, sizeof(text));
    return err_set(
        ret, EOWNERDEAD,
        "%s: a fixed set has lost a rank, and those with the place%s cannot go on without it; its "
        "place is free for a replacement, which comes with hvd_commit()",
        who, text + strlen("rank"));
}

static void say_broken(struct engine *e, const struct set *set, struct err *ret)
{
    if (e->boot.keeps_places)
        set_unit_error(e, set->text, ret);
    else
        err_set(ret, EOWNERDEAD,
                "%s is fixed and has lost %d of its %d ranks; after hvd_commit(), remove it with "
                "hvd_set_remove() and make another one",
                set->text, set->whole - set->boot.size, set->whole);
}

bool set_is_broken_now(const struct engine *e, const struct set *set)
{
    const struct world *w = e->worlds;
    return set->boot.size < set->whole || w->broken[w->rank];
}

static void break_set(struct engine *e, struct set *set, const struct set_brought *b)
{
    struct err err = {0}, why = {0};
    bool known = set->broken || set->blank;
    say_broken(e, set, &why);
    if (set_is_untold(e, set)) /* in the next epoch this rank tells all others */
        e->conflict = why;
    int rc = known ? 0 : end_operations(set, b, UINT32_MAX, &why, &err);
    set_drop_meeting(set);
    if (rc < 0) {
        err_prefix(&err, "%s", set->text);
        engine_fail_rank(e, &err);
        return;
    }
    if (known && set->circle.state != CIRCLE_FAILED)
        circle_break(&set->circle, UINT32_MAX, &why);
    set->broken_at = set->broken ? set->broken_at : clock_ns();
    set->broken = true;
    sets_tell_agent(e);
}

/* All of its ranks are there. */
static int renew_fixed(struct engine *e, struct set *set, const struct set_brought *b,
                       struct err *err)
{
    struct err why = {0};
    int rc = 0;
    if (!(b->any & (SET_BROKEN | SET_BLANK))) {
        rc = decide(set, b, err);
        return rc == 0 ? make_circle(e, set, err) : rc;
    }
    if (set->outdated && !set->broken && !set->blank) { /* it has not heard before of the break */
        say_broken(e, set, &why);
        rc = end_operations(set, b, set->target_epoch, &why, err);
        set_clear_failure(set);
    }
    return rc == 0 ? begin_anew(e, set, b, err) : rc;
}

/* ---- a set that shrinks --------------------------------------------------------------------- */

/* Whether an operation is in flight that has to be settled. The same on all members: the decision
 * is that for one which has finished most. */
static int has_unsettled(struct set *set, const struct set_brought *b, bool *ret, struct err *err)
{
    struct decision d;
    int me = 0;
    auto_free struct report *reports = calloc((size_t)b->n, sizeof(*reports));
    if (!reports)
        return err_set(err, ENOMEM, "no memory for %d reports", b->n);
    int n = set_brought_reports(b, set->boot.rank, reports, &me);
    uint64_t done = set_brought_done(b), gpu_done = set_brought_gpu_done(b);
    bool behind = false;
    *ret = false;
    for (int i = 0; i < n; i++) {
        behind = behind || reports[i].done < done || reports[i].gpu_done < gpu_done;
        me = reports[i].done == done ? i : me;
    }
    int rc = n > 0 ? decision_make(reports, n, 0, me, &d, err) : 0;
    *ret = rc == 0 && n > 0 && (behind || d.what != DECISION_NOTHING);
    return rc;
}

static void keep_members_with_state(struct set *set, const struct set_brought *b)
{
    struct boot *boot = &set->boot;
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->flags[i] & SET_BLANK) {
            buf_fini(&boot->cards[i]);
            continue;
        }
        if (i == boot->rank)
            boot->rank = n;
        if (n < i) {
            boot->cards[n] = boot->cards[i];
            boot->cards[i] = (struct buf){0};
        }
        set->members[n] = set->members[i];
        set->ranks[n++] = set->ranks[i];
    }
    boot->size = n;
}

/* Operations of other threads are in flight among the members that are not blank. These settle
 * them in a mesh of their own, and all members meet again. */
static int settle_first(struct set *set, const struct set_brought *b, struct err *err)
{
    struct circle *c = &set->circle;
    size_t n = (size_t)b->n;
    auto_free uint32_t *members = malloc(n * sizeof(*members));
    if (!members)
        return err_set(err, ENOMEM, "no memory for %d ranks", b->n);
    memcpy(members, set->members, n * sizeof(*members));
    int rc = decide(set, b, err);
    keep_members_with_state(set, b);
    if (rc == 0)
        rc = connect_members(set, err);
    if (rc == 0) {
        mesh_part(c->mesh);
        mesh_retire(c->mesh);
        coll_destroy(c->coll);
        c->coll = NULL;
    }
    set_drop_meeting(set);
    set->boot.size = b->n;
    memcpy(set->members, members, n * sizeof(*members));
    return rc;
}

/* Returns 1 if the members have to meet again. */
static int renew_shrinking(struct engine *e, struct set *set, const struct set_brought *b,
                           struct err *err)
{
    bool unsettled = false;
    int rc = 0;
    if (!(b->any & (SET_BLANK | SET_STALE))) {
        rc = decide(set, b, err);
        return rc == 0 ? make_circle(e, set, err) : rc;
    }
    rc = has_unsettled(set, b, &unsettled, err);
    if (rc < 0 || !unsettled)
        return rc < 0 ? rc : begin_anew(e, set, b, err);
    if (!set->blank)
        rc = settle_first(set, b, err);
    return rc < 0 ? rc : 1;
}

/* ---- a group whose ranks change ------------------------------------------------------------- */

void set_settle(struct engine *e, struct set *set)
{
    struct circle *c = &set->circle;
    set->moves = true;
    if (c->state != CIRCLE_WORKS || !c->neg)
        return; /* the meeting comes first, because others wait for this rank there; or there is
                   nothing to settle */
    set_end_epoch(e, set, "its ranks move to other groups");
    set_enter(e, set);
}

/* All members leave the group. What one of them has finished is finished on all, and no rank begins
 * anything any more. */
static int settle_last(struct set *set, const struct set_brought *b, struct err *err)
{
    bool unsettled = false;
    int rc = has_unsettled(set, b, &unsettled, err);
    if (rc == 0 && unsettled && !set->blank)
        rc = settle_first(set, b, err);
    else if (rc == 0 && set->circle.remains.coll)
        coll_restore(set->circle.remains.coll);
    if (rc < 0)
        return rc;
    set_drop_meeting(set);
    set->settled = true;
    return 0;
}

/* ---- the members have met ------------------------------------------------------------------- */

static void removed_by_another(struct engine *e, struct set *set)
{
    set_drop_meeting(set);
    set->told_of_removal = true;
    if (!set->circle.ending)
        set_enter(e, set);
}

static void ended(struct engine *e, struct set *set, int rc, uint64_t begin, int before,
                  struct err *err)
{
    struct circle *c = &set->circle;
    if (rc == 0) {
        log_info("%s: %d of its ranks, %d before, after %.1f ms", set->text, c->size, before,
                 (double)(clock_ns() - begin) / CLOCK_MS);
        return;
    }
    give_up(c, err);
    err_prefix(err, "%s", set->text);
    if (rc == -EAGAIN && e->circle.batches.held)
        return; /* the thread in hvd_commit() goes on to the next epoch, too */
    if (rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EAGAIN)
        engine_repair(e, err);
    else
        engine_fail_rank(e, err);
}

/* Returns 1 if the members have to meet again. */
static int renew(struct engine *e, struct set *set, const struct set_brought *b, struct err *err)
{
    if (b->all & SET_SETTLES)
        return settle_last(set, b, err);
    return b->any & SET_FIXED ? renew_fixed(e, set, b, err) : renew_shrinking(e, set, b, err);
}

void set_go_on(struct engine *e, struct set *set)
{
    struct set_brought b = {.n = 0};
    struct err err = {0};
    int before = set->circle.size;
    uint64_t begin = clock_ns();
    sets_forget_met(e, set);
    set->meets = false;
    int rc = set_brought_read(set, &b, &err);
    if (rc == 0 && (b.any & SET_REMOVES)) {
        removed_by_another(e, set);
    } else if (rc == 0 && (b.any & SET_FIXED) && set_is_broken_now(e, set)) {
        break_set(e, set, &b);
    } else {
        if (rc == 0)
            rc = renew(e, set, &b, &err);
        if (rc == 1)
            set_enter(e, set);
        else
            ended(e, set, rc, begin, before, &err);
    }
    set_brought_free(&b);
    if (set->meets || e->failed || e->trouble.code || e->conflict.code)
        return;
    if (set->gains)
        set_gain(e, set);
    else if (set->moves && !set->settled)
        set_settle(e, set);
}

/* Makes one circle in each turn, so that the driver serves the world and other sets in between. */
bool sets_go_on(struct engine *e)
{
    struct set *set = e->sets.met;
    if (!set || e->failed || e->trouble.code || e->conflict.code)
        return false;
    set_go_on(e, set);
    return true;
}
