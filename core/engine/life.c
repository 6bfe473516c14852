/* SPDX-License-Identifier: Apache-2.0
 *
 * life: see life.h.
 *
 * The library's global state is here: the engine, the provisional numbers of a joiner that is not
 * admitted yet, and the number of threads inside a call. A call counts itself in before it reads
 * the engine pointer. life_shutdown() clears the pointer and destroys the engine when the last call
 * has ended.
 *
 * A child of fork(2) must not keep the engine's descriptors: peers would not see its parent's end.
 * The child can close those of a complete engine, but not those of an engine that another thread is
 * creating, repairing or destroying. So fork() waits until that has finished.
 */
#include "core/engine/life.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/engine/boundary.h"
#include "core/engine/engine.h"

/* A joiner before admission: it has said HELLO and got provisional numbers. The engine takes over
 * boot. */
struct pending_join {
    struct boot boot;
    struct settings set;
    struct world numbers; /* never changes: any thread may read it until life_shutdown() */
    struct err failure;   /* admission has failed: what every call gets from then on */
    char *timeline;
    bool mark_cycles;
};

static struct {
    pthread_mutex_t life; /* serializes init, admission, shutdown and fork */
    struct engine *_Atomic engine;
    struct pending_join *_Atomic pending; /* kept after admission, until life_shutdown() */
    _Atomic int inside;
    _Atomic int leaving; /* life_shutdown() waits for the lock */
    _Atomic int child;   /* this process was forked while lib.engine or lib.pending was set */
    struct engine *_Atomic whole; /* the engine until it is destroyed, for the child of fork */
    _Atomic int over; /* life_shutdown() ends the engine, or has; no life_init() has begun since */
    uint64_t seq;
    bool atfork;
} lib = {.life = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool has_life; /* this thread has lib.life */
static _Thread_local bool has_lock; /* this thread forks and has the engine's progress lock */

static void life_lock(void)
{
    pthread_mutex_lock(&lib.life);
    has_life = true;
}

static void life_unlock(void)
{
    has_life = false;
    pthread_mutex_unlock(&lib.life);
}

/* ---- fork ----------------------------------------------------------------------------------- */

/* Waits for a repair to end: a child forked during a repair would keep connections that are being
 * replaced. */
static void lock_for_fork(struct engine *e)
{
    struct timespec nap = {.tv_nsec = 1000000};
    uint64_t begin = clock_ns();
    for (bool said = false; !drive_lock_unless(e, &e->repairing); nanosleep(&nap, NULL)) {
        if (!said && clock_ns() - begin > 1 * CLOCK_S) {
            log_warn("fork() waits until the repair after the loss of a rank has ended");
            said = true;
        }
    }
}

/* hvd_init() may call code that forks while this thread has lib.life. */
static void before_fork(void)
{
    if (has_life || fork_is_ours)
        return;
    pthread_mutex_lock(&lib.life);
    struct engine *e = atomic_load(&lib.whole);
    has_lock = e != NULL;
    if (e) {
        sets_hold(&e->sets);
        lock_for_fork(e);
    }
}

static void after_fork(void)
{
    if (has_life || fork_is_ours)
        return;
    if (has_lock) {
        struct engine *e = atomic_load(&lib.whole);
        drive_leave(e);
        sets_let(&e->sets);
    }
    has_lock = false;
    pthread_mutex_unlock(&lib.life);
}

static void after_fork_in_child(void)
{
    struct engine *e = atomic_load(&lib.whole);
    struct pending_join *l = atomic_load(&lib.pending);
    if (e || l)
        atomic_store(&lib.child, 1);
    atomic_store(&lib.engine, NULL);
    atomic_store(&lib.whole, NULL);
    atomic_store(&lib.pending, NULL);
    if (e)
        engine_after_fork(e);
    else if (l)
        boot_after_fork(&l->boot);
    has_lock = false; /* the engine stays the parent's */
    after_fork();
}

/* ---- admission ------------------------------------------------------------------------------ */

static void pending_join_destroy(struct pending_join *l)
{
    if (!l)
        return;
    boot_fini(&l->boot);
    free(l->timeline);
    free(l);
}

/* Creates an engine and joins the world. 1: this rank got provisional numbers instead. On any other
 * result than 0 the caller owns boot again, which is empty if the engine had taken it over. */
static int make_engine(struct boot *boot, const struct settings *set, struct err *err)
{
    struct engine *e = NULL;
    int rc = engine_create(boot, set, lib.seq, &e, err);
    if (rc != 0)
        return rc;
    rc = boundary_join(e, err);
    if (rc < 0) {
        engine_close(e);
        engine_destroy(e);
        return rc;
    }
    atomic_store(&lib.whole, e);
    atomic_store(&lib.engine, e);
    return 0;
}

static void fill_numbers(struct world *w, const struct boot_numbers *p)
{
    *w = (struct world){.epoch = p->epoch,
                        .rank = p->rank,
                        .size = p->size,
                        .place = p->place,
                        .local_rank = p->local_rank,
                        .local_size = p->local_size,
                        .cross_rank = p->cross_rank,
                        .cross_size = p->cross_size,
                        .is_new = true};
}

static int init_locked(struct err *err)
{
    if (atomic_load(&lib.child))
        return err_set(err, EPERM,
                       "this process was forked from a rank: start a new process instead");
    if (life_is_on())
        return 0;
    if (!lib.atfork && pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0)
        return err_set(err, ENOMEM, "no memory");
    lib.atfork = true;
    struct pending_join *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, ENOMEM, "no memory");
    l->boot.agent_fd = -1;
    atomic_store(&lib.over, 0);
    int rc = settings_read(&l->set, err);
    if (rc == 0)
        backends_early(&l->set.backend);
    if (rc == 0)
        rc = boot_open(&l->boot, err);
    if (rc == 0)
        rc = make_engine(&l->boot, &l->set, err);
    if (rc == 1) {
        fill_numbers(&l->numbers, &l->boot.numbers);
        atomic_store(&lib.pending, TAKE(l));
        rc = 0;
    }
    pending_join_destroy(l);
    return rc;
}

int life_init(struct err *err)
{
    if (life_is_on())
        return 0;
    life_lock();
    int rc = init_locked(err);
    life_unlock();
    return rc;
}

static int nobody(struct err *err)
{
    if (atomic_load(&lib.child))
        return err_set(err, EPERM, "this process was forked from a rank: it has no engine");
    return err_set(err, ENOTCONN, "%s",
                   atomic_load(&lib.over) ? "hvd_shutdown() was called before this"
                                          : "hvd_init() was not called");
}

bool life_is_on(void)
{
    return atomic_load(&lib.engine) || atomic_load(&lib.pending);
}

static void begin_timeline(struct pending_join *l, struct engine *e)
{
    struct err err = {0};
    struct timeline *t = NULL;
    struct world w;
    if (!l->timeline)
        return;
    engine_world(e, &w);
    if (timeline_open(l->timeline, w.rank, l->mark_cycles, &t, &err) < 0)
        log_warn("%s", err_text(&err));
    else
        engine_swap_timeline(e, t);
}

static int enter_locked(struct err *err)
{
    struct pending_join *l = atomic_load(&lib.pending);
    if (atomic_load(&lib.engine))
        return 0;
    if (!l)
        return nobody(err);
    if (l->failure.code) {
        *err = l->failure;
        return l->failure.code;
    }
    l->boot.why = CTL_ENTER;
    l->boot.cancel = &lib.leaving;
    int rc = make_engine(&l->boot, &l->set, err);
    if (rc == 1)
        rc = err_set(err, EPROTO, "the agent has sent NUMBERS, but was asked for a ROSTER");
    if (rc == 0) {
        begin_timeline(l, atomic_load(&lib.engine));
        return 0;
    }
    /* The coordinator knows already that a rank which was asked to leave is out. */
    if (rc != -ESHUTDOWN)
        boot_bye(&l->boot, rc, 0, err_text(err));
    l->failure = *err;
    return rc;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Called outside a counted call: life_shutdown() holds the lock while it waits for counted calls to
 * end. */
static int await_admission(bool *ret_moved, struct err *err)
{
    life_lock();
    int rc = enter_locked(err);
    const struct pending_join *l = atomic_load(&lib.pending);
    if (rc == 0 && ret_moved && l) {
        struct world w;
        engine_world(atomic_load(&lib.engine), &w);
        *ret_moved = l->numbers.rank != w.rank || l->numbers.size != w.size;
    }
    life_unlock();
    return rc;
}

struct engine *life_begin(bool *ret_moved, struct err *err)
{
    for (;;) {
        atomic_fetch_add(&lib.inside, 1);
        struct engine *e = atomic_load(&lib.engine);
        if (e)
            return e;
        atomic_fetch_sub(&lib.inside, 1);
        if (!atomic_load(&lib.pending)) {
            nobody(err);
            return NULL;
        }
        if (await_admission(ret_moved, err) < 0)
            return NULL;
    }
}

int life_peek(struct engine **ret_engine, struct world *ret_world, struct err *err)
{
    atomic_fetch_add(&lib.inside, 1);
    struct engine *e = atomic_load(&lib.engine);
    const struct pending_join *l = atomic_load(&lib.pending);
    if (!e && !l) {
        atomic_fetch_sub(&lib.inside, 1);
        return nobody(err);
    }
    *ret_engine = e;
    if (e)
        engine_world(e, ret_world);
    else
        *ret_world = l->numbers;
    return 0;
}

void life_end(void)
{
    atomic_fetch_sub(&lib.inside, 1);
}

int life_note_timeline(const char *path, bool mark_cycles, struct err *err)
{
    char *copy = NULL;
    int rc = 0;
    if (atomic_load(&lib.engine))
        return 0;
    life_lock();
    struct pending_join *l = atomic_load(&lib.engine) ? NULL : atomic_load(&lib.pending);
    if (l && path && !(copy = strdup(path))) {
        rc = err_set(err, ENOMEM, "no memory for the timeline's path");
    } else if (l) {
        free(l->timeline);
        l->timeline = copy;
        l->mark_cycles = mark_cycles;
        rc = 1;
    }
    life_unlock();
    return rc;
}

/* ---- shutdown ------------------------------------------------------------------------------- */

static void shutdown_locked(struct engine *e, struct pending_join *l)
{
    struct timespec nap = {.tv_nsec = 100000};
    atomic_store(&lib.engine, NULL);
    atomic_store(&lib.pending, NULL);
    if (e)
        engine_close(e);
    else if (!l->failure.code)
        boot_bye(&l->boot, 0, 0, "");
    while (atomic_load(&lib.inside) > 0) {
        if (e)
            engine_refuse(e);
        nanosleep(&nap, NULL);
    }
    if (e) {
        lib.seq = e->queue->seq;
        atomic_store(&lib.whole, NULL);
        engine_destroy(e);
    }
    pending_join_destroy(l);
}

int life_shutdown(struct err *err)
{
    if (atomic_load(&lib.child))
        return nobody(err);
    atomic_fetch_add(&lib.leaving, 1);
    life_lock();
    struct engine *e = atomic_load(&lib.engine);
    struct pending_join *l = atomic_load(&lib.pending);
    bool on = e || l;
    if (on) {
        atomic_store(&lib.over, 1);
        shutdown_locked(e, l);
    }
    atomic_fetch_sub(&lib.leaving, 1);
    life_unlock();
    return on ? 0 : nobody(err);
}
