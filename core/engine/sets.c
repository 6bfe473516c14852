/* SPDX-License-Identifier: Apache-2.0
 *
 * sets: see sets.h.
 */
#include "core/engine/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/base/ctl.h"
#include "core/base/fd.h"
#include "core/engine/drive.h"
#include "core/engine/engine.h"
#include "core/engine/messages.h"
#include "core/engine/set_call.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

void sets_init(struct sets *sets)
{
    pthread_mutex_init(&sets->calls, NULL);
    pthread_mutex_init(&sets->lock, NULL);
    pthread_rwlock_init(&sets->forms, NULL);
    sets->epoll_fd = -1;
}

void sets_fini(struct sets *sets)
{
    for (size_t i = 0; i < sets->n; i++)
        set_destroy(sets->table[i]);
    free(sets->table);
    free(sets->circles);
    if (sets->epoll_fd >= 0)
        close(sets->epoll_fd);
    pthread_mutex_destroy(&sets->lock);
    pthread_mutex_destroy(&sets->calls);
    pthread_rwlock_destroy(&sets->forms);
}

/* ---- the table ------------------------------------------------------------------------------ */

static int compare(const void *number, const void *entry)
{
    int a = *(const int *)number, b = (*(struct set *const *)entry)->number;
    return (a > b) - (a < b);
}

/* NULL: there is no such entry, perhaps because there is no table yet. */
static struct set **find_entry(const struct sets *sets, int number)
{
    return sets->n ? bsearch(&number, sets->table, sets->n, sizeof(*sets->table), compare) : NULL;
}

static struct set *find(const struct sets *sets, int number)
{
    struct set **entry = find_entry(sets, number);
    return entry ? *entry : NULL;
}

/* There is room for it: see sets_prepare(). */
static void insert(struct sets *sets, struct set *set)
{
    size_t at = sets->n++;
    for (; at > 0 && sets->table[at - 1]->number > set->number; at--)
        sets->table[at] = sets->table[at - 1];
    sets->table[at] = set;
}

static void take_out(struct sets *sets, int number)
{
    struct set **entry = find_entry(sets, number);
    memmove(entry, entry + 1, (size_t)(&sets->table[--sets->n] - entry) * sizeof(*entry));
}

struct circle *sets_circle(struct engine *e, int set)
{
    struct set *found = find(&e->sets, set);
    return set == 0 ? &e->circle : found && found->rank >= 0 ? &found->circle : NULL;
}

/* Room for one more set, beside those for which there is room already. */
static int make_room(struct sets *sets, struct err *err)
{
    if (sets->n + sets->nprepared < sets->cap)
        return 0;
    size_t cap = sets->cap ? 2 * sets->cap : 16;
    struct set **table = realloc(sets->table, cap * sizeof(*table));
    if (table)
        sets->table = table;
    struct circle **circles = table ? realloc(sets->circles, cap * sizeof(*circles)) : NULL;
    if (!circles)
        return err_set(err, ENOMEM, "no memory for more sets");
    sets->circles = circles;
    sets->cap = cap;
    return 0;
}

static int watch(const struct sets *sets, const struct mesh *mesh, struct err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(sets->epoll_fd, EPOLL_CTL_ADD, mesh_fd(mesh), &event) < 0)
        return err_sys(err, errno, "cannot watch the mesh of a set");
    return 0;
}

static int open_epoll(struct engine *e, struct err *err)
{
    if (e->sets.epoll_fd >= 0)
        return 0;
    e->sets.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->sets.epoll_fd < 0)
        return err_sys(err, errno, "cannot make an epoll set");
    int rc = watch(&e->sets, e->circle.mesh, err);
    if (rc < 0) {
        close(e->sets.epoll_fd);
        e->sets.epoll_fd = -1;
    }
    return rc;
}

/* Takes the progress lock and that of the table. */
static void lock(struct engine *e)
{
    drive_lock(e);
    pthread_mutex_lock(&e->sets.lock);
}

static void unlock(struct engine *e)
{
    pthread_mutex_unlock(&e->sets.lock);
    drive_leave(e);
}

/* The driver does not know the circle any more. Its descriptor may be open in a forked child, too,
 * so closing it would not be enough. */
static void forget_circle(struct sets *sets, struct set *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < sets->ncircles; i++)
        if (sets->circles[i] != &set->circle)
            sets->circles[kept++] = sets->circles[i];
    if (kept < sets->ncircles)
        epoll_ctl(sets->epoll_fd, EPOLL_CTL_DEL, mesh_fd(set->circle.mesh), NULL);
    sets->ncircles = kept;
}

int sets_need_fds(struct engine *e, int n, struct err *err)
{
    size_t fds = 1 + mesh_most_fds(n); /* 1: the epoll set of all meshes */
    lock(e);
    for (size_t i = 0; i < e->sets.ncircles; i++)
        fds += mesh_fds_to_come(e->sets.circles[i]->mesh);
    unlock(e);
    return fd_limit_need(fds, err);
}

/* ---- making and removing -------------------------------------------------------------------- */

int sets_prepare(struct engine *e, struct set *set, struct err *err)
{
    char ranks[160];
    size_t len = strlen(set->text);
    ranklist_text(set->ranks, set->size, ranks, sizeof(ranks));
    snprintf(set->text + len, sizeof(set->text) - len, " (%s)", ranks);
    set->circle.set = set->number;
    int rc = queue_add_set(e->queue, set->number, set->rank, set->size, err);
    lock(e);
    if (rc == 0)
        rc = make_room(&e->sets, err);
    if (rc == 0)
        rc = open_epoll(e, err);
    if (rc == 0 && set->rank >= 0)
        rc = watch(&e->sets, set->circle.mesh, err);
    if (rc == 0 && set->rank >= 0)
        e->sets.circles[e->sets.ncircles++] = &set->circle;
    set->prepared = rc == 0;
    e->sets.nprepared += set->prepared;
    unlock(e);
    return rc;
}

void sets_take_back(struct engine *e, struct set *set)
{
    lock(e);
    forget_circle(&e->sets, set);
    e->sets.nprepared -= set->prepared;
    set->prepared = false;
    unlock(e);
    queue_drop_set(e->queue, set->number);
}

/* (lock) Tells the agent, if there is one, in how many sets this rank is now. */
static void tell_agent(struct engine *e)
{
    struct ctl *agent = mesh_agent(e->circle.mesh);
    struct buf body = {0};
    buf_put_u32(&body, (uint32_t)e->sets.ncircles);
    /* A failed send is ignored here: the mesh notices a lost agent. */
    if (agent && !body.failed)
        ctl_send(agent, CTL_SETS, &body, NULL, 0);
    buf_fini(&body);
}

void sets_open(struct engine *e, struct set *set)
{
    lock(e);
    insert(&e->sets, set);
    e->sets.nprepared--;
    set->circle.state = CIRCLE_WORKS;
    set->circle.next_tick = 0;
    queue_open_set(e->queue, set->number);
    tell_agent(e);
    unlock(e);
}

static int add_one(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err)
{
    struct set *set = NULL;
    int rc = set_make(e, ranks, n, &set, err);
    if (rc < 0)
        return rc;
    e->sets.added = set->number;
    sets_open(e, set);
    *ret_set = set->number;
    return 0;
}

/* The others are told by the thread in hvd_join(). */
static int check_joined(struct engine *e, struct err *err)
{
    return atomic_load(&e->queue->joined) ? err_set(err, EBUSY, "a thread is in hvd_join()") : 0;
}

int sets_add(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err)
{
    if (e->boot.elastic)
        return err_set(err, ENOTSUP, "hvd_set_add: sets are not possible in elastic jobs yet");
    pthread_mutex_lock(&e->sets.calls);
    int rc = check_joined(e, err);
    if (rc == 0)
        rc = add_one(e, ranks, n, ret_set, err);
    pthread_mutex_unlock(&e->sets.calls);
    return rc;
}

int sets_form(struct engine *e, const char *name, const int *ranks, int n, int *ret_set,
              struct err *err)
{
    struct set *set = NULL;
    if (e->boot.elastic)
        return err_set(err, ENOTSUP, "hvd_set_form: sets are not possible in elastic jobs yet");
    pthread_rwlock_rdlock(&e->sets.forms);
    int rc = check_joined(e, err);
    if (rc == 0)
        rc = set_form(e, name, ranks, n, &set, err);
    if (rc == 0) {
        sets_open(e, set);
        *ret_set = set->number;
    }
    pthread_rwlock_unlock(&e->sets.forms);
    return rc;
}

static bool is_formed(int set)
{
    return set >= SETS_FORMED;
}

/* Whether no operation of the set is in flight on this rank. ends: if so, none begins any more;
 * the queue refuses them already, but not a blocking message, which does not go through it. */
static bool is_idle(struct engine *e, struct set *set, bool ends)
{
    struct circle *c = &set->circle;
    lock(e);
    bool idle = !(set->rank >= 0 && messages_busy(c)) && queue_pending(e->queue, set->number) == 0;
    if (idle && ends && c->state != CIRCLE_FAILED)
        c->state = CIRCLE_ENDING;
    unlock(e);
    return idle;
}

/* The ranks that call hvd_set_remove() agree that none of them has operations of the set in
 * flight. */
static int agree_idle(struct engine *e, struct set *set, int round, bool idle, struct err *err)
{
    const struct vote v = {.engine = e, .name = SET_CALL_NAME};
    struct err mine = {0};
    if (!idle)
        err_set(&mine, EBUSY, "hvd_set_remove: operations of %s are in flight; wait for them first",
                set->text);
    return is_formed(set->number) ? set_form_agree(e, set, round, &mine, err)
                                  : vote_well(&v, e->circle.rank, &mine, err);
}

static void go_on(struct engine *e, struct set *set)
{
    lock(e);
    if (set->circle.state != CIRCLE_FAILED)
        set->circle.state = CIRCLE_WORKS;
    unlock(e);
    queue_open_set(e->queue, set->number);
}

/* The ranks agree that none of them has operations of the set in flight: once before the set is
 * closed, so that a refusal disturbs no thread that goes on submitting, and once when none can
 * come any more. */
static int agree_to_end(struct engine *e, struct set *set, struct err *err)
{
    int rc = agree_idle(e, set, 0, is_idle(e, set, false), err);
    if (rc < 0)
        return rc;
    queue_close_set(e->queue, set->number);
    /* other ranks may leave as soon as they know the result */
    rc = agree_idle(e, set, 1, is_idle(e, set, true), err);
    if (rc < 0)
        go_on(e, set);
    return rc;
}

/* All ranks that call have found the set. */
static int remove_set(struct engine *e, struct set *set, struct err *err)
{
    int rc = agree_to_end(e, set, err);
    if (rc < 0)
        return rc;
    queue_drop_set(e->queue, set->number);
    lock(e);
    take_out(&e->sets, set->number);
    if (set->rank >= 0)
        circle_keep_counters(&set->circle);
    forget_circle(&e->sets, set);
    tell_agent(e);
    unlock(e);
    if (set->rank >= 0)
        set_leave(set);
    set_destroy(set);
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
    struct set *set = find(&e->sets, number);
    pthread_mutex_unlock(&e->sets.lock);
    set_call_remove(&call, number);
    int rc = set_call_compare(&v, &call, e->circle.rank, &mine, err);
    if (rc < 0)
        return rc;
    return set ? remove_set(e, set, err) : no_such_set(number, err); /* on all ranks */
}

static int remove_formed(struct engine *e, int number, struct err *err)
{
    pthread_mutex_lock(&e->sets.lock);
    struct set *set = find(&e->sets, number);
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
    if (e->boot.elastic)
        return no_such_set(set, err);
    bool formed = is_formed(set);
    if (formed)
        pthread_rwlock_rdlock(&e->sets.forms);
    else
        pthread_mutex_lock(&e->sets.calls);
    int rc = check_joined(e, err);
    if (rc == 0)
        rc = formed ? remove_formed(e, set, err) : remove_added(e, set, err);
    if (formed)
        pthread_rwlock_unlock(&e->sets.forms);
    else
        pthread_mutex_unlock(&e->sets.calls);
    return rc;
}

void sets_abort(struct engine *e, const char *why)
{
    for (size_t i = 0; i < e->sets.ncircles; i++)
        mesh_abort(e->sets.circles[i]->mesh, why);
}

/* ---- what callers see ----------------------------------------------------------------------- */

static const struct set *look_up(struct engine *e, int number, struct err *err)
{
    const struct set *set = find(&e->sets, number);
    if (!set)
        err_set(err, EINVAL, "there is no set %d", number);
    return set;
}

int sets_rank(struct engine *e, int number, struct err *err)
{
    struct world w;
    engine_world(e, &w);
    if (number == 0)
        return w.rank;
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int rank = set ? set->rank : err->code;
    if (set && rank < 0)
        rank = err_set(err, ENOENT, "rank %d is not in %s", w.rank, set->text);
    pthread_mutex_unlock(&e->sets.lock);
    return rank;
}

int sets_ranks(struct engine *e, int number, int *ret_ranks, int n, struct err *err)
{
    struct world w;
    engine_world(e, &w);
    if (number == 0) {
        for (int i = 0; i < n && i < w.size; i++)
            ret_ranks[i] = i;
        return w.size;
    }
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int size = set ? set->size : err->code;
    if (set && n > 0)
        memcpy(ret_ranks, set->ranks, (size_t)(n < size ? n : size) * sizeof(*ret_ranks));
    pthread_mutex_unlock(&e->sets.lock);
    return size;
}

/* ---- no change meanwhile --------------------------------------------------------------------- */

void sets_hold(struct sets *sets)
{
    pthread_mutex_lock(&sets->calls);
    pthread_rwlock_wrlock(&sets->forms);
}

void sets_let(struct sets *sets)
{
    pthread_rwlock_unlock(&sets->forms);
    pthread_mutex_unlock(&sets->calls);
}
