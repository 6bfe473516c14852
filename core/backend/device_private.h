/* SPDX-License-Identifier: Apache-2.0
 *
 * device_private: what the files of device share: device.c (life, operations by NCCL),
 * device_setup.c (the choice of the way), staged.c.
 */
#ifndef HVD_BACKEND_DEVICE_PRIVATE_H
#define HVD_BACKEND_DEVICE_PRIVATE_H

#include "core/backend/device.h"
#include "core/backend/kept.h"
#include "core/backend/nccl_run.h"

struct staged;

#define FALLBACK                                                                                   \
    "; HVD_GPU_FALLBACK=1 would let tensors go through the host's memory, which is slower"

struct device {
    struct device_ways ways;
    struct gpu_home *home;
    struct gpu *gpu;       /* home->gpu, once this device uses it; else NULL */
    struct nccl_run *nccl; /* NULL: not used yet */
    struct staged *staged; /* NULL: not used yet */
    struct kept kept;      /* the staged operation */
    bool kept_owed;        /* its inputs must be restored before any other operation */
    bool ready;            /* the way of this epoch is chosen, and can be used */
    bool staged_too; /* staged may be used where NCCL cannot: the user has named it, every rank
                        allows it, or there is only one rank */
    enum device_way way, told; /* way: the way of this epoch; told: the way that was logged last */
    bool newcomer;             /* this rank has joined, and has not taken part in a choice yet */
    struct err trouble;        /* NCCL's first error in this epoch; code 0: none */
    uint64_t give_up;          /* when trouble becomes the error of device_progress() */
};

extern const struct algorithm device_setup, device_staged;

/* For an algorithm's start: opens the GPU of coll's operation and enters it. */
int device_enter(struct coll *coll, struct device *d, struct cuda_visit *visit, struct err *err);

/* Makes the result of an algorithm's progress: passes rc < 0 with err to coll, and returns the
 * other values of rc as they are. alone: the other ranks do not return this -ENOTSUP, so it becomes
 * -EIO.
 */
int device_result(struct coll *coll, const struct device *d, int rc, bool alone, struct err *err);

/* In a visit. When work of operations that were given up is off the GPU, enqueues that their
 * retained inputs are copied back. 1: in progress. */
int device_restore(struct device *d, struct err *err);

/* Delays an error of NCCL's: usually a rank was lost, and the other links will report which one in
 * a moment. rc: 0, 1 or -errno with err. Returns 1 while the error is delayed. */
int device_excuse(struct device *d, const struct mesh *mesh, int rc, struct err *err);

/* Finds joiners that do not fit (device_setup.c; pure). The ranks that were there before choose the
 * way. A joiner fits if its report allows exactly that way, with NCCL also with kernels if they all
 * have kernels. Joiners are taken in the order of ranks. Sets ret_unfit[size], which is all false
 * before, and returns how many do not fit. ret_why: the reason for rank me if it does not fit, else
 * for the first. -ENOMEM. */
int device_fit(const struct device_ways *ways, const struct nccl_fact *all, int size, int me,
               bool *ret_unfit, struct err *ret_why);

#endif
