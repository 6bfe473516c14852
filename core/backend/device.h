/* SPDX-License-Identifier: Apache-2.0
 *
 * device: operations on tensors of a GPU, by NCCL, by NCCL inside hosts and the host's links
 * between them (hier), or through the host's memory (staged).
 *
 * One algorithm for all of them, in four phases:
 *
 *     ask     in an epoch's first operation every rank says what it has (GPU, driver, NCCL), and
 *             all come to the same way; in others a barrier of the host. Who is through knows that
 *             every rank has come, so nobody takes the operation back. The inputs are packed
 *             meanwhile.
 *     form    in an epoch's first: NCCL's communicator, kept, made smaller or made anew
 *     run     the operation
 *     behind  in an elastic job: a barrier of the host, that tells that everybody has the result;
 *             inputs that were overwritten are kept until then (kept.h)
 *
 * GPU, communicator and buffers are this rank's, from its first such operation on, and go through
 * epochs; struct device has them. Under the progress lock.
 */
#ifndef HVD_BACKEND_DEVICE_H
#define HVD_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/backend/hier_choice.h"
#include "core/coll/algorithm.h"

struct device;
struct gpu;

/* What the user allows (HVD_BACKEND, HVD_GPU_FALLBACK, HVD_HIERARCHICAL_ALLREDUCE). */
struct device_ways {
    bool nccl, staged;
    bool fallback;         /* staged where nccl cannot be had; must be so on every rank */
    enum hier_wish levels; /* allreduce by NCCL inside hosts only (hier.h) */
};

/* Touches no GPU. */
int device_create(const struct device_ways *ways, struct device **ret, struct err *err);

/* This rank has come to others, who do without it if it does not fit them. */
void device_joins(struct device *device);

/* After all colls that had its algorithm are destroyed. Bounded. NULL is fine. */
void device_destroy(struct device *device);

/* Whatever coll it was of, an operation that has not ended is given up for good: when this returns
 * nothing of it touches tensors any more. Bounded; false: the time was not enough, and whatever
 * waits for that GPU may wait for ever. There will be no other operation. NULL is fine. */
bool device_end(struct device *device);

/* Ends with NULL; struct device is its back end (coll_add_algorithms). */
extern const struct algorithm *const device_algorithms[];

/* The GPU of that number, which is opened the first time, for the engine's own work on it. -EINVAL:
 * this rank uses another one. */
int device_gpu(struct device *device, int ordinal, struct gpu **ret, struct err *err);

/* DEVICE_HIER: of single operations, where the way of the epoch is DEVICE_NCCL. */
enum device_way { DEVICE_NONE, DEVICE_NCCL, DEVICE_STAGED, DEVICE_HIER };

/* In use in this epoch, and in words. */
enum device_way device_way(const struct device *device);
void device_describe(const struct device *device, enum device_way way, char *dst, size_t size);

#endif
