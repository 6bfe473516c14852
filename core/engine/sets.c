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

#include "core/engine/drive.h"
#include "core/engine/engine.h"
#include "core/engine/set_private.h"
#include "core/engine/set_units.h"
#include "core/negotiate/ranklist.h"

void sets_init(struct sets *sets)
{
    pthread_mutex_init(&sets->calls, NULL);
    pthread_mutex_init(&sets->lock, NULL);
    pthread_rwlock_init(&sets->forms, NULL);
    sets->met_end = &sets->met;
    sets->epoll_fd = -1;
}

void sets_fini(struct sets *sets)
{
    for (size_t i = 0; i < sets->n; i++)
        set_destroy(sets->table[i]);
    retired_fini(&sets->retired);
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

struct set *sets_find(const struct sets *sets, int number)
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
    struct set *found = sets_find(&e->sets, set);
    return set == 0 ? &e->circle : found && found->view.rank >= 0 ? &found->circle : NULL;
}

bool sets_knows(struct engine *e, int set)
{
    pthread_mutex_lock(&e->sets.lock);
    bool known = sets_find(&e->sets, set) != NULL;
    pthread_mutex_unlock(&e->sets.lock);
    return known;
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

int sets_watch_world(struct engine *e, struct err *err)
{
    return watch(&e->sets, e->circle.mesh, err);
}

void sets_unwatch_world(struct engine *e)
{
    if (e->sets.epoll_fd >= 0)
        epoll_ctl(e->sets.epoll_fd, EPOLL_CTL_DEL, mesh_fd(e->circle.mesh), NULL);
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

int sets_watch(struct engine *e, struct set *set, struct err *err)
{
    int rc = watch(&e->sets, set->circle.mesh, err);
    if (rc == 0)
        e->sets.circles[e->sets.ncircles++] = &set->circle;
    return rc;
}

/* The circle's descriptor may be open in a forked child, too, so closing it would not be enough. */
void sets_unwatch(struct engine *e, struct set *set)
{
    struct sets *sets = &e->sets;
    size_t kept = 0;
    for (size_t i = 0; i < sets->ncircles; i++)
        if (sets->circles[i] != &set->circle)
            sets->circles[kept++] = sets->circles[i];
    if (kept < sets->ncircles)
        epoll_ctl(sets->epoll_fd, EPOLL_CTL_DEL, mesh_fd(set->circle.mesh), NULL);
    sets->ncircles = kept;
}

/* ---- making and removing -------------------------------------------------------------------- */

void set_write_label(char *text, size_t size, int number, const char *name)
{
    if (name)
        snprintf(text, size, "set %d, '%.60s'", number, name);
    else
        snprintf(text, size, "set %d", number);
}

void set_write_text(struct set *set)
{
    char ranks[160];
    snprintf(ranks, sizeof(ranks), "this rank is in no group");
    if (set->view.size > 0)
        ranklist_text(set->view.ranks, set->view.size, ranks, sizeof(ranks));
    snprintf(set->text, sizeof(set->text), "%s (%s)", set->label, ranks);
}

int sets_prepare(struct engine *e, struct set *set, struct err *err)
{
    set_write_text(set);
    set->circle.set = set->number;
    int rc = queue_add_set(e->queue, set->number, set->view.rank, set->view.size, err);
    lock(e);
    bool has_mesh = set->view.rank >= 0 && !set->blank;
    if (rc == 0 && has_mesh && set->boot.epoch != atomic_load(&e->epoch))
        rc = err_set(err, EAGAIN, "a rank was lost meanwhile");
    if (rc == 0)
        rc = make_room(&e->sets, err);
    if (rc == 0)
        rc = open_epoll(e, err);
    if (rc == 0 && has_mesh)
        rc = sets_watch(e, set, err);
    set->prepared = rc == 0;
    e->sets.nprepared += set->prepared;
    unlock(e);
    return rc;
}

void sets_take_back(struct engine *e, struct set *set)
{
    lock(e);
    sets_unwatch(e, set);
    e->sets.nprepared -= set->prepared;
    set->prepared = false;
    unlock(e);
    queue_drop_set(e->queue, set->number);
}

void sets_works(struct engine *e, struct set *set)
{
    struct circle *c = &set->circle;
    c->ending = false;
    set->told_of_removal = false;
    if (c->state == CIRCLE_FAILED)
        return;
    if (set->view.rank < 0 || c->neg) {
        c->state = CIRCLE_WORKS;
        c->next_tick = 0;
        return;
    }
    c->state = CIRCLE_LOST;
    if (!set->meets && !set->blank && !e->failed)
        set_enter(e, set);
}

void sets_open(struct engine *e, struct set *set)
{
    lock(e);
    insert(&e->sets, set);
    e->sets.nprepared--;
    sets_works(e, set);
    queue_open_set(e->queue, set->number);
    sets_tell_agent(e);
    unlock(e);
}

int sets_own_rank(struct engine *e)
{
    struct world w;
    engine_world(e, &w);
    return w.rank;
}

bool set_again(const struct engine *e, int rc)
{
    return e->boot.elastic && !e->failed && (rc == -EAGAIN || rc == -ECONNRESET);
}

static int add_one(struct engine *e, const struct set_wish *wish, int *ret_set, struct err *err)
{
    struct set *set = NULL;
    int rc, tries = 0;
    do
        rc = set_make(e, wish, &set, err);
    while (set_again(e, rc) && ++tries < SET_TRIES_MAX);
    if (rc < 0)
        return rc;
    e->sets.added = set->number;
    sets_open(e, set);
    *ret_set = set->number;
    return 0;
}

void sets_lock_calls(struct engine *e)
{
    pthread_mutex_lock(&e->join.boundaries);
    pthread_mutex_lock(&e->sets.calls);
}

void sets_unlock_calls(struct engine *e)
{
    pthread_mutex_unlock(&e->sets.calls);
    pthread_mutex_unlock(&e->join.boundaries);
}

int sets_check_joined(struct engine *e, struct err *err)
{
    return atomic_load(&e->queue->joined) ? err_set(err, EBUSY, "a thread is in hvd_join()") : 0;
}

static int add(struct engine *e, const struct set_wish *wish, int *ret_set, struct err *err)
{
    sets_lock_calls(e);
    int rc = sets_check_joined(e, err);
    if (rc == 0)
        rc = add_one(e, wish, ret_set, err);
    sets_unlock_calls(e);
    return rc;
}

int sets_add(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err)
{
    return add(e, &(struct set_wish){.ranks = ranks, .n = n}, ret_set, err);
}

int sets_split(struct engine *e, const char *rule, int *ret_set, struct err *err)
{
    return add(e, &(struct set_wish){.rule = rule ? rule : ""}, ret_set, err);
}

static int form_one(struct engine *e, const char *name, const int *ranks, int n, int *ret_set,
                    struct err *err)
{
    struct set *set = NULL;
    int rc, tries = 0;
    do
        rc = set_form(e, name, ranks, n, &set, err);
    while (set_again(e, rc) && ++tries < SET_TRIES_MAX);
    if (rc < 0)
        return rc;
    sets_open(e, set);
    *ret_set = set->number;
    return set_formed(e, set, err);
}

int sets_form(struct engine *e, const char *name, const int *ranks, int n, int *ret_set,
              struct err *err)
{
    pthread_rwlock_rdlock(&e->sets.forms);
    int rc = sets_check_joined(e, err);
    if (rc == 0)
        rc = form_one(e, name, ranks, n, ret_set, err);
    pthread_rwlock_unlock(&e->sets.forms);
    return rc;
}

bool sets_close(struct engine *e, struct set *set)
{
    lock(e);
    take_out(&e->sets, set->number);
    bool works = set->circle.neg != NULL; /* the world may have entered another epoch meanwhile */
    sets_forget_met(e, set);
    if (e->circle.rendezvous)
        rendezvous_forget(e->circle.rendezvous, &set->meeting);
    if (works)
        circle_keep_counters(&set->circle);
    sets_unwatch(e, set);
    sets_tell_agent(e);
    unlock(e);
    return works;
}

void set_update_maps(struct set *set)
{
    struct circle *c = &set->circle;
    set_view_map(&set->view, set->members, c->size, &c->map);
    set_view_map(&set->before, set->members, c->size, &c->map_previous);
}

/* The queue is locked. A member that came in the epoch in which the set was made is none that has
 * come anew. */
static void follow(struct engine *e, struct set *set, const struct world *w)
{
    uint32_t since = set->since > e->world->epoch ? set->since : e->world->epoch;
    bool out = set->blank || set->broken; /* this rank's unit is broken */
    set_view_copy(&set->before, &set->view);
    set_view_follow(&set->view, w, since, !set->fixed && !out);
    set->source = out ? -1 : set_view_find_working(&set->view, w);
    queue_change_set(e->queue, set->number, set->view.rank, set->view.size);
    set_write_text(set);
    if (set->view.rank >= 0)
        set_update_maps(set);
}

void sets_follow(struct engine *e, const struct world *w)
{
    for (size_t i = 0; i < e->sets.n; i++)
        follow(e, e->sets.table[i], w);
    if (e->sets.n > 0)
        sets_tell_agent(e);
}

void sets_abort(struct engine *e, const char *why)
{
    for (size_t i = 0; i < e->sets.ncircles; i++)
        mesh_abort(e->sets.circles[i]->mesh, why);
}

int sets_fix(struct engine *e, int number, struct err *err)
{
    if (number == 0)
        return err_set(err, EINVAL, "hvd_set_fix: the world cannot be fixed");
    lock(e);
    struct set *set = sets_find(&e->sets, number);
    int rc = set ? 0 : err_set(err, EINVAL, "hvd_set_fix: there is no set %d", number);
    if (set && set->by_rule)
        rc = err_set(err, EINVAL,
                     "hvd_set_fix: %s is a set by rule, whose ranks change with the job: make a "
                     "fixed set of its ranks by hvd_set_form()",
                     set->text);
    else if (set && set->view.rank < 0 && !e->boot.keeps_places)
        rc = err_set(err, EINVAL, "hvd_set_fix: this rank is not in set %d", number);
    if (rc == 0)
        rc = set_units_fit(e, set, err);
    if (rc == 0)
        set->fixed = true;
    unlock(e);
    return rc;
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
