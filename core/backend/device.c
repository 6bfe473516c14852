/* SPDX-License-Identifier: Apache-2.0
 *
 * device: see device.h. Creation, destruction and the phases of an operation; device_ask.c has the
 * phase ask.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/device_private.h"
#include "core/backend/gpu.h"
#include "core/backend/staged.h"
#include "core/base/clock.h"
#include "core/base/log.h"

/* from an error of NCCL until the operation fails: usually a rank was lost, which is reported
 * meanwhile */
#define GRACE_MS 3000
#define STOP_MS  15000 /* limit for work on streams to end */
#define NAP_NS   100000

/* ---- life ----------------------------------------------------------------------------------- */

int device_create(const struct device_ways *ways, struct device **ret, struct err *err)
{
    struct device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(err, ENOMEM, "no memory for operations on GPUs");
    d->ways = *ways;
    *ret = d;
    return 0;
}

void device_joins(struct device *d)
{
    d->newcomer = true;
}

void device_destroy(struct device *d)
{
    struct cuda_visit visit = {0};
    struct err err = {0};
    if (!d)
        return;
    /* Nothing on a lost device can be freed; the calls return its error, which is ignored. */
    if (d->gpu)
        cuda_enter(d->gpu->device, &visit, &err);
    if (d->nccl)
        nccl_run_abort(d->nccl);
    bool gone = nccl_run_destroy(d->nccl);
    if (gone)
        staged_destroy(d->staged);
    kept_fini(&d->kept, gone ? d->gpu : NULL); /* not gone: NCCL may still use the memory */
    cuda_leave(&visit);
    if (gone)
        gpu_close(d->gpu);
    free(d);
}

int device_gpu(struct device *d, int ordinal, struct gpu **ret, struct err *err)
{
    int rc = d->gpu ? 0 : gpu_open(ordinal, &d->gpu, err);
    if (rc == 0 && d->gpu->device->ordinal != ordinal)
        rc = err_set(err, EINVAL,
                     "a tensor is on GPU %d, but this rank uses GPU %d: put all tensors of a rank "
                     "on one GPU",
                     ordinal, d->gpu->device->ordinal);
    if (rc == 0)
        *ret = d->gpu;
    return rc;
}

enum device_way device_way(const struct device *d)
{
    return d ? d->way : DEVICE_NONE;
}

void device_describe(const struct device *d, enum device_way way, char *dst, size_t size)
{
    if (way == DEVICE_NCCL && d->nccl)
        nccl_run_describe(d->nccl, dst, size);
    else
        snprintf(dst, size, "%s",
                 way == DEVICE_STAGED ? "tensors of GPUs through the host's memory" : "");
}

/* ---- running -------------------------------------------------------------------------------- */

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
    struct err why = {0};
    int rc = kept_restore(&d->kept, d->gpu, err);
    j->op = coll->op;
    j->way = d->way;
    if (rc == 0 && coll->elastic && coll->mesh->size > 1)
        rc = kept_begin(&d->kept, d->gpu, coll->op, &j->op, err);
    if (rc == 0 && j->way == DEVICE_NCCL) {
        rc = nccl_run_prepare(d->nccl, coll->mesh, j->op, &why);
        if (rc == -ENOTSUP && j->staged_too) {
            j->way = DEVICE_STAGED;
            rc = 0;
        }
        j->refused = rc == -ENOTSUP;
        if (rc < 0)
            *err = why;
    }
    if (rc == 0 && j->way == DEVICE_STAGED) {
        rc = d->staged ? 0 : staged_create(d->gpu, &d->staged, err);
        if (rc == 0)
            rc = staged_prepare(d->staged, coll->mesh, j->op, err);
    }
    return rc;
}

/* Delays an error of NCCL's: usually a rank was lost, and the other links will report which one
 * in a moment. */
static int excuse(const struct coll *coll, struct job *j, int rc, struct err *err)
{
    if (rc >= 0 || coll->mesh->size == 1 || j->d->gpu->device->lost.code)
        return rc;
    if (!j->trouble.code) {
        j->trouble = *err;
        j->give_up = deadline_in_ms(GRACE_MS);
    }
    if (!deadline_passed(j->give_up))
        return 1;
    *err = j->trouble;
    return rc;
}

/* A rank that does not fit has the same information, and leaves; the other ranks wait until it is
 * lost. */
static int await_loss(struct coll *coll, struct job *j)
{
    if (deadline_passed(j->give_up)) {
        mesh_lost(coll->mesh, j->unfit, "it does not fit the other ranks, and did not leave");
        j->give_up = UINT64_MAX;
    }
    coll->wait = COLL_ASKS;
    return 1;
}

static int form(struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    if (j->unfit >= 0)
        return await_loss(coll, j);
    if (d->way != DEVICE_NCCL)
        return 0;
    int rc = j->trouble.code ? j->trouble.code : nccl_run_form(d->nccl, coll, err);
    rc = excuse(coll, j, rc, err);
    if (rc == 1)
        coll->wait = COLL_ASKS;
    return rc;
}

static int run(struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    int rc = j->trouble.code;
    if (j->way == DEVICE_STAGED)
        return staged_progress(d->staged, coll, err);
    if (rc == 0)
        rc = nccl_run_progress(d->nccl, err);
    rc = excuse(coll, j, rc, err);
    if (rc == 1)
        coll->wait = COLL_ASKS;
    return rc;
}

static int begin_run(struct coll *coll, struct job *j, struct err *err)
{
    j->phase = RUN;
    int rc = j->way == DEVICE_NCCL ? nccl_run_launch(j->d->nccl, err) : 0;
    rc = excuse(coll, j, rc, err);
    return rc == 1 ? 0 : rc; /* run() continues with that phase */
}

/* Chooses the next phase after one has ended. 1: the operation is finished. */
static int next_phase(struct coll *coll, struct job *j, struct err *err)
{
    int rc = 0;
    switch (j->phase) {
    case ASK:
        if (j->agreed)
            return begin_run(coll, j, err);
        j->phase = FORM;
        rc = device_choose(coll, j, err);
        j->refused = rc == -ENOTSUP;
        return rc;
    case FORM:
        j->agreed = true;
        device_tell(coll, j->d);
        rc = prepare(coll, j, err);
        return rc == 0 ? begin_run(coll, j, err) : rc;
    case RUN:
        if (!coll->elastic || coll->mesh->size == 1)
            return 1;
        j->phase = BEHIND;
        return meet(coll, j, err);
    case BEHIND:
        break;
    }
    return 1;
}

static int work(struct coll *coll, struct job *j, struct err *err)
{
    for (;;) {
        int rc;
        switch (j->phase) {
        case FORM:
            rc = form(coll, j, err);
            break;
        case RUN:
            rc = run(coll, j, err);
            break;
        default:
            rc = coll_part_progress(coll);
            if (rc < 0)
                err_sys(err, -rc, "the barrier %s the GPU operation",
                        j->phase == ASK ? "before" : "after");
            break;
        }
        if (rc != 0)
            return rc;
        rc = next_phase(coll, j, err);
        if (rc != 0)
            return rc == 1 ? 0 : rc;
    }
}

/* ---- the algorithm -------------------------------------------------------------------------- */

static bool device_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0;
}

static int device_init(struct coll *coll, void *state, struct err *err)
{
    ((struct job *)state)->d = coll->backend;
    return 0;
}

static void device_fini(void *state)
{
    struct job *j = state;
    free(j->all);
    free(j->counts);
}

static int device_start(struct coll *coll, void *state, struct err *err)
{
    struct job *j = state;
    struct cuda_visit visit = {0};
    struct gpu *gpu;
    j->phase = ASK;
    j->op = coll->op;
    j->trouble.code = 0;
    j->unfit = -1;
    j->refused = false;
    int rc = device_gpu(j->d, coll->op->device, &gpu, err);
    if (rc == 0)
        rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0 && j->agreed)
        rc = prepare(coll, j, err);
    if (rc == 0)
        rc = j->agreed ? meet(coll, j, err) : device_ask(coll, j, err);
    cuda_leave(&visit);
    return rc;
}

static int device_progress(struct coll *coll, void *state)
{
    struct job *j = state;
    struct cuda_visit visit = {0};
    struct err err = {0};
    int rc = cuda_enter(j->d->gpu->device, &visit, &err);
    if (rc == 0)
        rc = work(coll, j, &err);
    cuda_leave(&visit);
    if (rc < 0 && !err.code)
        err_sys(&err, -rc, "GPU %d", j->d->gpu->device->ordinal);
    if (rc == -ENOTSUP && !j->refused) /* refused on this rank only */
        err.code = -EIO;
    return rc < 0 ? coll_failed(coll, &err) : rc;
}

static void forget(struct coll *coll, struct job *j)
{
    struct device *d = j->d;
    coll_part_cancel(coll);
    if (d->nccl && j->phase < RUN)
        nccl_run_cancel(d->nccl);
    if (j->way == DEVICE_STAGED && j->phase == RUN)
        staged_cancel(d->staged, coll);
}

/* Not all ranks have reached the operation: it is in phase ASK. */
static void device_cancel(struct coll *coll, void *state)
{
    struct job *j = state;
    struct cuda_visit visit = {0};
    struct err err = {0};
    if (cuda_enter(j->d->gpu->device, &visit, &err) == 0)
        forget(coll, j);
    cuda_leave(&visit);
}

static void device_standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    const struct job *j = state;
    ret->whole = j->phase == BEHIND;
}

static int device_settle(struct coll *coll, void *state, const uint32_t *final,
                         struct coll_rest *rest)
{
    return 0;
}

/* Runs before the next operation: then nothing of this one is added to streams any more. */
static void device_restore(struct coll *coll, void *state)
{
    struct job *j = state;
    /* If inputs of an earlier operation still have to be restored that remains so: this
     * operation may not have got as far as restoring them. */
    if (j->d->kept.n > 0 && j->op == &j->d->kept.op && j->phase >= RUN)
        j->d->kept.owed = true;
}

static int drained(struct device *d, struct err *err)
{
    int rc = d->nccl ? nccl_run_drained(d->nccl, err) : 0;
    return rc == 0 && d->staged ? staged_drained(d->staged, err) : rc;
}

/* Enters the GPU if there is one. Fails on a lost device, where nothing runs any more. */
static int enter_used(struct device *d, struct cuda_visit *ret, struct err *err)
{
    return d->gpu ? cuda_enter(d->gpu->device, ret, err) : -ENODEV;
}

bool device_end(struct device *d)
{
    struct cuda_visit visit = {0};
    struct err err = {0};
    struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t deadline = deadline_in_ms(STOP_MS);
    int rc = d ? enter_used(d, &visit, &err) : -ENODEV;
    if (rc == 0) {
        if (d->nccl)
            nccl_run_abort(d->nccl);
        while ((rc = drained(d, &err)) == 1 && !deadline_passed(deadline))
            nanosleep(&nap, NULL);
    }
    cuda_leave(&visit);
    if (rc == 1)
        log_warn("an operation on GPU %d that has failed is still on its stream after %d s: its "
                 "tensors may still change",
                 d->gpu->device->ordinal, STOP_MS / 1000);
    return rc != 1;
}

static void device_stop(struct coll *coll, void *state)
{
    struct job *j = state;
    struct cuda_visit visit = {0};
    struct err err = {0};
    if (enter_used(j->d, &visit, &err) == 0)
        forget(coll, j);
    cuda_leave(&visit);
    device_end(j->d);
}

static const char *device_name(const void *state)
{
    const struct job *j = state;
    static const char *const names[] = {
        [DEVICE_NONE] = "device",
        [DEVICE_NCCL] = "nccl",
        [DEVICE_STAGED] = "staged",
    };
    return names[j->way];
}

static const struct algorithm device_algorithm = {
    .name = "device",
    .name_of = device_name,
    .state_size = sizeof(struct job),
    .applies = device_applies,
    .init = device_init,
    .fini = device_fini,
    .start = device_start,
    .progress = device_progress,
    .cancel = device_cancel,
    .standing = device_standing,
    .settle = device_settle,
    .restore = device_restore,
    .stop = device_stop,
};

const struct algorithm *const device_algorithms[] = {&device_algorithm, NULL};
