/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: the back ends of one engine, from what the user wants (HVD_BACKEND) to what is open. A
 * back end is a way to carry out operations that is found at run time: a library of the machine or
 * of the framework. It brings algorithms (core/coll/algorithm.h), which coll asks before its own:
 * MPI (mpi.h) for tensors of the host, and for those of GPUs NCCL and the way through the host's
 * memory (device.h). The host (memory and sockets: core/coll itself) is always there.
 *
 * Each rank writes into its card what it can use (choice.h), before anything is opened. Every rank
 * then makes the same choice from all cards.
 *
 *     backends_early()   before the launcher is looked for
 *     backends_say()     writes what this rank wants and has to the front of its card
 *     backends_hear()    removes that from all ranks' cards, and chooses the back ends
 *     backends_enter()   opens the chosen back ends, once, on the mesh; adds their algorithms
 *                        to the coll
 *     backends_close()   closes them when all colls are destroyed
 *
 * One struct per engine. backends_say(), _hear() and _enter() are called in each epoch. Called
 * inside hvd_init() and under the progress lock.
 */
#ifndef HVD_BACKEND_BACKENDS_H
#define HVD_BACKEND_BACKENDS_H

#include "core/backend/choice.h"
#include "core/backend/device.h"
#include "core/backend/gpu.h"

struct backends {
    struct backend_wish wish; /* filled in by the caller */
    struct backend_choice choice;
    bool said;               /* this process has logged the choice */
    struct device_ways ways; /* for tensors of GPUs */
    struct device *device;   /* the world's; NULL: not entered yet */
    struct gpu_home gpu;     /* for all devices */
    bool abandoned;          /* a library still uses the memory of an operation: it is not freed */
    struct mpi *mpi;         /* NULL: not open */
};

/* Loads MPI early if it is wanted. Open MPI may bring a libpmix.so.2 of its own, and the loader
 * uses the first library of that name in a process: it must be Open MPI's, not the one that
 * boot/pmix loads. backends_say() reports failures. */
void backends_early(const struct backend_wish *wish);

/* -ENOTSUP: the job is elastic, and a wanted back end cannot be used in elastic jobs. */
int backends_say(const struct backends *b, bool elastic, struct buf *out, struct err *err);

/* cards: [size]. */
int backends_hear(struct backends *b, struct buf *cards, int size, struct err *err);

/* joined: this rank is a joiner. */
int backends_enter(struct backends *b, struct coll *coll, bool joined, uint64_t deadline,
                   struct err *err);

/* Makes what a set of ranks uses for tensors of GPUs. Add device_algorithms to the set's colls, and
 * destroy it after them (device_destroy()), before backends_close(). Touches no GPU. */
int backends_make_set_device(struct backends *b, struct device **ret, struct err *err);

/* lost: a rank was lost, or left in the middle of an operation. */
void backends_close(struct backends *b, bool lost);

/* Returns whether a library is open that cannot cancel an operation, and that all ranks must end
 * alike: MPI. */
static inline bool backends_cannot_cancel(const struct backends *b)
{
    return b->mpi;
}

/* Fills ret for hvd_backend(): the back end of this name. b NULL: none is open. device: that of the
 * world or a set, or NULL. -EINVAL: unknown name. */
int backends_tell(const struct backends *b, const struct device *device, const char *name,
                  struct hvd_backend *ret, struct err *err);

/* For a back end for tensors of GPUs that backends_tell() has found not open: sets ret->built to
 * whether this machine has what the back end needs, and ret->text to what it has, or lacks. Loads
 * the back end's libraries, touches no GPU. Any thread, without the progress lock. */
void backends_probe(const char *name, struct hvd_backend *ret);

#endif
