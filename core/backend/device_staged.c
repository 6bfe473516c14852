/* SPDX-License-Identifier: Apache-2.0
 *
 * device_staged: operations on a GPU through the host's memory (staged.h) as an algorithm of
 * coll's, in three phases:
 *
 *     enter   a barrier, until which the operation can be cancelled
 *     run     the operation
 *     behind  in an elastic job: a barrier, after which every rank has the result; copies of
 *             overwritten inputs are retained until then (kept.h)
 */
#include <stdlib.h>

#include "core/backend/device_private.h"
#include "core/backend/gpu.h"
#include "core/backend/staged.h"

enum phase { ENTER, RUN, BEHIND };

struct job {
    struct device *d;
    enum phase phase;
    struct coll_op part;
};

static int meet(struct coll *coll, struct job *j, struct err *err)
{
    j->part = coll_barrier;
    return coll_part_start(coll, &j->part, err);
}

/* Reads the inputs, and copies those that must be retained; writes nothing that a user could
 * see. */
static int prepare(struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    bool retain = coll->elastic && coll->mesh->size > 1;
    int rc = d->ready ? 0 : err_set(err, EINVAL, "the GPUs of this epoch are not set up");
    if (rc == 0)
        kept_drop(&d->kept, d->gpu);
    if (rc == 0)
        rc = kept_take(&d->kept, d->gpu, coll->op, retain, err);
    if (rc == 0 && !d->staged)
        rc = staged_create(d->gpu, &d->staged, err);
    return rc == 0 ? staged_prepare(d->staged, coll->mesh, &d->kept.op, err) : rc;
}

static int work(struct coll *coll, struct job *j, struct err *err)
{
    bool last = !coll->elastic || coll->mesh->size == 1;
    for (;;) {
        int rc =
            j->phase == RUN ? staged_progress(j->d->staged, coll, err) : coll_part_progress(coll);
        if (rc < 0 && j->phase != RUN)
            err_sys(err, -rc, "the barrier %s the GPU operation",
                    j->phase == ENTER ? "before" : "after");
        if (rc != 0 || j->phase == BEHIND || (j->phase == RUN && last))
            return rc;
        if (++j->phase == BEHIND && (rc = meet(coll, j, err)) < 0)
            return rc;
    }
}

/* ---- the algorithm -------------------------------------------------------------------------- */

static bool applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0 && op->kind != HVD_BARRIER;
}

static int init(struct coll *coll, void *state, struct err *err)
{
    ((struct job *)state)->d = coll->backend;
    return 0;
}

static int start(struct coll *coll, void *state, struct err *err)
{
    struct job *j = state;
    auto_visit visit = {0};
    j->phase = ENTER;
    int rc = device_enter(coll, j->d, &visit, err);
    if (rc == 0)
        rc = prepare(coll, j, err);
    return rc == 0 ? meet(coll, j, err) : rc;
}

static int progress(struct coll *coll, void *state)
{
    struct job *j = state;
    auto_visit visit = {0};
    struct err err = {0};
    int rc = cuda_enter(j->d->gpu->device, &visit, &err);
    if (rc == 0)
        rc = work(coll, j, &err);
    return device_result(coll, j->d, rc, true, &err);
}

static void cancel(struct coll *coll, void *state)
{
    struct job *j = state;
    auto_visit visit = {0};
    coll_part_cancel(coll);
    if (j->d->staged && cuda_enter(j->d->gpu->device, &visit, NULL) == 0)
        staged_cancel(j->d->staged, coll);
}

static void stop(struct coll *coll, void *state)
{
    struct job *j = state;
    cancel(coll, state);
    device_end(j->d);
}

static void standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    const struct job *j = state;
    ret->whole = j->phase == BEHIND;
}

/* Nothing of it is final before all of it is. */
static int settle(struct coll *coll, void *state, const uint32_t *final, struct coll_rest *rest)
{
    return 0;
}

/* Before the operation is run again: when nothing of this run is added to streams any more. */
static void restore(struct coll *coll, void *state)
{
    struct job *j = state;
    if (j->phase >= RUN)
        j->d->kept_owed = true;
}

const struct algorithm device_staged = {
    .name = "staged",
    .state_size = sizeof(struct job),
    .applies = applies,
    .init = init,
    .start = start,
    .progress = progress,
    .cancel = cancel,
    .standing = standing,
    .settle = settle,
    .restore = restore,
    .stop = stop,
};
