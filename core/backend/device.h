/* SPDX-License-Identifier: Apache-2.0
 *
 * device: operations on tensors of a GPU, in one of two ways: by NCCL, or through the host's memory
 * (staged). The world has one, and each set. struct device owns NCCL's communicator and the
 * buffers; the GPU is shared (struct gpu_home). They are created in the first operation on a GPU,
 * and survive changes of the epoch, except the communicator. Under the progress lock.
 *
 * Setup. The ranks choose the way of an epoch in an operation of coll's: a barrier on the device
 * (coll_op.kind HVD_BARRIER, coll_op.device >= 0). It gathers what each rank has, from which all
 * choose the same, and creates the communicator. It is run before any other operation on a GPU of
 * the epoch.
 *
 * By NCCL. device_add() enqueues an operation and returns at once. The host waits for nothing: NCCL
 * itself waits for the other ranks. Several operations are in flight, in the order in which they
 * were added, which must be the same on all ranks. An operation that was added cannot be cancelled;
 * it ends, or the communicator is aborted.
 *
 * Staged. The operation is one of coll's, after a barrier, because coll can cancel it only before
 * all ranks have entered it. In an elastic job a barrier follows it, too.
 */
#ifndef HVD_BACKEND_DEVICE_H
#define HVD_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/coll/algorithm.h"

struct CUevent_st;
struct CUstream_st;
struct device;
struct gpu;
struct gpu_home;

/* The user's settings (HVD_BACKEND, HVD_GPU_FALLBACK). */
struct device_ways {
    bool nccl, staged;
    bool fallback; /* use staged where NCCL cannot be used; effective only if every rank has it set
                    */
};

/* Touches no GPU. home outlives it. */
int device_create(const struct device_ways *ways, struct gpu_home *home, struct device **ret,
                  struct err *err);

/* Marks this rank as a joiner: the other ranks continue without it if it does not fit them. */
void device_joins(struct device *device);

/* Call after all colls that had its algorithm are destroyed. Bounded in time. NULL is allowed. */
void device_destroy(struct device *device);

/* Gives up all unfinished operations for good: when this returns true, none of them touches tensors
 * any more. Bounded; false: the time was not enough, and anything that waits for that GPU may wait
 * forever. No other operation may follow. NULL is allowed. */
bool device_end(struct device *device);

/* A list that ends with NULL; struct device is its back end (coll_add_algorithms). */
extern const struct algorithm *const device_algorithms[];

/* Opens the GPU of that number (the first time) for the engine's own work. -EINVAL: this rank
 * uses another GPU. */
int device_gpu(struct device *device, int ordinal, struct gpu **ret, struct err *err);

enum device_way { DEVICE_NONE, DEVICE_NCCL, DEVICE_STAGED };

/* The way of this epoch, and its description for log and hvd_backend(). */
enum device_way device_way(const struct device *device);
void device_describe(const struct device *device, char *dst, size_t size);

/* ---- operations by NCCL --------------------------------------------------------------------- */

struct nccl_flight;

/* Whether this epoch's setup is done. */
bool device_is_ready(const struct device *device);

/* After the setup, whether NCCL runs op: 1; 0: it is staged. The same on every rank. Only the kind,
 * the type, the operator and the factors of op matter. An Adasum is always staged, because its sums
 * need the host. -ENOTSUP: neither is possible. */
int device_by_nccl(struct device *device, const struct coll_op *op, struct err *err);

/* Whether device_add() may be called: operations in flight are limited in number and in bytes of
 * memory that they need. */
bool device_has_room(const struct device *device);

/* Enqueues op behind the operations that were added before; its lists are copied. retain: copies of
 * inputs that it overwrites are kept until device_release(). *ret is for device_await(), until
 * device_release() or device_give_back(). -EAGAIN: there is no memory for one more in flight; call
 * again when one was released. On any other error the operations of the epoch have failed. */
int device_add(struct device *device, const struct coll_op *op, bool retain,
               struct nccl_flight **ret, struct err *err);

/* The same for a message of two ranks, which add their messages in the same order. It is aside:
 * device_called(), device_landed() and device_release() do not know it. No input is kept. *ret is
 * for the calls below, until device_release_aside(), device_revoke() or device_give_back(). */
int device_add_aside(struct device *device, const struct coll_op *op, struct nccl_flight **ret,
                     struct err *err);
bool device_aside_called(const struct nccl_flight *flight);
bool device_aside_landed(const struct nccl_flight *flight);
void device_release_aside(struct device *device, struct nccl_flight *flight);

/* Makes progress. -errno: NCCL or the GPU has failed. An error of NCCL's is delayed, because
 * usually a rank was lost, which is reported meanwhile. */
int device_progress(struct device *device, const struct mesh *mesh, struct err *err);

/* Of the operations that are not released, from the oldest on: for how many device_await() is
 * possible, and how many have their results in the outputs. */
size_t device_called(const struct device *device);
size_t device_landed(const struct device *device);

/* Makes later work on the stream wait for the operation. 1: not yet possible, because NCCL is still
 * putting it on its stream. -EBUSY: the stream is being captured. */
int device_await(struct device *device, const struct nccl_flight *flight,
                 struct CUstream_st *stream, struct err *err);

/* Whether the event has not passed yet. False where that cannot be found out. */
bool device_is_before(struct device *device, struct CUevent_st *event);

/* Ends the use of the oldest n operations, which have landed. */
void device_release(struct device *device, size_t n);

/* The epoch has lost a rank, or ends: starts to abort the communicator. Nothing lands any more.
 * NULL is allowed. */
void device_revoke(struct device *device);

/* Whether work of operations that were given up may still touch tensors, or inputs have to be
 * copied back. NULL is allowed. */
bool device_owes(const struct device *device);

/* After device_revoke(): ends the use of all operations that are not released. Their retained
 * inputs are copied back to where they were when their work is off the GPU; the next setup waits
 * for that. NULL is allowed. */
void device_give_back(struct device *device);

/* Before the caller of an operation that was given up gets its tensors back: waits until its work
 * is off the GPU and its retained input is copied back. Bounded, but the program's own work on the
 * GPU may come first. */
void device_drain(struct device *device);

#endif
