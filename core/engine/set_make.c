/* SPDX-License-Identifier: Apache-2.0
 *
 * set_make: makes a set for hvd_set_add(). Each step ends with a vote of the whole world, so that
 * all ranks go on, or all of them stop with the same error:
 *
 *   1. All ranks have asked for the same set, and its members have opened sockets.
 *   2. The members have each other's cards.
 *   3. The members have made a mesh, and a circle of it.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/sock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_call.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

#define LEAVE_MS 5000 /* how long a set's last rank is waited for */

/* ---- its parts ------------------------------------------------------------------------------ */

/* The driver makes the set's circle in a new epoch, so nobody else looks at the world. -EAGAIN: a
 * rank has left this epoch for a boundary. */
static int look_at_world(struct set *set, struct err *err)
{
    struct engine *e = set->circle.engine;
    int rc = mesh_progress(e->circle.mesh, NULL, err);
    for (int i = 0; rc == 0 && i < set->boot.size; i++)
        if (e->circle.control.moved_on || mesh_has_left(e->circle.mesh, set->ranks[i]))
            rc = err_set(err, EAGAIN, "rank %d has moved on to the next epoch", set->ranks[i]);
    return rc;
}

/* Looked up while the set's mesh is made: whether the others can still come. */
static int may_go_on(void *ctx, struct err *err)
{
    struct set *set = ctx;
    struct engine *e = set->circle.engine;
    if (atomic_load(&e->sets.over))
        return err_set(err, ECONNRESET, "the job ended");
    if (set->circle.state == CIRCLE_LOST)
        return look_at_world(set, err);
    if (set->boot.epoch != atomic_load(&e->epoch))
        return err_set(err, EAGAIN, "a rank was lost meanwhile");
    return 0;
}

static int make_arrays(struct set *set, const struct world *w, const int *ranks, int n,
                       struct err *err)
{
    size_t whole = (size_t)set->whole;
    set->members = calloc(whole, sizeof(*set->members));
    set->target = calloc(whole, sizeof(*set->target));
    set->ranks = calloc(whole, sizeof(*set->ranks));
    if (!set->members || !set->target || !set->ranks)
        return err_set(err, ENOMEM, "no memory for a set of %d ranks", set->whole);
    int rc = set_view_init(&set->view, w, ranks, n, set->whole, err);
    if (rc == 0)
        rc = set_view_init(&set->before, w, ranks, n, set->whole, err);
    if (rc == 0)
        rc = set_view_map_init(&set->circle.map, set->whole, err);
    return rc == 0 ? set_view_map_init(&set->circle.map_previous, set->whole, err) : rc;
}

static int take_places(struct set *set, const struct engine *e, const struct set_entry *entry,
                       struct err *err)
{
    if (!e->boot.keeps_places || set->by_rule)
        return 0;
    set->places = calloc((size_t)set->whole, sizeof(*set->places));
    if (!set->places)
        return err_set(err, ENOMEM, "no memory for a set of %d ranks", set->whole);
    for (int i = 0; i < set->whole; i++)
        set->places[i] = entry->places ? entry->places[i] : e->world->places[entry->ranks[i]];
    return 0;
}

/* The most ranks that the set can have. A group of a set by rule may have more ranks after each
 * boundary; memory that it never uses stays untouched. */
static int most_ranks(const struct engine *e, const struct set_entry *entry)
{
    if (!entry->by_rule)
        return entry->whole;
    return e->boot.elastic ? BOOT_SIZE_MAX : e->world->size;
}

/* (lock) The ranks are numbered as in the user's world. NULL or not, err may be set. */
static struct set *new_set(struct engine *e, const struct set_entry *entry, struct err *err)
{
    const int *ranks = entry->ranks;
    int n = entry->n;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < e->world->size)
            continue;
        err_set(err, EAGAIN, "the world has become smaller meanwhile");
        return NULL;
    }
    struct set *set = calloc(1, sizeof(*set));
    if (!set) {
        err_set(err, ENOMEM, "no memory for a set");
        return NULL;
    }
    set->circle.engine = e;
    set->boot.agent_fd = -1;
    set->by_rule = entry->by_rule;
    set->whole = most_ranks(e, entry);
    if (make_arrays(set, e->world, ranks, n, err) < 0 || take_places(set, e, entry, err) < 0) {
        set_destroy(set);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        set->members[i] = set->view.members[i];
        set->ranks[i] = e->circle.map.to_mesh[ranks[i]];
        if (set->ranks[i] < 0)
            err_set(err, EOWNERDEAD, "rank %d is lost", ranks[i]);
        else if (e->worlds->broken[set->ranks[i]])
            set_unit_error(e, "the new set", err);
    }
    set->since = e->boot.epoch;
    set->circle.state = CIRCLE_MAKING;
    set->circle.name = set->text;
    set->circle.world_ranks = set->ranks;
    set->circle.members = set->members;
    set->boot = (struct boot){.rank = set->view.rank,
                              .size = n,
                              .epoch = e->boot.epoch,
                              .elastic = e->boot.elastic,
                              .has_key = e->boot.has_key,
                              .names = set->ranks,
                              .go_on = may_go_on,
                              .go_on_ctx = set,
                              .agent_fd = -1};
    memcpy(set->boot.key, e->boot.key, sizeof(set->boot.key));
    return set;
}

static int make_room(struct set *set, struct err *err)
{
    bool member = set->view.rank >= 0;
    int rc = member ? boot_make_cards(&set->boot, false, err) : 0;
    for (int i = 0; rc == 0 && member && i < set->boot.size; i++)
        if (!buf_reserve(&set->boot.cards[i], CARD_BYTES))
            rc = err_set(err, ENOMEM, "no memory for %d cards", set->boot.size);
    return rc;
}

void making_open(struct making *m, struct engine *e, const struct set_entry *entry)
{
    struct world w;
    engine_world(e, &w);
    bool member = ranklist_find(entry->ranks, entry->n, w.rank) >= 0;
    if (member && sets_need_room(e, entry->ranks, entry->n, &m->mine) < 0)
        return;
    drive_lock(e);
    struct set *set = m->set = new_set(e, entry, &m->mine);
    if (m->mine.code == 0 && make_room(set, &m->mine) == 0 && member)
        mesh_listen_within(e->circle.mesh, &set->boot, &m->listener, &m->card, &m->mine);
    drive_leave(e);
    if (m->card.len > CARD_BYTES - 2)
        err_set(&m->mine, E2BIG, "a card of %zu bytes", m->card.len);
}

int set_make_coll(struct set *set, struct err *err)
{
    struct circle *c = &set->circle;
    int rc = coll_create(c->mesh, &c->coll, err);
    if (rc == 0 && c->engine->boot.elastic)
        coll_set_elastic(c->coll);
    return rc == 0 ? coll_add_algorithms(c->coll, device_algorithms, c->device, err) : rc;
}

static int open_circle(struct set *set, struct mesh_listener *listener, struct err *err)
{
    struct circle *c = &set->circle;
    uint64_t limit = c->engine->set.start_timeout_ms;
    limit = limit < CONNECT_MS ? limit : CONNECT_MS;
    int rc = mesh_create(&set->boot, listener, deadline_in_ms(limit), &c->mesh, err);
    if (rc < 0)
        return rc;
    boot_drop_cards(&set->boot);
    c->set = set->number; /* the world alone has the number 0 */
    if (c->mesh->hosts == 1)
        mesh_close_listener(c->mesh);
    c->rank = c->mesh->rank;
    c->size = c->mesh->size;
    set_view_map(&set->view, set->members, c->size, &c->map);
    rc = backends_make_set_device(&c->engine->backends, &c->device, err);
    if (rc == 0)
        rc = set_make_coll(set, err);
    if (rc == 0)
        rc = batches_init(c, err);
    return rc == 0 ? circle_negotiate(c, err) : rc;
}

/* For a circle that is made later: of a joiner, or of a rank that comes to a group. */
static int prepare_circle(struct set *set, struct err *err)
{
    struct circle *c = &set->circle;
    c->size = set->boot.size > 0 ? set->boot.size : 1;
    c->state = CIRCLE_LOST;
    int rc = backends_make_set_device(&c->engine->backends, &c->device, err);
    if (rc == 0 && atomic_load(&c->engine->newcomer))
        device_joins(c->device);
    if (rc == 0)
        rc = batches_init(c, err);
    set->blank = true;
    set->source = -1;
    return rc;
}

void making_connect(struct making *m)
{
    inject_point("set");
    if (m->set->view.rank >= 0 && m->mine.code == 0)
        open_circle(m->set, TAKE(m->listener), &m->mine);
    else if (m->set->by_rule && m->mine.code == 0)
        prepare_circle(m->set, &m->mine);
    struct engine *e = m->set->circle.engine;
    if (m->mine.code == -ECONNRESET && m->set->boot.epoch != atomic_load(&e->epoch))
        m->mine.code = -EAGAIN; /* the other ranks go on without the one that is lost */
    if (m->mine.code == 0)
        sets_prepare(e, m->set, &m->mine);
    engine_explain(&m->mine);
}

void making_end(struct making *m, struct engine *e, int rc)
{
    mesh_listener_destroy(m->listener);
    buf_fini(&m->card);
    if (rc == 0 || !m->set)
        return;
    sets_take_back(e, m->set);
    drive_lock(e);
    set_destroy(m->set);
    drive_leave(e);
}

/* ---- of a joiner ---------------------------------------------------------------------------- */

static int learn(struct set *set, struct engine *e, const struct set_entry *entry, struct err *err)
{
    int rc = 0;
    set->number = entry->number;
    set->fixed = entry->fixed;
    set->made = entry->number >= SETS_FORMED;
    set_write_label(set->label, sizeof(set->label), set->number, entry->name);
    if (entry->name && !(set->name = strdup(entry->name)))
        rc = err_set(err, ENOMEM, "no memory for the name of a set");
    if (rc == 0 && (set->view.rank >= 0 || set->by_rule))
        rc = prepare_circle(set, err);
    return rc == 0 ? sets_prepare(e, set, err) : rc;
}

int set_learn(struct engine *e, const struct set_entry *entry, struct err *err)
{
    struct err lost = {
        0}; /* a rank of the set may be lost by now, as on the ranks that are in it */
    if (sets_knows(e, entry->number))
        return 0;
    drive_lock(e);
    struct set *set = new_set(e, entry, &lost);
    drive_leave(e);
    if (!set) {
        *err = lost;
        return err->code;
    }
    int rc = learn(set, e, entry, err);
    if (rc < 0) {
        sets_take_back(e, set);
        drive_lock(e);
        set_destroy(set);
        drive_leave(e);
        return rc;
    }
    sets_open(e, set);
    return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

void set_leave(struct set *set)
{
    struct circle *c = &set->circle;
    uint64_t deadline = deadline_in_ms(LEAVE_MS);
    struct err err = {0};
    while (!deadline_passed(deadline) && mesh_progress(c->mesh, NULL, &err) == 0) {
        if (control_flush(c) == 0)
            mesh_goodbye(c->mesh);
        if (mesh_all_left(c->mesh))
            return;
        mesh_sleep_begin(c->mesh);
        struct pollfd p = {.fd = mesh_fd(c->mesh), .events = POLLIN};
        poll(&p, 1, 5);
        mesh_sleep_end(c->mesh);
    }
}

void set_after_fork(struct set *set)
{
    const struct circle *c = &set->circle;
    if (c->mesh)
        mesh_after_fork(c->mesh);
    if (c->remains.mesh && c->remains.mesh != c->mesh)
        mesh_after_fork(c->remains.mesh);
    mesh_listener_after_fork(set->listener);
}

void set_destroy(struct set *set)
{
    if (!set)
        return;
    struct circle *c = &set->circle;
    circle_dissolve(c);
    circle_fini(c);
    retired_add(c->engine, c->device);
    world_map_fini(&c->map);
    world_map_fini(&c->map_previous);
    mesh_listener_destroy(set->listener);
    boot_fini(&set->boot);
    set_view_fini(&set->view);
    set_view_fini(&set->before);
    free(set->members);
    free(set->target);
    free(set->places);
    free(set->ranks);
    free(set->name);
    free(set);
}
