/* SPDX-License-Identifier: Apache-2.0
 *
 * set_remove: hvd_set_remove(). The ranks that call agree that none of them has operations of the
 * set in flight, then leave its mesh together.
 */
#include <stdbool.h>
#include <time.h>

#include "core/engine/engine.h"
#include "core/engine/messages.h"
#include "core/engine/set_call.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"

static bool is_formed(int set)
{
    return set >= SETS_FORMED;
}

/* Whether no operation of the set is in flight on this rank. ends: if so, none begins any more;
 * the queue refuses them already, but not a blocking message, which does not go through it. */
static bool is_idle(struct engine *e, struct set *set, bool ends)
{
    struct circle *c = &set->circle;
    drive_lock(e);
    bool idle = !(set->view.rank >= 0 && messages_in_flight(c)) &&
                queue_pending(e->queue, set->number) == 0;
    c->ending = idle && ends;
    set->removed = false;
    drive_leave(e);
    return idle;
}

/* The ranks that call hvd_set_remove() agree that none of them has operations of the set in
 * flight. epoch: in which this try began. */
static int agree_idle(struct engine *e, struct set *set, int round, uint32_t epoch, bool idle,
                      struct err *err)
{
    const struct vote v = {.engine = e, .name = SET_CALL_NAME};
    struct err mine = {0};
    drive_lock(e); /* for the text */
    if (!idle)
        err_set(&mine, EBUSY, "hvd_set_remove: operations of %s are in flight; wait for them first",
                set->text);
    drive_leave(e);
    return is_formed(set->number) ? set_form_agree(e, set, round, epoch, &mine, err)
                                  : vote_well(&v, sets_own_rank(e), &mine, err);
}

static void go_on(struct engine *e, struct set *set)
{
    drive_lock(e);
    sets_works(e, set);
    drive_leave(e);
    queue_open_set(e->queue, set->number);
}

/* Another member may have heard that all have agreed, and this rank has learned of it by a claim.
 */
static bool is_removed(struct engine *e, const struct set *set)
{
    drive_lock(e);
    bool removed = set->removed;
    drive_leave(e);
    return removed;
}

static uint32_t epoch_of(struct engine *e, const struct set *set)
{
    drive_lock(e);
    uint32_t epoch = set->boot.epoch;
    drive_leave(e);
    return epoch;
}

/* removed: the ranks have agreed to remove the set. Then no circle is made if a member has said so.
 */
static bool is_repaired(struct engine *e, const struct set *set, bool removed)
{
    drive_lock(e);
    bool wait = set->circle.state == CIRCLE_LOST && !(removed && set->told_of_removal);
    wait = wait && !e->failed;
    drive_leave(e);
    return !wait;
}

/* The other members expect this rank in the mesh that they are about to make. The repair ends by
 * itself: in a circle, in a failed set, or in the next epoch. */
static void await_repair(struct engine *e, const struct set *set, bool removed)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    while (!is_repaired(e, set, removed))
        nanosleep(&nap, NULL);
}

/* The ranks agree that none of them has operations of the set in flight: once before the set is
 * closed, so that a refusal disturbs no thread that goes on submitting, and once when none can
 * come any more. */
static int try_to_end(struct engine *e, struct set *set, struct err *err)
{
    await_repair(e, set, false);
    uint32_t epoch = epoch_of(e, set);
    int rc = agree_idle(e, set, 0, epoch, is_idle(e, set, false), err);
    if (rc < 0)
        return rc;
    queue_close_set(e->queue, set->number);
    /* other ranks may leave as soon as they know the result */
    rc = agree_idle(e, set, 1, epoch, is_idle(e, set, true), err);
    if (rc == -EAGAIN && is_removed(e, set))
        rc = 0;
    if (rc < 0)
        go_on(e, set);
    return rc;
}

static int agree_to_end(struct engine *e, struct set *set, struct err *err)
{
    int rc, tries = 0;
    do
        rc = try_to_end(e, set, err);
    while (set_again(e, rc) && ++tries < SET_TRIES_MAX);
    return rc;
}

/* In the next epoch the ranks of its unit learn that the unit does without the set. */
static void note_unit(struct engine *e, const struct set *set)
{
    drive_lock(e);
    if (set->fixed && set->places && e->worlds->nbroken > 0)
        e->sets.mended = 1;
    drive_leave(e);
}

bool sets_may_mend(struct engine *e)
{
    if (e->worlds->nbroken == 0)
        e->sets.mended = 0;
    return e->sets.mended;
}

/* All ranks that call have found the set. */
static int remove_set(struct engine *e, struct set *set, struct err *err)
{
    int rc = agree_to_end(e, set, err);
    if (rc < 0)
        return rc;
    await_repair(e, set, true);
    queue_drop_set(e->queue, set->number);
    note_unit(e, set);
    if (sets_close(e, set))
        set_leave(set);
    drive_lock(e); /* sets share the GPU */
    set_destroy(set);
    drive_leave(e);
    return 0;
}

static int no_such_set(int number, struct err *err)
{
    return err_set(err, EINVAL, "hvd_set_remove: there is no set %d to remove%s", number,
                   number == 0 ? ": 0 is the world" : "");
}

static int remove_added(struct engine *e, int number, struct err *err)
{
    const struct vote v = {.engine = e, .name = SET_CALL_NAME};
    const struct err mine = {0};
    struct set_call call;
    pthread_mutex_lock(&e->sets.lock); /* threads in hvd_set_form() change the table */
    struct set *set = sets_find(&e->sets, number);
    pthread_mutex_unlock(&e->sets.lock);
    set_call_remove(&call, number);
    int rc = set_call_compare(&v, &call, sets_own_rank(e), &mine, err);
    if (rc < 0)
        return rc;
    return set ? remove_set(e, set, err) : no_such_set(number, err); /* on all ranks */
}

static int remove_formed(struct engine *e, int number, struct err *err)
{
    pthread_mutex_lock(&e->sets.lock);
    struct set *set = sets_find(&e->sets, number);
    if (set && set->leaving) /* the other thread may free it once the lock is open */
        err_set(err, EBUSY, "hvd_set_remove: another thread is removing %s", set->text);
    bool busy = set && set->leaving;
    if (set)
        set->leaving = true;
    pthread_mutex_unlock(&e->sets.lock);
    if (!set)
        return no_such_set(number, err);
    if (busy)
        return err->code;
    int rc = remove_set(e, set, err);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&e->sets.lock);
    set->leaving = false;
    pthread_mutex_unlock(&e->sets.lock);
    return rc;
}

int sets_remove(struct engine *e, int set, struct err *err)
{
    bool formed = is_formed(set);
    if (formed)
        pthread_rwlock_rdlock(&e->sets.forms);
    else
        sets_lock_calls(e);
    int rc = sets_check_joined(e, err);
    if (rc == 0)
        rc = formed ? remove_formed(e, set, err) : remove_added(e, set, err);
    if (formed)
        pthread_rwlock_unlock(&e->sets.forms);
    else
        sets_unlock_calls(e);
    return rc;
}
