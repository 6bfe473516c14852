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
    enum device_way way, used; /* used: the last one by which operations were begun; in the log */
    bool two_levels;           /* of this epoch: allreduce by hier where it can */
    int told_levels;           /* in the log: 1 that it is so, 0 that it is not, -1: neither */
};

/* What a rank says in ask. Plain bytes. */
struct said {
    struct nccl_said nccl;
    struct nccl_said local; /* of the communicator inside the host */
    bool fallback;
    uint8_t used;   /* enum device_way; DEVICE_NONE: it has done nothing with the others yet */
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
    struct err trouble; /* NCCL's first error, or a rank that does not fit; code 0: none */
    uint64_t give_up;   /* when it counts */
};

/* What has failed counts after GRACE_MS; until then the loss of a rank may explain it. */
void device_wait_for_loss(struct job *job, const struct err *err);

/* An allgather of what each rank says, as a part of the operation. */
int device_ask(struct coll *coll, struct job *job, struct err *err);

/* When all have been heard: the way of this epoch, the same on every rank. -ENOTSUP: there is none.
 * Where that is so because of ranks that have come to others, these others go on without them:
 * they have 0 and trouble until the newcomers, who have -EXDEV, are gone. */
int device_choose(const struct coll *coll, struct job *job, struct err *err);

/* The way is used from here on; in the log as it changes. */
void device_tell(const struct coll *coll, struct device *device);

#endif
