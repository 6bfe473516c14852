/* SPDX-License-Identifier: Apache-2.0
 *
 * settle: see settle.h.
 */
#include "core/engine/settle.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/engine/engine.h"
#include "core/engine/launch.h"
#include "core/transport/mesh.h"

#define WATCH_MS 50 /* how often the meshes are looked at while nothing wakes this rank */

/* ---- inputs that will be overwritten -------------------------------------------------------- */

static const uint8_t *find_saved(const struct remains *f, const uint8_t *in, size_t len)
{
    for (size_t i = 0; i < f->nsaved; i++) {
        const struct remains_saved *s = &f->saved[i];
        if (in >= s->in && in + len <= s->in + s->len)
            return s->copy + (in - s->in);
    }
    return NULL;
}

/* Returns a copy of the input's original bytes, made before anything could overwrite them. */
static const uint8_t *save(struct remains *f, const uint8_t *in, size_t len)
{
    const uint8_t *copy = find_saved(f, in, len);
    if (copy)
        return copy;
    if (f->nsaved == f->saved_cap) {
        size_t cap = f->saved_cap ? 2 * f->saved_cap : 16;
        struct remains_saved *grown = realloc(f->saved, cap * sizeof(*grown));
        if (!grown)
            return NULL;
        f->saved = grown;
        f->saved_cap = cap;
    }
    uint8_t *fresh = malloc(len);
    if (!fresh)
        return NULL;
    f->saved[f->nsaved++] = (struct remains_saved){in, len, memcpy(fresh, in, len)};
    return fresh;
}

/* Makes tensors whose input is also their output read from a copy of the input. */
static int save_inputs(struct remains *f, struct coll_tensor *tensors, size_t n, size_t elem,
                       struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].in != tensors[i].out || tensors[i].count == 0)
            continue;
        tensors[i].in = save(f, tensors[i].in, tensors[i].count * elem);
        if (!tensors[i].in)
            return err_set(err, ENOMEM, "no memory to save %zu elements", tensors[i].count);
    }
    return 0;
}

/* ---- running an operation outside the log --------------------------------------------------- */

static int lost(struct circle *c, int rc, struct err *err)
{
    int known = rc == -ECONNRESET ? mesh_why(c->mesh, NULL, err) : 0;
    return known < 0 ? known : err_sys(err, -rc, "%s", coll_algorithm(c->coll));
}

/* The loss of a set's rank may show in the world's mesh alone. */
static int look_at_meshes(struct circle *c, struct err *err)
{
    int rc = mesh_progress(c->mesh, NULL, err);
    return rc == 0 && c->set != 0 ? mesh_progress(c->engine->circle.mesh, NULL, err) : rc;
}

static int run(struct circle *c, const struct coll_op *op, struct err *err)
{
    int rc = coll_start(c->coll, op, err);
    if (rc < 0)
        return rc;
    for (;;) {
        struct spin_state spin = {0};
        while ((rc = coll_progress(c->coll)) == 1 && drive_pause(c->engine, &spin))
            ;
        if (rc != 1)
            return rc < 0 ? lost(c, rc, err) : 0;
        rc = look_at_meshes(c, err);
        if (rc < 0)
            return rc;
        mesh_sleep_begin(c->mesh);
        rc = coll_progress(c->coll);
        struct pollfd p = {.fd = mesh_fd(c->mesh), .events = POLLIN};
        if (rc == 1)
            poll(&p, 1, coll_wait(c->coll) ? 1 : WATCH_MS);
        mesh_sleep_end(c->mesh);
        if (rc != 1)
            return rc < 0 ? lost(c, rc, err) : 0;
        if (atomic_load(&c->engine->drive.closing))
            return err_set(err, ESHUTDOWN, "hvd_shutdown() was called");
    }
}

/* Records that this rank has the whole result and has not passed the barrier after it. */
static void set_whole(struct circle *c, bool whole)
{
    c->remains.report.whole = whole;
}

/* Runs the operation, then the barrier after which every rank is known to have the result. */
static int run_safely(struct circle *c, const struct coll_op *op, struct err *err)
{
    set_whole(c, false);
    inject_point("rest");
    int rc = run(c, op, err);
    if (rc < 0)
        return rc;
    set_whole(c, true);
    inject_point("barrier");
    return run(c, &coll_barrier, err);
}

/* ---- the operation in flight ---------------------------------------------------------------- */

static int run_rest(struct circle *c, const struct decision *d, struct err *err)
{
    struct remains *f = &c->remains;
    struct coll_op op = c->batches.launch.op;
    f->rest.n = 0;
    int rc = coll_settle(f->coll, d->final, &f->rest);
    if (rc < 0)
        return err_sys(err, -rc, "cannot settle %s", coll_algorithm(f->coll));
    rc = save_inputs(f, f->rest.list, f->rest.n, hvd_dtype_size(op.dtype), err);
    if (rc < 0)
        return rc;
    op.tensors = f->rest.list;
    op.n = f->rest.n;
    op.contributors = c->size;
    /* Perhaps nothing remains to be run (as always for a gather), but every rank must take part in
     * the barriers. */
    if (op.n == 0)
        op = coll_barrier;
    return run_safely(c, &op, err);
}

static int finish(struct circle *c, struct err *err)
{
    struct remains *f = &c->remains;
    if (f->report.whole)
        return 0;
    if (!f->coll)
        return err_set(err, EPROTO,
                       "other ranks have finished an operation that this rank has not started: "
                       "this rank cannot go on with them");
    int rc = coll_settle(f->coll, NULL, &f->rest);
    return rc < 0 ? err_sys(err, -rc, "cannot finish %s", coll_algorithm(f->coll)) : 0;
}

/* Counts the operation, which is now done on all ranks. */
static void count(struct circle *c)
{
    struct batches *b = &c->batches;
    c->done++;
    launch_finish(c, &c->batches.launch);
    b->running = false;
    if (b->active)
        b->active->done = b->step == STEP_LAST;
}

int settle_without_mesh(struct circle *c, struct err *err)
{
    int rc = 0;
    gpu_lane_settle(c, c->remains.decision.gpu_done);
    if (c->remains.decision.what == DECISION_FINISH) {
        rc = finish(c, err);
        if (rc == 0)
            count(c);
    }
    coll_stop(c->remains.coll);
    remains_report(c);
    return rc;
}

int settle(struct circle *c, struct err *err)
{
    const struct decision *d = &c->remains.decision;
    int rc = 0;
    inject_point("settle");
    gpu_lane_settle(c, d->gpu_done);
    if (d->what == DECISION_FINISH)
        rc = finish(c, err);
    else if (d->what == DECISION_REST)
        rc = run_rest(c, d, err);
    else if (c->remains.coll)
        coll_restore(c->remains.coll);
    if (rc < 0)
        return rc;
    if (d->what != DECISION_NOTHING)
        count(c);
    remains_drop_old(c);
    c->batches.running = false;
    set_whole(c, false);
    remains_report(c);
    return 0;
}
