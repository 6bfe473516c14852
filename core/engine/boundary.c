/* SPDX-License-Identifier: Apache-2.0
 *
 * boundary: see boundary.h.
 */
#include "core/engine/boundary.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/ctl.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/fast.h"
#include "core/engine/set_table.h"
#include "core/engine/vote.h"

#define CHANGES_MAX 16 /* planned changes that one boundary applies, one after the other */

/* The words of the allreduce(max). BEFORE is the negated epoch, so that its maximum gives the
 * smallest epoch. JOINED: a rank is in hvd_join(). TABLE: world.table of that epoch. MENDS: a rank
 * has removed a fixed set of a broken unit, so a new epoch may have fewer broken ones. */
enum { CHANGE, EPOCH, BEFORE, JOINED, TABLE, MENDS, WORDS };

static int agree_max(struct engine *e, const char *name, const int64_t *mine, int64_t n,
                     int64_t *ret, struct err *err)
{
    return vote_max(&(struct vote){.engine = e, .name = name}, mine, n, ret, err);
}

/* This rank's epoch, and what it knows of the sets there. */
struct standing {
    int64_t epoch, table;
    bool mends;
};

static struct standing look_at_epoch(struct engine *e)
{
    struct standing now = {.epoch = e->world->epoch, .table = TABLE_KEPT};
    if (atomic_load(&e->epoch) == now.epoch && e->entered && !atomic_load(&e->sets.mended))
        return now; /* nothing has changed: no lock is taken */
    drive_lock(e);
    now.epoch = e->worlds->epoch;
    now.table = set_table_due(e, e->worlds);
    now.mends = sets_may_mend(e);
    drive_leave(e);
    return now;
}

static int ask(struct engine *e, int64_t *ret, struct err *err)
{
    const struct standing now = look_at_epoch(e);
    const int64_t mine[WORDS] = {[CHANGE] = atomic_load(&e->boot.change_heard),
                                 [EPOCH] = now.epoch,
                                 [BEFORE] = -now.epoch,
                                 [TABLE] = now.table,
                                 [MENDS] = now.mends};
    return agree_max(e, BOUNDARY_NAME, mine, WORDS, ret, err);
}

void boundary_say_joined(int64_t *words, size_t n)
{
    if (n == WORDS)
        words[JOINED] = 1;
}

/* Repeats until all ranks report the same epoch. An epoch that only some ranks have entered,
 * because its next loss came during connection setup, is not a world that every rank can enter. */
static int agree(struct engine *e, int64_t *ret, struct err *err)
{
    int rc;
    do
        rc = ask(e, ret, err);
    while (rc == 0 && ret[EPOCH] != -ret[BEFORE] && !ret[JOINED]);
    return rc;
}

/* Agrees on the epoch that a planned change has led to. Repeats until all ranks report the same
 * one, as agree() does: while some rank is still on its way into the new epoch, another loss may
 * lead it past that epoch into a later one. */
static int agree_epoch(struct engine *e, int64_t *ret, int64_t *ret_table, struct err *err)
{
    enum { AT, NOT_AT, BATCHES, SETS, N };
    int64_t batches = (int64_t)atomic_load(&e->counters.batches), agreed[N];
    int rc;
    do {
        const struct standing now = look_at_epoch(e);
        const int64_t mine[N] = {
            [AT] = now.epoch, [NOT_AT] = -now.epoch, [BATCHES] = batches, [SETS] = now.table};
        rc = agree_max(e, "hvd.commit.epoch", mine, N, agreed, err);
    } while (rc == 0 && agreed[AT] != -agreed[NOT_AT]);
    if (rc < 0)
        return rc;
    /* A joiner continues the others' batch counter, so that monitors can compare ranks. */
    if (!e->entered)
        atomic_store(&e->batches_before, (uint64_t)(agreed[BATCHES] - batches));
    *ret = agreed[AT];
    *ret_table = agreed[SETS];
    return 0;
}

/* A barrier. After it every rank knows the agreed change, so a rank that leaves the epoch disturbs
 * no peer, and no rank begins a user operation in this mesh any more. */
static int wait_for_all(struct engine *e, struct err *err)
{
    const struct hvd_request r = {.kind = HVD_BARRIER, .name = "hvd.commit.go", .device = -1};
    return fast_run(e, &r, FAST_OWN_LAST, err);
}

/* Called with the progress lock held. */
static int leave_epoch(struct engine *e, int why, const char *cause, struct err *err)
{
    mesh_part(e->circle.mesh);
    int rc = repair_next_epoch(e, why, cause, err);
    if (rc < 0)
        engine_fail_rank(e, err);
    return rc;
}

/* Called with the progress lock held. */
static int take_changes(struct engine *e, const int64_t *words, struct err *err)
{
    uint32_t epoch = atomic_load(&e->epoch);
    int rc = 0;
    for (int i = 0; e->boot.change < words[CHANGE] && i < CHANGES_MAX && !e->failed; i++)
        rc = leave_epoch(e, CTL_BOUNDARY, "a planned change", err);
    if (words[MENDS] && epoch == atomic_load(&e->epoch) && !e->failed)
        rc = leave_epoch(e, CTL_REVOKED, "a fixed set was removed", err);
    e->sets.mended = 0;
    if (rc == 0 && e->failed)
        *err = e->failure;
    return rc == 0 && e->failed ? e->failure.code : rc;
}

/* Makes w the user's world. Returns 1 when its members, or those of sets, are other ones. Called
 * with the progress lock held. */
static int enter_world(struct engine *e, struct world *w, struct err *err)
{
    /* A member that has left and rejoined counts both as left and as joined: it has no training
     * state. */
    int joined = world_joined(w, e->world), left = e->world->size + joined - w->size;
    w->left = left;
    w->joined = joined;
    w->is_new = false; /* a rank that commits is a member already, not a joiner */
    int rc = engine_enter_world(e, w, err);
    if (rc < 0)
        return rc;
    engine_set_tag(e);
    return left > 0 || joined > 0 || w->table == TABLE_GAINS;
}

/* Every rank has agreed on words, and that the world changes: applies the planned changes, or
 * begins another epoch without one, then agrees on the resulting epoch. */
static int change_world(struct engine *e, int64_t *words, struct err *err)
{
    int rc = wait_for_all(e, err);
    if (rc < 0)
        return rc;
    inject_point("change");
    drive_lock(e);
    rc = take_changes(e, words, err);
    e->circle.batches.held = false;
    drive_leave(e);
    return rc == 0 ? agree_epoch(e, &words[EPOCH], &words[TABLE], err) : rc;
}

static int commit(struct engine *e, struct err *err)
{
    int64_t agreed[WORDS] = {0};
    if (atomic_load(&e->queue->joined))
        return err_set(err, EBUSY, "hvd_commit: another thread is in hvd_join()");
    if (queue_has_operations(e->queue))
        return err_set(err, EBUSY, "hvd_commit: operations are in flight; wait for them first");
    int rc = agree(e, agreed, err);
    if (rc < 0 || agreed[JOINED])
        return rc;
    bool change = agreed[CHANGE] > (int64_t)atomic_load(&e->applied) || agreed[MENDS];
    struct world now;
    engine_world(e, &now);
    if (!change && agreed[EPOCH] == (int64_t)now.epoch)
        return 0;
    if (change)
        rc = change_world(e, agreed, err);
    else
        inject_point("view");
    drive_lock(e);
    struct world *w = rc == 0 ? world_of(e->worlds, (uint32_t)agreed[EPOCH]) : NULL;
    if (rc == 0 && !w)
        rc = err_set(err, EPROTO,
                     "hvd_commit: this rank was never in epoch %lld, on which all ranks agreed",
                     (long long)agreed[EPOCH]);
    if (rc == 0) {
        w->table = (int)agreed[TABLE];
        rc = enter_world(e, w, err);
        e->sets.sharing = rc >= 0 && e->boot.keeps_places && w->table != TABLE_KEPT;
    }
    if (rc < 0)
        queue_open(e->queue);
    drive_leave(e);
    int told = rc < 0 ? 0 : set_table_share(e, w, err);
    return told < 0 ? told : rc;
}

int boundary_commit(struct engine *e, struct err *err)
{
    if (!e->boot.elastic)
        return 0;
    pthread_mutex_lock(&e->join.boundaries);
    int rc = commit(e, err);
    pthread_mutex_unlock(&e->join.boundaries);
    return rc;
}

int boundary_join(struct engine *e, struct err *err)
{
    int64_t epoch = 0, table = TABLE_KEPT;
    if (!e->boot.elastic)
        return 0;
    int rc = agree_epoch(e, &epoch, &table, err);
    if (rc < 0)
        return rc;
    drive_lock(e);
    struct world *w = world_of(e->worlds, (uint32_t)epoch);
    if (!w)
        rc = err_set(err, EPROTO,
                     "hvd_init: this rank was never in epoch %lld, on which all ranks agreed",
                     (long long)epoch);
    if (rc == 0)
        w->table = (int)table;
    if (rc == 0 && w != e->world) {
        rc = engine_enter_world(e, w, err);
        engine_set_tag(e);
    }
    e->entered = rc == 0;
    drive_leave(e);
    return rc == 0 ? set_table_share(e, w, err) : rc;
}
