/* SPDX-License-Identifier: Apache-2.0
 *
 * api: the functions of hvd.h, callable by any thread. A call gets the engine from life.h. Each
 * thread has its own last error.
 */
#include <hvd.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/engine/api_private.h"
#include "core/engine/boundary.h"
#include "core/engine/engine.h"
#include "core/engine/fast.h"
#include "core/engine/life.h"

static _Thread_local struct err last;

struct err *api_error(void)
{
    return &last;
}

const char *hvd_error(void)
{
    return err_text(&last);
}

/* ---- life ---- */

int hvd_init(void)
{
    return life_init(&last);
}

int hvd_enter(void)
{
    struct engine *e = life_begin(NULL, &last);
    if (!e)
        return last.code;
    life_end();
    return 0;
}

int hvd_shutdown(void)
{
    return life_shutdown(&last);
}

bool hvd_initialized(void)
{
    return life_is_on();
}

/* ---- operations ---- */

/* A joiner made these requests with provisional numbers. Refuses kinds whose splits or outputs
 * depend on rank or size. */
static int check_moved(const struct hvd_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i].splits || requests[i].kind == HVD_REDUCESCATTER)
            return err_set(
                &last, ESTALE,
                "this rank was admitted with another rank or size than it had before: nothing was "
                "submitted. Make splits and outputs of a reducescatter anew. hvd_enter() "
                "before them avoids this");
    return 0;
}

static int submit(const struct hvd_request *requests, size_t n, hvd_handle *ret_handles)
{
    bool moved = false;
    struct engine *e = life_begin(&moved, &last);
    if (!e)
        return last.code;
    uint64_t now = timeline_on(&e->timeline) ? clock_ns() : 0;
    int rc = moved ? check_moved(requests, n) : 0;
    if (rc == 0)
        rc = queue_submit(e->queue, requests, n, now, ret_handles, &last);
    if (rc == 0)
        drive_submitted(e, requests[0].set);
    else if (rc == -ESTALE && !moved)
        queue_await_open(e->queue);
    life_end();
    return rc;
}

/* Of each request, `stride` bytes long, the caller knows the first `known` bytes. */
static int submit_copy(const void *requests, size_t stride, size_t known, size_t n,
                       hvd_handle *ret_handles)
{
    auto_free struct hvd_request *copy = NULL;
    if (n < 1 || n > HVD_MAX_GROUP)
        return submit(requests, n, ret_handles); /* which refuses it */
    int rc = request_copy(requests, stride, known, n, &copy, &last);
    return rc == 0 ? submit(copy, n, ret_handles) : rc;
}

int hvd_submit_sized(const struct hvd_request *requests, size_t size, size_t n,
                     hvd_handle *ret_handles)
{
    if (!requests || !ret_handles)
        return err_set(&last, EINVAL, "%s is NULL", requests ? "ret_handles" : "requests");
    if (size == sizeof(*requests))
        return submit(requests, n, ret_handles);
    if (size < offsetof(struct hvd_request, set))
        return err_set(&last, EINVAL, "a request of %zu bytes: no version of hvd has that", size);
    return submit_copy(requests, size, size, n, ret_handles);
}

/* For programs that were built before requests had a set: `set` was padding. */
HVD_API int submit_before_sets(const struct hvd_request *requests, size_t n,
                               hvd_handle *ret_handles) __asm__("hvd_submit");
int submit_before_sets(const struct hvd_request *requests, size_t n, hvd_handle *ret_handles)
{
    _Static_assert(offsetof(struct hvd_request, set) + sizeof(int) == sizeof(struct hvd_request),
                   "requests have grown: give the size that they had");
    return submit_copy(requests, sizeof(*requests), offsetof(struct hvd_request, set), n,
                       ret_handles);
}

static int unknown(hvd_handle handle)
{
    return err_set(&last, EINVAL, "unknown handle %lld", (long long)handle);
}

/* Calls life_peek(). The caller calls life_end() when a slot is returned. */
static struct slot *find_slot(hvd_handle handle, struct engine **ret_engine)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, &last) < 0)
        return NULL;
    struct slot *slot = e ? queue_find(e->queue, handle) : NULL;
    if (!slot) {
        unknown(handle);
        life_end();
    }
    *ret_engine = e;
    return slot;
}

int hvd_join(void)
{
    struct engine *e = life_begin(NULL, &last);
    if (!e)
        return last.code;
    int rc = join_run(e, &last);
    life_end();
    return rc;
}

int hvd_poll(hvd_handle handle)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    int done = atomic_load(&slot->done);
    /* An operation that a stream can wait for needs nothing but the GPU. */
    bool wants_driver = !done && !atomic_load(&slot->aloft);
    if (atomic_load(&slot->handle) != handle)
        done = unknown(handle); /* another thread has released it meanwhile */
    else if (wants_driver)
        drive_prioritize(e, slot, PRIORITY_POLLED);
    life_end();
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
    if (!queue_claim(slot, handle)) {
        life_end();
        return err_set(&last, EINVAL,
                       "handle %lld: hvd_wait() is called by two threads; only one of them gets "
                       "the result",
                       (long long)handle);
    }
    drive_wait(e, slot);
    int rc = queue_status(slot, &last);
    if (keeps_result(slot)) {
        slot->waited = true;
        queue_unclaim(slot, handle);
    } else {
        queue_release(e->queue, slot, handle);
    }
    life_end();
    return rc;
}

/* Whether the operation has not failed, and the size of its result is known. */
static bool is_known(struct slot *slot)
{
    return atomic_load(&slot->done) ? slot->status == 0 : atomic_load(&slot->aloft);
}

/* (lock) */
static int await_flight(struct engine *e, const struct slot *slot, void *stream)
{
    const struct circle *c = sets_circle(e, slot->set);
    return c ? device_await(c->device, slot->flight, stream, &last) : 0;
}

/* Makes the stream wait for the slot's operation, unless it is done. */
static int await_on(struct engine *e, struct slot *slot, hvd_handle handle, void *stream)
{
    int rc = 0;
    if (atomic_load(&slot->done) || atomic_load(&slot->handle) != handle)
        return 0; /* without the lock, which a repair may hold for long */
    drive_lock(e);
    if (atomic_load(&slot->handle) == handle && !atomic_load(&slot->done) && slot->flight)
        rc = await_flight(e, slot, stream);
    drive_leave(e);
    return rc;
}

int hvd_wait_stream(hvd_handle handle, void *stream)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    drive_wait_aloft(e, slot, handle);
    int rc = await_on(e, slot, handle, stream);
    life_end();
    return rc;
}

int hvd_result(hvd_handle handle, struct hvd_result *ret_result)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return last.code;
    int rc = 0;
    if (!slot->waited && !is_known(slot)) {
        rc = err_set(&last, EINVAL, "handle %lld: hvd_wait() has not returned 0 yet",
                     (long long)handle);
    } else {
        const struct signature *sig = &slot->facts.sig;
        ret_result->data = slot->result ? slot->result : slot->out;
        ret_result->ndim = sig->ndim;
        memcpy(ret_result->shape, sig->shape, sizeof(ret_result->shape));
        ret_result->shape[0] = slot->result_rows;
        ret_result->splits = slot->rows;
        ret_result->ranks = slot->ranks;
    }
    life_end();
    return rc;
}

void hvd_release(hvd_handle handle)
{
    struct engine *e;
    struct slot *slot = find_slot(handle, &e);
    if (!slot)
        return;
    if (atomic_load(&slot->done) && queue_claim(slot, handle))
        queue_release(e->queue, slot, handle);
    life_end();
}

static int run_now(const struct hvd_request *request)
{
    struct engine *e = life_begin(NULL, &last);
    if (!e)
        return last.code;
    int rc = fast_run(e, request, FAST_USER, &last);
    life_end();
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

/* ---- introspection ---- */

int hvd_start_timeline(const char *path, bool mark_cycles)
{
    struct timeline *t = NULL;
    if (!path)
        return err_set(&last, EINVAL, "timeline: no path");
    int rc = life_note_timeline(path, mark_cycles, &last);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct engine *e = life_begin(NULL, &last);
    if (!e)
        return last.code;
    struct world w;
    engine_world(e, &w);
    rc = timeline_open(path, w.rank, mark_cycles, &t, &last);
    if (rc == 0)
        engine_swap_timeline(e, t);
    life_end();
    return rc;
}

int hvd_stop_timeline(void)
{
    int rc = life_note_timeline(NULL, false, &last);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct engine *e = life_begin(NULL, &last);
    if (!e)
        return last.code;
    engine_swap_timeline(e, NULL);
    life_end();
    return 0;
}

int hvd_stats(struct hvd_stats *ret_stats)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, &last) < 0)
        return last.code;
    struct hvd_stats s = {0};
    if (e)
        engine_stats(e, &s);
    life_end();
    s.size = ret_stats->size;
    memcpy(ret_stats, &s, s.size < sizeof(s) ? s.size : sizeof(s));
    return 0;
}

int hvd_backend(const char *name, struct hvd_backend *ret_backend)
{
    struct engine *e = NULL;
    struct world w;
    struct err none;
    struct hvd_backend b;
    bool on = life_peek(&e, &w, &none) == 0;
    int rc = e ? engine_backend(e, name, &b, &last) : backends_tell(NULL, NULL, name, &b, &last);
    if (on)
        life_end();
    if (rc < 0)
        return rc;
    backends_probe(name, &b);
    b.size_of_struct = ret_backend->size_of_struct;
    memcpy(ret_backend, &b, b.size_of_struct < sizeof(b) ? b.size_of_struct : sizeof(b));
    return 0;
}
