/* SPDX-License-Identifier: Apache-2.0
 *
 * device: operations on tensors of a GPU, in one of two ways: by NCCL, or through the host's memory
 * (staged).
 *
 * One algorithm for all of them, in four phases:
 *
 *     ask     in an epoch's first operation an allgather of what each rank has (GPU, driver, NCCL),
 *             from which all ranks choose the same way; in later operations a barrier over the
 *             host's links. A rank past this phase knows that every rank has entered the operation,
 *             which cannot be cancelled any more. The inputs are packed meanwhile.
 *     form    in an epoch's first operation: NCCL's communicator of the former epoch is aborted,
 * and a new one created run     the operation behind  in an elastic job: a barrier over the host's
 * links, after which every rank has the result; copies of overwritten inputs are retained until
 * then (kept.h)
 *
 * struct device owns the GPU, communicator and buffers. They are created in the rank's first
 * operation on a GPU and survive changes of the epoch. Under the progress lock.
 */
#ifndef HVD_BACKEND_DEVICE_H
#define HVD_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/coll/algorithm.h"

struct device;
struct gpu;

/* The user's settings (HVD_BACKEND, HVD_GPU_FALLBACK). */
struct device_ways {
    bool nccl, staged;
    bool fallback; /* use staged where NCCL cannot be used; effective only if every rank has it set
                    */
};

/* Touches no GPU. */
int device_create(const struct device_ways *ways, struct device **ret, struct err *err);

/* Marks this rank as a joiner: the other ranks continue without it if it does not fit them. */
void device_joins(struct device *device);

/* Call after all colls that had its algorithm are destroyed. Bounded in time. NULL is allowed. */
void device_destroy(struct device *device);

/* Gives up an unfinished operation of any coll for good: when this returns true, the operation
 * does not touch tensors any more. Bounded; false: the time was not enough, and anything that
 * waits for that GPU may wait forever. No other operation may follow. NULL is allowed. */
bool device_end(struct device *device);

/* A list that ends with NULL; struct device is its back end (coll_add_algorithms). */
extern const struct algorithm *const device_algorithms[];

/* Opens the GPU of that number (the first time) for the engine's own work. -EINVAL: this rank
 * uses another GPU. */
int device_gpu(struct device *device, int ordinal, struct gpu **ret, struct err *err);

enum device_way { DEVICE_NONE, DEVICE_NCCL, DEVICE_STAGED };

/* The way of this epoch, and its description. */
enum device_way device_way(const struct device *device);
void device_describe(const struct device *device, enum device_way way, char *dst, size_t size);

#endif
