/* SPDX-License-Identifier: Apache-2.0
 *
 * device_private: structures that device.c (phases of an operation) and device_ask.c (reports of
 * the ranks, choice of the way) share.
 */
#ifndef HVD_BACKEND_DEVICE_PRIVATE_H
#define HVD_BACKEND_DEVICE_PRIVATE_H

#include "core/backend/device.h"
#include "core/backend/kept.h"
#include "core/backend/nccl_run.h"

struct staged;

struct device {
    struct device_ways ways;
    struct gpu *gpu;       /* NULL: no tensor of a device yet */
    struct nccl_run *nccl; /* NULL: not used yet */
    struct staged *staged; /* NULL: not used yet */
    struct kept kept;
    enum device_way way, told; /* way: the way of this epoch; told: the way that was logged last */
    bool newcomer;             /* this rank has joined, and has not taken part in a choice yet */
};

/* What a rank reports in the phase ask. Plain bytes. */
struct said {
    struct nccl_fact nccl;
    bool fallback;
    bool newcomer;
};

enum phase { ASK, FORM, RUN, BEHIND };

/* The operation; there is one at a time. It belongs to one coll, and so to one epoch. */
struct job {
    struct device *d;
    bool agreed; /* the way of this epoch has been chosen */
    enum phase phase;
    enum device_way way;
    bool staged_too; /* staged may be used where NCCL cannot: the user has named it, every rank
                        allows it, or there is only one rank */
    /* The operation; reads retained copies instead of inputs that it overwrites. */
    const struct coll_op *op;
    struct said mine, *all; /* [size] */
    size_t *counts;         /* [size] */
    struct coll_tensor tensor;
    struct coll_op part;
    struct err trouble; /* NCCL's first error; code 0: none */
    uint64_t give_up;   /* when trouble fails the operation, or a rank that does not fit is taken as
                           lost */
    int unfit;          /* a rank that has to leave; -1: none */
    bool refused;       /* all ranks have failed to find a way */
};

/* Starts the allgather of what each rank reports, as a part of the operation (coll_part_start). */
int device_ask(struct coll *coll, struct job *job, struct err *err);

/* Finds joiners that do not fit (device_fit.c, pure). The ranks that were there before choose the
 * way. A joiner fits if its report allows exactly that way, with NCCL also with kernels if they all
 * have kernels. Joiners are taken in the order of ranks. Sets ret_unfit[size], which is all false
 * before, and returns how many do not fit. ret_why: the reason for rank me if it does not fit, else
 * for the first. -ENOMEM. */
int device_fit(const struct device_ways *ways, const struct said *all, int size, int me,
               bool *ret_unfit, struct err *ret_why);

/* After all ranks have reported: chooses the way of this epoch, the same on every rank.
 * -ENOTSUP: there is none. A joiner that does not fit gets -EXDEV; all other ranks get 0, with
 * job->unfit set. */
int device_choose(const struct coll *coll, struct job *job, struct err *err);

/* Logs the way of the epoch, once. */
void device_tell(const struct coll *coll, struct device *device);

#endif
