/* SPDX-License-Identifier: Apache-2.0
 *
 * set_move: see set_move.h. A group whose ranks change ends in two steps. First its old members
 * meet once more and settle what is in flight among them, as after a loss, but make no circle. By a
 * vote of the world all ranks learn that this is so in every group. Then each rank drops what it
 * has of its old group, and the members of each new group meet, with nothing in common.
 */
#include "core/engine/set_move.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/inject.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/rule.h"
#include "core/engine/set_groups.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"

/* The groups of one set in the new world. */
struct move {
    struct set *set;
    int *ranks; /* [n] of this rank's group; n 0: it is in none */
    int n;
    bool moves;
};

struct moves {
    struct move *of; /* [n] */
    size_t n;
};

bool sets_have_rules(const struct engine *e)
{
    bool any = false;
    for (size_t i = 0; i < e->sets.n; i++)
        any = any || e->sets.table[i]->by_rule;
    return any;
}

static void free_moves(struct moves *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->of[i].ranks);
    free(m->of);
}

/* The sets stay: their removal waits for the end of hvd_commit(). */
static int find_sets(struct engine *e, struct moves *m, struct err *err)
{
    pthread_mutex_lock(&e->sets.lock);
    size_t n = e->sets.n;
    m->of = calloc(n + 1, sizeof(*m->of));
    for (size_t i = 0; m->of && i < n; i++)
        if (e->sets.table[i]->by_rule)
            m->of[m->n++].set = e->sets.table[i];
    pthread_mutex_unlock(&e->sets.lock);
    return m->of ? 0 : err_set(err, ENOMEM, "no memory for %zu sets", n);
}

/* ---- the new groups ------------------------------------------------------------------------- */

/* Ranks that are part of a broken unit are in no group of others: their operations fail. Such a
 * rank itself sees its whole group. */
static int without_broken(const struct world *w, int *ranks, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (w->broken[w->rank] || !w->broken[ranks[i]])
            ranks[kept++] = ranks[i];
    return kept;
}

/* Whether this rank's group changes. Then it does on all ranks of the old group that are still
 * there, and on all of the new one: a rank that has joined, or was out, is in none that the others
 * see. */
static bool is_other(const struct move *m)
{
    const struct set_view *view = &m->set->view;
    bool same = view->size == m->n && !m->set->out;
    for (int i = 0; same && i < m->n; i++)
        same = view->ranks[i] == m->ranks[i];
    return !same;
}

static int compute(struct move *m, const struct world *w, int *groups, struct err *ret_mine,
                   struct err *err)
{
    m->ranks = calloc((size_t)w->size, sizeof(*m->ranks));
    if (!m->ranks)
        return err_set(err, ENOMEM, "no memory for a set of %d ranks", w->size);
    int rc = set_groups_compute(m->set->name, w, groups, ret_mine);
    if (rc < 0) /* the others may have the function: then they go on without this rank */
        return rc == -ENOENT ? (*err = *ret_mine, rc) : 0;
    m->n = without_broken(w, m->ranks, rule_group_of(groups, w->size, w->rank, m->ranks));
    m->moves = is_other(m);
    return 0;
}

/* Computes the new groups of one set, and compares them with those of the other ranks. */
static int agree(struct move *m, struct engine *e, const struct world *w, struct err *ret_refused,
                 struct err *err)
{
    const struct vote v = {.engine = e, .name = "hvd_commit: sets by rule"};
    struct err mine = {0}, differs = {0};
    auto_free int *groups = calloc((size_t)w->size, sizeof(*groups));
    if (!groups)
        return err_set(err, ENOMEM, "no memory for the groups of %d ranks", w->size);
    int rc = compute(m, w, groups, &mine, err);
    if (rc == 0)
        rc = set_groups_compare(&v, m->set->name, w, groups, &mine, &differs);
    if (rc == 1) {
        m->moves = false;
        *ret_refused = ret_refused->code ? *ret_refused : differs;
        return 0;
    }
    if (rc < 0 && differs.code)
        *err = differs;
    return rc < 0 ? err_prefix(err, "%s", m->set->label) : 0;
}

/* ---- the old group -------------------------------------------------------------------------- */

/* (lock) Whether nothing of this rank's old group has to be settled any more. */
static bool has_settled(const struct set *set)
{
    enum circle_state state = set->circle.state;
    return set->settled || state == CIRCLE_FAILED || (state == CIRCLE_WORKS && !set->circle.neg);
}

static void settle_all(struct engine *e, const struct moves *m)
{
    drive_lock(e);
    for (size_t i = 0; i < m->n && !e->failed; i++)
        if (m->of[i].moves)
            set_settle(e, m->of[i].set);
    drive_leave(e);
}

static bool are_settled(struct engine *e, const struct moves *m)
{
    bool all = true;
    drive_lock(e);
    for (size_t i = 0; i < m->n; i++)
        all = all && (!m->of[i].moves || has_settled(m->of[i].set));
    all = all || e->failed;
    drive_leave(e);
    return all;
}

/* The old members meet; the meeting's own limit names a rank that does not come. Then all ranks
 * learn that all have settled. */
static int settle_groups(struct engine *e, const struct moves *m, struct err *err)
{
    const struct timespec nap = {.tv_nsec = 200000};
    const struct vote v = {.engine = e, .name = "hvd_commit: old groups"};
    int64_t nothing = 0;
    settle_all(e, m);
    while (!are_settled(e, m))
        nanosleep(&nap, NULL);
    inject_point("move");
    return vote_max(&v, &nothing, 1, &nothing, err);
}

/* (lock) What this rank has of its old group ends. */
static void leave_group(struct engine *e, struct set *set)
{
    struct circle *c = &set->circle;
    struct err why = {0};
    err_set(&why, ESTALE,
            "hvd_commit() has changed this rank's group of %s since this was submitted: no tensor "
            "was changed. Look at the set's ranks, and submit it again",
            set->text);
    if (set->meets)
        rendezvous_forget(e->circle.rendezvous, &set->meeting);
    sets_forget_met(e, set);
    set_drop_meeting(set);
    if (c->state == CIRCLE_LOST) {
        coll_stop(c->remains.coll);
        batches_dissolve(c);
        circle_break(c, UINT32_MAX, &why);
        remains_fini(c);
    }
    set_clear_failure(set);
    set->moves = set->settled = false;
}

/* ---- the new group -------------------------------------------------------------------------- */

/* All locks are held. */
static void show(struct engine *e, const struct move *m, const struct world *w,
                 const uint8_t *stale)
{
    struct set *set = m->set;
    for (int i = 0; i < m->n; i++)
        set->target[i] = w->members[m->ranks[i]];
    set_view_become(&set->view, w, set->target, m->n);
    set_view_copy(&set->before, &set->view);
    set->source = -1;
    for (int i = m->n - 1; i >= 0 && !w->broken[w->rank]; i--)
        if (!stale[m->ranks[i]])
            set->source = i;
    queue_move_set(e->queue, set->number, set->view.rank, m->n);
    set_write_text(set);
}

/* (lock) The members of the new group meet. */
static void come(struct engine *e, const struct move *m, const struct world *w)
{
    struct set *set = m->set;
    set->generation = set->target_epoch = w->epoch;
    set->since = set->boot.epoch = e->worlds->epoch;
    set->blank = true;
    set->out = false;
    set->boot.size = m->n;
    memcpy(set->members, set->target, (size_t)m->n * sizeof(*set->members));
    set->circle.state = m->n > 0 ? CIRCLE_LOST : CIRCLE_WORKS;
    if (m->n > 0 && !set_stays_out(e, set))
        set_enter(e, set);
}

static void move_all(struct engine *e, const struct moves *m, const struct world *w,
                     const uint8_t *stale)
{
    drive_lock(e);
    for (size_t i = 0; i < m->n; i++)
        if (m->of[i].moves)
            leave_group(e, m->of[i].set);
    pthread_mutex_lock(&e->sets.lock);
    queue_lock(e->queue);
    for (size_t i = 0; i < m->n; i++)
        if (m->of[i].moves)
            show(e, &m->of[i], w, stale);
    queue_unlock(e->queue);
    pthread_mutex_unlock(&e->sets.lock);
    for (size_t i = 0; i < m->n && !e->failed; i++)
        if (m->of[i].moves)
            come(e, &m->of[i], w);
    sets_tell_agent(e);
    drive_leave(e);
}

int sets_move(struct engine *e, const struct world *w, const uint8_t *stale,
              struct err *ret_refused, struct err *err)
{
    struct moves m = {.n = 0};
    int rc = find_sets(e, &m, err);
    for (size_t i = 0; i < m.n && rc == 0; i++)
        rc = agree(&m.of[i], e, w, ret_refused, err);
    if (rc == 0 && m.n > 0)
        rc = settle_groups(e, &m, err);
    if (rc == 0 && m.n > 0)
        move_all(e, &m, w, stale);
    free_moves(&m);
    return rc;
}
