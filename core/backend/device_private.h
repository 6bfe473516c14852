/* SPDX-License-Identifier: Apache-2.0
 *
 * device_private: what device.c (life and phases) and device_ask.c (what ranks say, and the way
 * that comes of it) share.
 */
#ifndef HVD_BACKEND_DEVICE_PRIVATE_H
#define HVD_BACKEND_DEVICE_PRIVATE_H

#include "core/backend/device.h"
#include "core/backend/hier.h"
#include "core/backend/kept.h"
#include "core/backend/nccl_run.h"

struct staged;

struct device {
    struct device_ways ways;
    struct gpu *gpu;       /* NULL: no tensor of a device yet */
    struct nccl_run *nccl; /* NULL: not used yet */
    struct staged *staged; /* the same */
    struct hier *hier;     /* the same */
    struct kept kept;
    enum device_way way, told; /* told: in the log */
    bool newcomer;             /* it has joined others, and was in no choice with them yet */
    bool sockets, asked_net;   /* NCCL has nothing else between hosts; once it was looked for */
    const char *between;       /* in words: what sums between hosts */
    bool two_levels;           /* of this epoch: allreduce by hier where it can */
    int told_levels;           /* in the log: 1 that it is so, 0 that it is not, -1: neither */
};

/* What a rank says in ask. Plain bytes. */
struct said {
    struct nccl_said nccl;
    struct nccl_said local; /* of the communicator inside the host */
    bool fallback;
    bool newcomer;
    uint8_t levels; /* enum hier_wish */
    bool sockets;   /* NCCL has nothing else between hosts */
};

enum phase { ASK, FORM, RUN, BEHIND };

/* An operation, one after the other; of one coll, and so of one epoch. */
struct job {
    struct device *d;
    bool agreed; /* the way of this epoch is known */
    enum phase phase;
    enum device_way way;
    bool staged_too;          /* where NCCL cannot: the user allows it, on every rank */
    const struct coll_op *op; /* reads what is kept where it must */
    struct said mine, *all;   /* [size] */
    size_t *counts;           /* [size] */
    struct coll_tensor tensor;
    struct coll_op part;
    struct err trouble; /* NCCL's first error; code 0: none */
    uint64_t give_up;   /* when it counts, or who does not fit is taken for lost */
    int unfit;          /* a rank that is to leave; -1: none */
    bool refused;       /* all ranks have come to that */
};

/* An allgather of what each rank says, as a part of the operation. */
int device_ask(struct coll *coll, struct job *job, struct err *err);

/* Of ranks that have joined others, those that do not fit (device_fit.c, pure): ret_unfit[size],
 * which is all false before; how many. Those who were there are taken as they are; one that has
 * come fits where it leaves a way for all, by kernels where there were kernels. ret_why: of rank me
 * where that is one, else of the first. -ENOMEM. */
int device_fit(const struct device_ways *ways, const struct said *all, int size, int me,
               bool *ret_unfit, struct err *ret_why);

/* When all have been heard: the way of this epoch, the same on every rank. -ENOTSUP: there is none.
 * Where ranks that have come do not fit they get -EXDEV, and the others 0 with
 * job->unfit. */
int device_choose(const struct coll *coll, struct job *job, struct err *err);

/* In the log, once. */
void device_tell(const struct coll *coll, struct device *device);

#endif
