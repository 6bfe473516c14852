/* SPDX-License-Identifier: Apache-2.0
 *
 * device: see device.h. Creation and destruction; operations by NCCL.
 */
#include "core/backend/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/device_private.h"
#include "core/backend/staged.h"
#include "core/base/clock.h"
#include "core/base/log.h"

/* from an error of NCCL until the operation fails: usually a rank was lost, which is reported
 * meanwhile */
#define GRACE_MS 3000
#define STOP_MS  15000 /* limit for work on streams to end */
#define NAP_NS   100000

/* ---- life ----------------------------------------------------------------------------------- */

int device_create(const struct device_ways *ways, struct gpu_home *home, struct device **ret,
                  struct err *err)
{
    struct device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(err, ENOMEM, "no memory for operations on GPUs");
    d->ways = *ways;
    d->home = home;
    *ret = d;
    return 0;
}

void device_joins(struct device *d)
{
    d->newcomer = true;
}

/* Enters the GPU if there is one. Fails on a lost device, where nothing runs any more. */
static int enter_used(struct device *d, struct cuda_visit *ret, struct err *err)
{
    return d && d->gpu ? cuda_enter(d->gpu->device, ret, err) : -ENODEV;
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
    bool gone = nccl_run_destroy(d->nccl);
    if (gone)
        staged_destroy(d->staged);
    kept_fini(&d->kept, gone ? d->gpu : NULL); /* not gone: NCCL may still use the memory */
    cuda_leave(&visit);
    if (gone && d->gpu)
        gpu_home_leave(d->home);
    free(d);
}

int device_gpu(struct device *d, int ordinal, struct gpu **ret, struct err *err)
{
    struct gpu *gpu = d->gpu;
    int rc = 0;
    if (!gpu || gpu->device->ordinal != ordinal) {
        rc = gpu_home_enter(d->home, ordinal, &gpu, err);
        d->gpu = gpu;
    }
    *ret = gpu;
    return rc;
}

int device_enter(struct coll *coll, struct device *d, struct cuda_visit *visit, struct err *err)
{
    struct gpu *gpu;
    int rc = device_gpu(d, coll->op->device, &gpu, err);
    return rc == 0 ? cuda_enter(gpu->device, visit, err) : rc;
}

int device_result(struct coll *coll, const struct device *d, int rc, bool alone, struct err *err)
{
    if (rc < 0 && !err->code)
        err_sys(err, -rc, "GPU %d", d->gpu->device->ordinal);
    if (rc == -ENOTSUP && alone)
        err->code = -EIO;
    return rc < 0 ? coll_failed(coll, err) : rc;
}

enum device_way device_way(const struct device *d)
{
    return d ? d->way : DEVICE_NONE;
}

void device_describe(const struct device *d, char *dst, size_t size)
{
    if (d->way == DEVICE_NCCL)
        nccl_api_name(d->nccl->api, dst, size);
    else
        snprintf(dst, size, "%s",
                 d->way == DEVICE_STAGED ? "tensors of GPUs through the host's memory" : "");
}

/* ---- operations by NCCL --------------------------------------------------------------------- */

bool device_is_ready(const struct device *d)
{
    return d && d->ready;
}

int device_by_nccl(struct device *d, const struct coll_op *op, struct err *err)
{
    if (d->way != DEVICE_NCCL || op->op == HVD_ADASUM)
        return 0;
    struct err why = {0};
    int rc = nccl_run_possible(d->nccl, op, &why);
    if (rc == -ENOTSUP && d->staged_too)
        return 0;
    return rc < 0 ? err_set(err, -rc, "%s" FALLBACK, why.msg) : 1;
}

bool device_has_room(const struct device *d)
{
    return nccl_run_has_room(d->nccl);
}

int device_add(struct device *d, const struct coll_op *op, bool retain, struct nccl_flight **ret,
               struct err *err)
{
    auto_visit visit = {0};
    struct gpu *gpu;
    int rc = device_gpu(d, op->device, &gpu, err);
    if (rc == 0)
        rc = enter_used(d, &visit, err);
    return rc == 0 ? nccl_run_add(d->nccl, op, retain, ret, err) : rc;
}

int device_add_aside(struct device *d, const struct coll_op *op, struct nccl_flight **ret,
                     struct err *err)
{
    int rc = device_add(d, op, false, ret, err);
    if (rc == 0)
        (*ret)->aside = true;
    return rc;
}

bool device_aside_called(const struct nccl_flight *flight)
{
    return flight->stage >= FLIGHT_BEHIND;
}

bool device_aside_landed(const struct nccl_flight *flight)
{
    return flight->stage == FLIGHT_DONE;
}

void device_release_aside(struct device *d, struct nccl_flight *flight)
{
    nccl_run_release_aside(d->nccl, flight);
}

int device_excuse(struct device *d, const struct mesh *mesh, int rc, struct err *err)
{
    if (rc >= 0 || mesh->size == 1 || d->gpu->device->lost.code)
        return rc;
    if (!d->trouble.code) {
        d->trouble = *err;
        d->give_up = deadline_in_ms(GRACE_MS);
    }
    if (!deadline_passed(d->give_up))
        return 1;
    *err = d->trouble;
    return rc;
}

int device_progress(struct device *d, const struct mesh *mesh, struct err *err)
{
    auto_visit visit = {0};
    int rc = enter_used(d, &visit, err);
    if (rc == 0)
        rc = d->trouble.code ? d->trouble.code : nccl_run_progress(d->nccl, err);
    return device_excuse(d, mesh, rc, err);
}

size_t device_called(const struct device *d)
{
    return d->nccl ? nccl_run_count(d->nccl, FLIGHT_BEHIND) : 0;
}

size_t device_landed(const struct device *d)
{
    return d->nccl ? nccl_run_count(d->nccl, FLIGHT_DONE) : 0;
}

int device_await(struct device *d, const struct nccl_flight *flight, struct CUstream_st *stream,
                 struct err *err)
{
    auto_visit visit = {0};
    int rc = enter_used(d, &visit, err);
    if (rc == 0)
        rc = cuda_stream_usable(d->gpu->device, stream, err);
    return rc == 0 ? nccl_run_await(d->nccl, flight, stream, err) : rc;
}

bool device_is_before(struct device *d, struct CUevent_st *event)
{
    auto_visit visit = {0};
    return enter_used(d, &visit, NULL) == 0 && cuda_event_done(d->gpu->device, event, NULL) == 1;
}

void device_release(struct device *d, size_t n)
{
    nccl_run_release(d->nccl, n);
}

void device_revoke(struct device *d)
{
    auto_visit visit = {0};
    if (!d)
        return;
    d->ready = false;
    d->trouble.code = 0;
    if (d->nccl && enter_used(d, &visit, NULL) == 0)
        nccl_run_abort(d->nccl);
}

void device_give_back(struct device *d)
{
    if (d && d->nccl)
        nccl_run_give_back(d->nccl);
}

/* ---- the end -------------------------------------------------------------------------------- */

static int drained(struct device *d, struct err *err)
{
    int rc = d->nccl ? nccl_run_drained(d->nccl, err) : 0;
    return rc == 0 && d->staged ? staged_drained(d->staged, err) : rc;
}

/* aborts: gives up what is unfinished first. */
static bool drain(struct device *d, bool aborts)
{
    auto_visit visit = {0};
    struct err err = {0};
    struct timespec nap = {.tv_nsec = NAP_NS};
    int rc = enter_used(d, &visit, &err);
    if (rc == 0) {
        uint64_t deadline = deadline_in_ms(d->gpu->hangs ? 0 : STOP_MS);
        if (d->nccl && aborts)
            nccl_run_abort(d->nccl);
        /* nccl_run_drained() has limits of its own for work that was given up. */
        while ((rc = drained(d, &err)) == 1 &&
               (!deadline_passed(deadline) || (!aborts && d->nccl && nccl_run_owes(d->nccl))))
            nanosleep(&nap, NULL);
    }
    if (rc == 1 && !d->gpu->hangs)
        log_warn("an operation on GPU %d that has failed is still on its stream after %d s: its "
                 "tensors may still change",
                 d->gpu->device->ordinal, STOP_MS / 1000);
    if (rc == 1)
        d->gpu->hangs = true;
    return rc != 1;
}

bool device_owes(const struct device *d)
{
    return d && ((d->nccl && nccl_run_owes(d->nccl)) || d->kept_owed);
}

int device_restore(struct device *d, struct err *err)
{
    int rc = d->nccl ? nccl_run_drained(d->nccl, err) : 0;
    if (rc == 0 && d->kept_owed) {
        rc = kept_restore(&d->kept, d->gpu, err);
        d->kept_owed = rc < 0;
    }
    return rc == 0 && d->nccl ? nccl_run_restore(d->nccl, err) : rc;
}

static int restore(struct device *d, struct err *err)
{
    auto_visit visit = {0};
    int rc = enter_used(d, &visit, err);
    return rc == 0 ? device_restore(d, err) : rc;
}

void device_drain(struct device *d)
{
    struct err err = {0};
    if (!device_owes(d) || !drain(d, false))
        return;
    if (restore(d, &err) < 0)
        log_warn("%s", err.msg);
    drain(d, false);
}

bool device_end(struct device *d)
{
    return drain(d, true);
}

const struct algorithm *const device_algorithms[] = {&device_setup, &device_staged, NULL};
