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

/* ---- inputs that will be overwritten -------------------------------------------------------- */

static const uint8_t *find_saved(const struct repair *f, const uint8_t *in, size_t len)
{
    for (size_t i = 0; i < f->nsaved; i++) {
        const struct repair_saved *s = &f->saved[i];
        if (in >= s->in && in + len <= s->in + s->len)
            return s->copy + (in - s->in);
    }
    return NULL;
}

/* Returns a copy of the input's original bytes, made before anything could overwrite them. */
static const uint8_t *save(struct repair *f, const uint8_t *in, size_t len)
{
    const uint8_t *copy = find_saved(f, in, len);
    if (copy)
        return copy;
    if (f->nsaved == f->saved_cap) {
        size_t cap = f->saved_cap ? 2 * f->saved_cap : 16;
        struct repair_saved *grown = realloc(f->saved, cap * sizeof(*grown));
        if (!grown)
            return NULL;
        f->saved = grown;
        f->saved_cap = cap;
    }
    uint8_t *fresh = malloc(len);
    if (!fresh)
        return NULL;
    f->saved[f->nsaved++] = (struct repair_saved){in, len, memcpy(fresh, in, len)};
    return fresh;
}

static void drop_saved(struct repair *f)
{
    for (size_t i = 0; i < f->nsaved; i++)
        free(f->saved[i].copy);
    f->nsaved = 0;
}

/* Makes tensors whose input is also their output read from a copy of the input. */
static int save_inputs(struct repair *f, struct coll_tensor *tensors, size_t n, size_t elem,
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

static int lost(struct engine *e, int rc, struct err *err)
{
    int known = rc == -ECONNRESET ? mesh_why(e->circle.mesh, NULL, err) : 0;
    return known < 0 ? known : err_sys(err, -rc, "%s", coll_algorithm(e->circle.coll));
}

static int run(struct engine *e, const struct coll_op *op, struct err *err)
{
    int rc = coll_start(e->circle.coll, op, err);
    if (rc < 0)
        return rc;
    for (;;) {
        struct spin_state spin = {0};
        while ((rc = coll_progress(e->circle.coll)) == 1 && drive_pause(e, &spin))
            ;
        if (rc != 1)
            return rc < 0 ? lost(e, rc, err) : 0;
        rc = mesh_progress(e->circle.mesh, NULL, err);
        if (rc < 0)
            return rc;
        mesh_sleep_begin(e->circle.mesh);
        rc = coll_progress(e->circle.coll);
        struct pollfd p = {.fd = mesh_fd(e->circle.mesh), .events = POLLIN};
        if (rc == 1)
            poll(&p, 1, coll_wait(e->circle.coll) ? 1 : 100);
        mesh_sleep_end(e->circle.mesh);
        if (rc != 1)
            return rc < 0 ? lost(e, rc, err) : 0;
        if (atomic_load(&e->drive.closing))
            return err_set(err, ESHUTDOWN, "hvd_shutdown() was called");
    }
}

/* Records that this rank has the whole result and has not passed the barrier after it. */
static void set_whole(struct engine *e, bool whole)
{
    e->repair.mine.whole = whole;
}

/* Runs the operation, then the barrier after which every rank is known to have the result. */
static int run_safely(struct engine *e, const struct coll_op *op, struct err *err)
{
    set_whole(e, false);
    inject_point("rest");
    int rc = run(e, op, err);
    if (rc < 0)
        return rc;
    set_whole(e, true);
    inject_point("barrier");
    return run(e, &coll_barrier, err);
}

/* ---- the operation in flight ---------------------------------------------------------------- */

static int run_rest(struct engine *e, const struct decision *d, struct err *err)
{
    struct repair *f = &e->repair;
    struct coll_op op = e->circle.batches.launch.op;
    f->rest.n = 0;
    int rc = coll_settle(f->old_coll, d->final, &f->rest);
    if (rc < 0)
        return err_sys(err, -rc, "cannot settle %s", coll_algorithm(f->old_coll));
    rc = save_inputs(f, f->rest.list, f->rest.n, hvd_dtype_size(op.dtype), err);
    if (rc < 0)
        return rc;
    op.tensors = f->rest.list;
    op.n = f->rest.n;
    op.contributors = e->circle.size;
    /* Perhaps nothing remains to be run (as always for a gather), but every rank must take part in
     * the barriers. */
    if (op.n == 0)
        op = coll_barrier;
    return run_safely(e, &op, err);
}

static int finish(struct engine *e, struct err *err)
{
    struct repair *f = &e->repair;
    if (f->mine.whole)
        return 0;
    if (!f->old_coll)
        return err_set(err, EPROTO,
                       "other ranks have finished an operation that this rank has not started: "
                       "this rank cannot go on with them");
    int rc = coll_settle(f->old_coll, NULL, &f->rest);
    return rc < 0 ? err_sys(err, -rc, "cannot finish %s", coll_algorithm(f->old_coll)) : 0;
}

static void drop_old(struct engine *e)
{
    struct repair *f = &e->repair;
    coll_destroy(f->old_coll);
    if (f->old_mesh != e->circle.mesh)
        mesh_destroy(f->old_mesh);
    f->old_coll = NULL;
    f->old_mesh = NULL;
}

/* Counts the operation, which is now done on all ranks. */
static void count(struct engine *e)
{
    struct batches *b = &e->circle.batches;
    e->circle.done++;
    launch_finish(e, &e->circle.batches.launch);
    b->running = false;
    if (b->active)
        b->active->done = b->step == STEP_LAST;
}

int settle(struct engine *e, struct err *err)
{
    const struct decision *d = &e->repair.decision;
    int rc = 0;
    inject_point("settle");
    gpu_lane_settle(&e->circle, d->gpu_done);
    if (d->what == DECISION_FINISH)
        rc = finish(e, err);
    else if (d->what == DECISION_REST)
        rc = run_rest(e, d, err);
    else if (e->repair.old_coll)
        coll_restore(e->repair.old_coll);
    if (rc < 0)
        return rc;
    if (d->what != DECISION_NOTHING)
        count(e);
    drop_old(e);
    e->circle.batches.running = false;
    set_whole(e, false);
    repair_report(e);
    return 0;
}

void settle_fini(struct engine *e)
{
    struct repair *f = &e->repair;
    drop_old(e);
    drop_saved(f);
    coll_rest_fini(&f->rest);
    free(f->saved);
    f->saved = NULL;
    f->saved_cap = 0;
    f->active = false;
}
