/* SPDX-License-Identifier: Apache-2.0
 *
 * api: the functions of hvd.h. Any thread of the user.
 *
 * The only state of the library that is not in an object: the engine, how many threads are inside a
 * call, and each thread's last error. A call counts itself in before it looks at the engine;
 * hvd_shutdown() takes the engine away and destroys it when the last one is out.
 *
 * A child of fork(2) must not keep the engine's descriptors: its parent's end would not be seen. It
 * can close those of a whole engine, not of one that another thread is making, repairing or taking
 * apart, so fork() waits until that is over.
 */
#include <hvd.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/engine/boundary.h"
#include "core/engine/engine.h"
#include "core/engine/fast.h"

static struct {
    pthread_mutex_t life; /* init, shutdown and fork, one at a time */
    struct engine *_Atomic engine;
    _Atomic int inside;
    _Atomic int child;            /* of a fork while there was an engine */
    struct engine *_Atomic whole; /* the engine until it is destroyed: for the child after fork */
    uint64_t seq;
    bool atfork;
} lib = {.life = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct err last;
static _Thread_local bool has_life; /* this thread has lib.life */
static _Thread_local bool has_lock; /* this thread forks and has the engine's progress lock */

/* ---- in and out ---- */

static struct engine *call_begin(void)
{
    atomic_fetch_add(&lib.inside, 1);
    struct engine *e = atomic_load(&lib.engine);
    if (e)
        return e;
    atomic_fetch_sub(&lib.inside, 1);
    if (atomic_load(&lib.child))
        err_set(&last, EPERM, "this process was forked from a rank: it has no engine");
    else
        err_set(&last, ENOTCONN, "hvd_init() was not called");
    return NULL;
}

static void call_end(void)
{
    atomic_fetch_sub(&lib.inside, 1);
}

const char *hvd_error(void)
{
    return err_text(&last);
}

/* ---- life ---- */

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

/* What hvd_init() calls may fork by itself. */
static void before_fork(void)
{
    if (has_life)
        return;
    pthread_mutex_lock(&lib.life);
    struct engine *e = atomic_load(&lib.whole);
    has_lock = e != NULL;
    if (e)
        drive_lock(e);
}

static void after_fork(void)
{
    if (has_life)
        return;
    if (has_lock)
        drive_leave(atomic_load(&lib.whole));
    has_lock = false;
    pthread_mutex_unlock(&lib.life);
}

static void after_fork_in_child(void)
{
    struct engine *e = atomic_load(&lib.whole);
    if (e) {
        atomic_store(&lib.child, 1);
        atomic_store(&lib.engine, NULL);
        atomic_store(&lib.whole, NULL);
        engine_after_fork(e);
    }
    has_lock = false; /* of an engine that is the parent's */
    after_fork();
}

static int init_locked(void)
{
    if (atomic_load(&lib.child))
        return err_set(&last, EPERM,
                       "this process was forked from a rank: start a new process instead");
    if (atomic_load(&lib.engine))
        return 0;
    if (!lib.atfork && pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0)
        return err_set(&last, ENOMEM, "no memory");
    lib.atfork = true;
    struct engine *e = NULL;
    int rc = engine_create(lib.seq, &e, &last);
    if (rc < 0)
        return rc;
    rc = boundary_join(e, &last);
    if (rc < 0) {
        engine_close(e);
        engine_destroy(e);
        return rc;
    }
    atomic_store(&lib.whole, e);
    atomic_store(&lib.engine, e);
    return 0;
}

int hvd_init(void)
{
    life_lock();
    int rc = init_locked();
    life_unlock();
    return rc;
}

static void shutdown_locked(struct engine *e)
{
    struct timespec nap = {.tv_nsec = 100000};
    atomic_store(&lib.engine, NULL);
    engine_close(e);
    while (atomic_load(&lib.inside) > 0) {
        engine_refuse(e);
        nanosleep(&nap, NULL);
    }
    lib.seq = e->queue->seq;
    atomic_store(&lib.whole, NULL);
    engine_destroy(e);
}

int hvd_shutdown(void)
{
    if (atomic_load(&lib.child))
        return err_set(&last, EPERM, "this process was forked from a rank: it has no engine");
    life_lock();
    struct engine *e = atomic_load(&lib.engine);
    if (e)
        shutdown_locked(e);
    life_unlock();
    return e ? 0 : err_set(&last, ENOTCONN, "hvd_init() was not called");
}

bool hvd_initialized(void)
{
    return atomic_load(&lib.engine) != NULL;
}

/* ---- the world ---- */

enum place {
    PLACE_RANK,
    PLACE_SIZE,
    PLACE_LOCAL_RANK,
    PLACE_LOCAL_SIZE,
    PLACE_CROSS_RANK,
    PLACE_CROSS_SIZE
};

static int place(enum place what)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    const struct world *w = atomic_load(&e->world);
    const int places[] = {
        [PLACE_RANK] = w->rank,
        [PLACE_SIZE] = w->size,
        [PLACE_LOCAL_RANK] = w->local_rank,
        [PLACE_LOCAL_SIZE] = w->local_size,
        [PLACE_CROSS_RANK] = w->cross_rank,
        [PLACE_CROSS_SIZE] = w->cross_size,
    };
    int v = places[what];
    call_end();
    return v;
}

int hvd_rank(void)
{
    return place(PLACE_RANK);
}

int hvd_size(void)
{
    return place(PLACE_SIZE);
}

int hvd_local_rank(void)
{
    return place(PLACE_LOCAL_RANK);
}

int hvd_local_size(void)
{
    return place(PLACE_LOCAL_SIZE);
}

int hvd_cross_rank(void)
{
    return place(PLACE_CROSS_RANK);
}

int hvd_cross_size(void)
{
    return place(PLACE_CROSS_SIZE);
}

bool hvd_homogeneous(void)
{
    struct engine *e = call_begin();
    if (!e)
        return false;
    bool same = atomic_load(&e->world)->homogeneous;
    call_end();
    return same;
}

/* ---- operations ---- */

int hvd_submit(const struct hvd_request *requests, size_t n, hvd_handle *ret_handles)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    uint64_t now = atomic_load_explicit(&e->timeline_on, memory_order_relaxed) ? clock_ns() : 0;
    int rc = queue_submit(e->queue, requests, n, now, ret_handles, &last);
    if (rc == 0)
        drive_submitted(e);
    call_end();
    return rc;
}

/* Counts itself in; the caller counts out when a slot was found. */
static struct slot *find_slot(hvd_handle handle, struct engine **ret_engine)
{
    struct engine *e = call_begin();
    if (!e)
        return NULL;
    struct slot *slot = queue_find(e->queue, handle);
    if (!slot) {
        err_set(&last, EINVAL, "unknown handle %lld", (long long)handle);
        call_end();
    }
    *ret_engine = e;
    return slot;
}

int hvd_poll(hvd_handle handle)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    int done = atomic_load(&slot->done);
    if (!done)
        drive_urge(e, slot);
    call_end();
    return done;
}

static bool keeps_result(const struct slot *slot)
{
    unsigned kind = slot->facts.sig.kind;
    return slot->status == 0 && (kind == HVD_ALLGATHER || kind == HVD_ALLTOALL);
}

int hvd_wait(hvd_handle handle)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    drive_wait(e, slot);
    int rc = slot->status;
    if (rc < 0)
        err_set(&last, -rc, "%s", slot->text ? slot->text : strerror(-rc));
    if (keeps_result(slot))
        slot->waited = true;
    else
        queue_release(e->queue, slot, handle);
    call_end();
    return rc;
}

int hvd_result(hvd_handle handle, struct hvd_result *ret_result)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    int rc = 0;
    if (!slot->waited) {
        rc = err_set(&last, EINVAL, "handle %lld: hvd_wait() has not returned 0 yet",
                     (long long)handle);
    } else {
        const struct signature *sig = &slot->facts.sig;
        ret_result->data = slot->result;
        ret_result->ndim = sig->ndim;
        memcpy(ret_result->shape, sig->shape, sizeof(ret_result->shape));
        ret_result->shape[0] = slot->result_rows;
        ret_result->splits = slot->rows;
    }
    call_end();
    return rc;
}

void hvd_release(hvd_handle handle)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return;
    if (atomic_load(&slot->done))
        queue_release(e->queue, slot, handle);
    call_end();
}

static int run_now(const struct hvd_request *request)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    int rc = fast_run(e, request, &last);
    call_end();
    return rc;
}

int hvd_allreduce(const char *name, const void *input, void *output, int64_t count,
                  enum hvd_dtype dtype, enum hvd_op op)
{
    struct hvd_request r = {
        .kind = HVD_ALLREDUCE,
        .name = name,
        .input = input,
        .output = output,
        .dtype = dtype,
        .ndim = 1,
        .shape = &count,
        .op = op,
        .device = -1,
    };
    return run_now(&r);
}

int hvd_broadcast(const char *name, void *data, int64_t count, enum hvd_dtype dtype, int root)
{
    struct hvd_request r = {
        .kind = HVD_BROADCAST,
        .name = name,
        .input = data,
        .output = data,
        .dtype = dtype,
        .ndim = 1,
        .shape = &count,
        .root = root,
        .device = -1,
    };
    return run_now(&r);
}

int hvd_barrier(const char *name)
{
    struct hvd_request r = {.kind = HVD_BARRIER, .name = name, .device = -1};
    return run_now(&r);
}

/* ---- elastic jobs --------------------------------------------------------------------------- */

int hvd_world(struct hvd_world *ret_world)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    const struct world *v = atomic_load(&e->world);
    struct hvd_world w = {.size_of_struct = ret_world->size_of_struct,
                          .epoch = v->epoch,
                          .rank = v->rank,
                          .size = v->size,
                          .source = v->source,
                          .joined = v->joined,
                          .left = v->left,
                          .is_new = v->is_new,
                          .elastic = e->boot.elastic,
                          .repair_ns = atomic_load(&e->reform.last_ns)};
    call_end();
    memcpy(ret_world, &w, w.size_of_struct < sizeof(w) ? w.size_of_struct : sizeof(w));
    return 0;
}

int hvd_commit(void)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    int rc = boundary_commit(e, &last);
    call_end();
    return rc;
}

/* ---- a look inside ---- */

static int swap_timeline(struct engine *e, struct timeline *fresh)
{
    drive_lock(e);
    struct timeline *old = e->timeline;
    e->timeline = fresh;
    atomic_store_explicit(&e->timeline_on, fresh != NULL, memory_order_relaxed);
    drive_leave(e);
    timeline_close(old);
    return old != NULL;
}

int hvd_start_timeline(const char *path, bool mark_cycles)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    struct timeline *t = NULL;
    int rc = path ? timeline_open(path, atomic_load(&e->world)->rank, mark_cycles, &t, &last)
                  : err_set(&last, EINVAL, "timeline: no path");
    if (rc == 0)
        swap_timeline(e, t);
    call_end();
    return rc;
}

int hvd_stop_timeline(void)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    swap_timeline(e, NULL);
    call_end();
    return 0;
}

int hvd_stats(struct hvd_stats *ret_stats)
{
    struct engine *e = call_begin();
    if (!e)
        return last.code;
    struct negotiate_stats n;
    drive_lock(e);
    memset(&n, 0, sizeof(n));
    if (e->neg)
        negotiate_get_stats(e->neg, &n);
    negotiate_add_stats(&n, &e->neg_past);
    struct hvd_stats s = {
        .ops = atomic_load(&e->counters.ops),
        .batches = atomic_load(&e->counters.batches),
        .bytes = atomic_load(&e->counters.bytes),
        .negotiated = n.negotiated,
        .cached = n.cached,
        .frozen = n.frozen,
        .thaws = n.thaws,
        .refused = mesh_refused(e->mesh) + e->boot.refused,
        .allocations = atomic_load(&e->counters.allocations) + atomic_load(&e->queue->allocations) +
                       e->ids.allocations,
        .stalls = atomic_load(&e->counters.stalls),
    };
    drive_leave(e);
    call_end();
    s.size = ret_stats->size;
    memcpy(ret_stats, &s, s.size < sizeof(s) ? s.size : sizeof(s));
    return 0;
}
