/* SPDX-License-Identifier: Apache-2.0
 *
 * engine: see engine.h. Creation and end.
 */
#include "core/engine/engine.h"
#include "core/engine/set_move.h"
#include "core/engine/set_table.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/engine/failure.h"
#include "core/engine/leave.h"
#include "core/engine/resubmit.h"
#include "core/engine/turn.h"

#define FINISH_MS 2000 /* how long hvd_shutdown() waits for operations that cannot be cancelled */
#define END_MS    5000 /* how long it waits for the other ranks to agree to the end of the log */

/* ---- creation ---- */

void engine_set_tag(const struct engine *e)
{
    char tag[24];
    snprintf(tag, sizeof(tag), "hvd[%d]", e->circle.rank);
    log_set_tag(tag);
}

static int join_world(struct engine *e, struct err *err)
{
    uint64_t deadline = deadline_in_ms(e->set.start_timeout_ms);
    e->circle.rank = e->boot.rank;
    e->circle.size = e->boot.size;
    engine_set_tag(e);
    int rc = repair_first_epoch(e, deadline, err);
    e->boot.cancel = &e->drive.closing;
    if (rc == 0)
        engine_set_tag(e);
    return rc;
}

bool engine_is_newcomer(struct engine *e)
{
    bool now = e->boot.is_new && e->boot.is_new[e->circle.rank];
    if (now)
        atomic_store(&e->newcomer, 1);
    return now;
}

static void enter_queue(struct engine *e, const struct world *w)
{
    queue_lock(e->queue);
    queue_set_world(e->queue, w->epoch, w->rank, w->size, true);
    queue_unlock(e->queue);
}

static int create_parts(struct engine *e, uint64_t first_seq, struct err *err)
{
    int rc = coll_create(e->circle.mesh, &e->circle.coll, err);
    if (rc == 0 && e->boot.elastic)
        coll_set_elastic(e->circle.coll);
    if (rc == 0)
        rc = backends_enter(&e->backends, e->circle.coll, engine_is_newcomer(e),
                            deadline_in_ms(e->set.start_timeout_ms), err);
    e->circle.device = e->backends.device;
    if (rc == 0)
        rc = queue_create(e->circle.rank, e->circle.size, first_seq, &e->queue, err);
    if (rc == 0)
        e->queue->by_host = e->set.hierarchical_adasum;
    if (rc == 0 && e->boot.elastic)
        enter_queue(e, e->world);
    if (rc == 0)
        rc = batches_init(&e->circle, err);
    if (rc == 0)
        rc = engine_negotiate_anew(e, err);
    struct timeline *timeline = NULL;
    if (rc == 0 && e->set.timeline)
        rc = timeline_open(e->set.timeline, e->circle.rank, e->set.timeline_mark_cycles, &timeline,
                           err);
    timeline_put(&e->timeline, timeline);
    if (rc == 0)
        rc = drive_init(e, err);
    return rc == 0 ? drive_start(e, err) : rc;
}

int engine_negotiate_anew(struct engine *e, struct err *err)
{
    int rc = circle_negotiate(&e->circle, err);
    if (rc < 0)
        return rc;
    sets_enter(e);
    resubmit_world(e);
    return 0;
}

/* Of the world and of all sets. False: one of them hangs. */
static bool end_devices(struct engine *e)
{
    bool all = device_end(e->backends.device);
    for (size_t i = 0; i < e->sets.n; i++)
        all = device_end(e->sets.table[i]->circle.device) && all;
    return all;
}

static void destroy_parts(struct engine *e)
{
    drive_stop(e);
    drive_fini(e);
    timeline_close(timeline_put(&e->timeline, NULL));
    circle_dissolve(&e->circle);
    remains_fini(&e->circle);
    if (!end_devices(e)) {
        /* The GPU hangs. Freeing its memory would hang as well, so the process keeps it until it
         * exits. */
        launch_gpu_abandon(&e->circle.batches.launch.gpu);
        launch_gpu_abandon(&e->circle.batches.gpu.launch.gpu);
        if (e->queue)
            gpu_events_abandon(&e->queue->gpu_events);
        e->messages_gpu.abandoned = true;
    }
    sets_fini(&e->sets);
    join_fini(&e->join);
    circle_fini(&e->circle);
    queue_destroy(e->queue);
    messages_gpu_fini(e);
    backends_close(&e->backends, e->broken);
    world_destroy(e->worlds);
    free(e->fast.text);
    pthread_mutex_destroy(&e->world_lock);
    pthread_mutex_destroy(&e->timeline.lock);
}

int engine_create(struct boot *boot, const struct settings *set, uint64_t first_seq,
                  struct engine **ret, struct err *err)
{
    const _Atomic int *cancel = boot->cancel;
    struct engine *e = aligned_alloc(_Alignof(struct engine), sizeof(*e));
    if (!e)
        return err_set(err, ENOMEM, "no memory");
    memset(e, 0, sizeof(*e));
    e->circle.engine = e;
    sets_init(&e->sets);
    join_init(&e->join);
    messages_gpu_init(e);
    pthread_mutex_init(&e->world_lock, NULL);
    pthread_mutex_init(&e->timeline.lock, NULL);
    e->set = *set;
    e->backends.wish = set->backend;
    e->boot = *boot;
    *boot = (struct boot){.agent_fd = -1};
    e->drive.driver_fd = e->drive.thread_fd = -1;
    e->last_active_ns = clock_ns();
    int rc = join_world(e, err);
    if (rc == 0)
        rc = create_parts(e, first_seq, err);
    if (rc == 0) {
        *ret = e;
        return 0;
    }
    /* The other ranks are in the world already; tell them why this rank ends. */
    if (e->circle.mesh)
        mesh_abort(e->circle.mesh, err_text(err));
    engine_explain(err);
    destroy_parts(e);
    *boot = e->boot;
    boot->cancel = cancel;
    free(e);
    return rc;
}

void engine_swap_timeline(struct engine *e, struct timeline *fresh)
{
    timeline_close(timeline_put(&e->timeline, fresh));
}

/* ---- what callers see ---- */

void engine_world(struct engine *e, struct world *ret)
{
    pthread_mutex_lock(&e->world_lock);
    *ret = *e->world;
    pthread_mutex_unlock(&e->world_lock);
    ret->members = NULL;
    ret->places = NULL;
    ret->by_member = NULL;
    ret->fresh = ret->starts = ret->broken = NULL;
    ret->older = NULL;
}

int engine_places(struct engine *e, int *ret_places, int n)
{
    pthread_mutex_lock(&e->world_lock);
    const struct world *w = e->world;
    int size = w->size, some = n < size ? n : size;
    if (some > 0)
        memcpy(ret_places, w->places, (size_t)some * sizeof(*ret_places));
    pthread_mutex_unlock(&e->world_lock);
    return size;
}

int engine_enter_world(struct engine *e, struct world *w, struct err *err)
{
    struct world_map map = {0};
    int rc = world_map_init(&map, w, e->circle.mesh, err);
    if (rc < 0)
        return rc;
    /* Until the queue is unlocked no request is made: its numbers, and those of its set, are all
     * of one world. */
    pthread_mutex_lock(&e->sets.lock);
    if (e->queue)
        queue_lock(e->queue);
    if (e->world != w) {
        if (e->world)
            sets_follow(e, w);
        e->previous = e->world;
        world_map_fini(&e->circle.map_previous);
        e->circle.map_previous = e->circle.map;
        e->circle.map = (struct world_map){0};
    }
    world_map_fini(&e->circle.map);
    e->circle.map = map;
    pthread_mutex_lock(&e->world_lock);
    e->world = w;
    pthread_mutex_unlock(&e->world_lock);
    if (e->previous) {
        world_destroy(e->previous->older);
        e->previous->older = NULL;
    }
    if (e->queue && e->boot.elastic)
        queue_set_world(e->queue, w->epoch, w->rank, w->size,
                        w->table != TABLE_GAINS && !sets_have_rules(e));
    if (e->queue)
        queue_unlock(e->queue);
    pthread_mutex_unlock(&e->sets.lock);
    return 0;
}

void engine_end_world(struct engine *e)
{
    struct err err;
    device_drain(e->backends.device);
    err_set(&err, ESTALE,
            "hvd_commit() in another thread has changed the world of %d ranks in which this was "
            "submitted: no tensor was changed. Look at rank and size, and submit it again",
            e->world->size);
    if (e->fast_busy && e->fast.facts.sig.world != 0 && !atomic_load(&e->fast.done)) {
        e->fast.status = err.code;
        e->fast.text = strdup(err.msg);
        atomic_store(&e->fast.done, 1);
    }
    queue_end_world(e->queue, &err);
    drive_wake_waiters(e);
}

/* Adds what the circles count. */
static void add_up(struct engine *e, struct negotiate_stats *sum, uint64_t *refused,
                   uint64_t *allocations)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        struct negotiate_stats own = {0};
        if (c->neg)
            negotiate_get_stats(c->neg, &own);
        sum->negotiated += own.negotiated;
        sum->cached += own.cached;
        sum->frozen += own.frozen;
        sum->thaws += own.thaws;
        *refused += mesh_refused(c->mesh);
        *allocations += c->ids.allocations;
    }
}

void engine_stats(struct engine *e, struct hvd_stats *ret)
{
    struct engine_counters *c = &e->counters;
    struct negotiate_stats n = {0};
    uint64_t refused = 0, allocations = 0;
    bool locked = drive_lock_unless(e, &e->repairing);
    if (locked) {
        refused = e->boot.refused;
        add_up(e, &n, &refused, &allocations);
    }
    *ret = (struct hvd_stats){
        .ops = atomic_load(&c->ops),
        .batches = atomic_load(&c->batches),
        .bytes = atomic_load(&c->bytes),
        .negotiated = n.negotiated + atomic_load(&c->negotiated),
        .cached = n.cached + atomic_load(&c->cached),
        .frozen = n.frozen + atomic_load(&c->frozen),
        .thaws = n.thaws + atomic_load(&c->thaws),
        .refused = refused + atomic_load(&c->refused),
        .allocations =
            allocations + atomic_load(&c->allocations) + atomic_load(&e->queue->allocations),
        .stalls = atomic_load(&c->stalls),
        .messages_nccl = atomic_load(&c->messages_nccl),
        .submitted = atomic_load(&e->queue->submitted),
        .sets = locked ? e->sets.ncircles : 0,
    };
    if (locked)
        drive_leave(e);
}

int engine_backend(struct engine *e, const char *name, struct hvd_backend *ret, struct err *err)
{
    struct circle *c;
    int rc = 0;
    drive_lock(e);
    ret->open = false;
    for (size_t i = 0; rc == 0 && !ret->open && (c = engine_circle(e, i)) != NULL; i++)
        rc = backends_tell(&e->backends, c->device, name, ret, err);
    drive_leave(e);
    return rc;
}

/* ---- end ---- */

/* Runs turns until owes(e) is false, the engine has failed, or so many ms have passed. Returns
 * whether owes(e) is false. */
static bool finish(struct engine *e, bool (*owes)(struct engine *e), int ms)
{
    uint64_t deadline = deadline_in_ms(ms);
    struct spin_state spin = {0};
    while (owes(e) && !e->failed && !deadline_passed(deadline)) {
        if (turn(e, TURN_FULL)) {
            spin = (struct spin_state){0};
            continue;
        }
        if (drive_pause(e, &spin))
            continue;
        circles_sleep_begin(e);
        struct pollfd p = {.fd = circles_fd(e), .events = POLLIN};
        if (!turn(e, TURN_CHECK) && !e->failed)
            poll(&p, 1, 1);
        circles_sleep_end(e);
    }
    return !owes(e);
}

/* Whether the circle's log may still get batches. Asks for its end. A rank that has departed has
 * seen the end, and so has this rank, or that rank could not wait for it. */
static bool is_open(struct circle *c)
{
    const struct control *t = &c->control;
    if (!circle_works(c) || t->ndeparted > 0 || t->moved_on || negotiate_end(c->neg))
        return false;
    c->next_tick = 0;
    return true;
}

static bool may_get_batches(struct engine *e)
{
    struct circle *c;
    bool any = false;
    for (size_t i = 0; !e->failed && (c = engine_circle(e, i)) != NULL; i++)
        any = is_open(c) || any;
    return any;
}

/* Every rank runs the batches before the end of the log. MPI cannot cancel an operation, and wants
 * to be finalized by all ranks or by none; NCCL cannot take back a message. */
static bool owes_operations(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (batches_owed(&c->batches) || messages_nccl_owes(c))
            return true;
    return false;
}

/* Whether other ranks may be in an operation of the circle that this rank has not finished. */
static bool is_in_the_middle(const struct circle *c)
{
    bool negotiates = !c->engine->failed && c->neg;
    if (!batches_idle(&c->batches) || (negotiates && negotiate_owes(c->neg)))
        return true;
    return negotiates && circle_works(c) && !negotiate_has_ended(c->neg) && c->ids.count > 0;
}

/* Fails if other ranks may be in an operation that this rank has not finished. */
static int end_operations(struct engine *e, struct err *err)
{
    struct circle *c;
    finish(e, may_get_batches, END_MS);
    bool whole = finish(e, owes_operations, FINISH_MS);
    for (size_t i = 0; whole && (c = engine_circle(e, i)) != NULL; i++)
        whole = !is_in_the_middle(c);
    return whole ? 0 : err_set(err, ESHUTDOWN, "hvd_shutdown() in the middle of an operation");
}

void engine_close(struct engine *e)
{
    struct err err;
    atomic_store(&e->drive.closing, 1);
    atomic_store(&e->sets.over, 1);
    inject_point("closing");
    drive_lock(e);
    bool in_the_middle = end_operations(e, &err) < 0;
    if (in_the_middle) { /* before the operations are aborted: see engine_let_others_hear() */
        mesh_abort(e->circle.mesh, err.msg);
        sets_abort(e, err.msg);
        engine_send_bye(e, BYE_THIS_RANK, &err);
    }
    err_set(&err, ESHUTDOWN, "hvd_shutdown() was called");
    engine_fail_all(e, &err);
    if (in_the_middle) {
        e->broken = true;
    } else if (e->broken) {
        /* A loss was read at the same time; the mesh has told the other ranks. */
        engine_send_bye(e, BYE_IN_ORDER, NULL);
    } else {
        leave_world(e);
    }
    /* Refuses a caller that got the engine before the shutdown and submits only now. */
    e->failed = true;
    err_set(&e->failure, ESHUTDOWN, "hvd_shutdown() was called");
    drive_leave(e);
}

void engine_refuse(struct engine *e)
{
    if (!queue_has_new(e->queue))
        return;
    drive_lock(e);
    turn(e, TURN_SPIN);
    drive_leave(e);
}

void engine_destroy(struct engine *e)
{
    if (!e)
        return;
    destroy_parts(e);
    boot_fini(&e->boot);
    free(e);
}

void engine_after_fork(struct engine *e)
{
    mesh_after_fork(e->circle.mesh);
    if (e->circle.remains.mesh && e->circle.remains.mesh != e->circle.mesh)
        mesh_after_fork(e->circle.remains.mesh);
    for (size_t i = 0; i < e->sets.n; i++)
        set_after_fork(e->sets.table[i]);
    if (e->sets.epoll_fd >= 0)
        close(e->sets.epoll_fd);
    boot_after_fork(&e->boot);
    timeline_after_fork(&e->timeline);
    close(e->drive.driver_fd);
    close(e->drive.thread_fd);
}
