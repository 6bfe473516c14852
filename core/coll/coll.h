/* SPDX-License-Identifier: Apache-2.0
 *
 * coll: one collective operation at a time over a mesh.
 *
 * The engine starts operations in the order of the log, which is the same on every rank, and drives
 * each to its end with coll_progress() under its progress lock. An algorithm has a start and a
 * progress function (algorithm.h). coll.c chooses one from the table in coll_select.c by mesh, kind
 * and size; every rank chooses the same.
 *
 * Stable completion: when coll_progress() returns 0, the outputs are written and the caller may
 * overwrite inputs and outputs at once. Data that slower peers still need is in our own memory
 * (staging, work buffers), which is reused only after every rank has finished with it.
 *
 * Before every rank has started an operation, no rank finishes it and no input is overwritten (an
 * allreduce, a reduce-scatter and a broadcast write no output either). So an operation that some
 * rank has not started can be cancelled on all ranks (coll_cancel, then a new generation).
 *
 * Order of summation of an allreduce: within a host in the order of local ranks; between hosts
 * piece q of a tensor (its count split as evenly as possible over lanes x hosts pieces, in order)
 * starts at host q % hosts and continues from there in a circle. Neither order depends on fusion,
 * chunks, the order of arrival, or the algorithm between the hosts. A reduce-scatter sums in the
 * order of ranks.
 */
#ifndef HVD_COLL_COLL_H
#define HVD_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/transport/mesh.h"

#define COLL_KINDS HVD_REDUCE /* coll runs the kinds before it */

struct coll_tensor {
    const void *in;
    void *out;    /* equal to in: in place */
    size_t count; /* elements */
};

/* Returns whether an operation would overwrite its own input. */
static inline bool coll_destroys_input(const struct coll_tensor *tensor)
{
    return tensor->count > 0 && tensor->in && tensor->in == tensor->out;
}

/* Returns whether the output overlaps the input: then the result must not be written before a
 * restart is impossible. */
static inline bool coll_overlaps(const struct coll_tensor *t, size_t in_bytes, size_t out_bytes)
{
    uintptr_t in = (uintptr_t)t->in, out = (uintptr_t)t->out;
    return out < in + in_bytes && in < out + out_bytes;
}

struct coll_op {
    enum hvd_kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op;
    double prescale, postscale;        /* 1.0: none */
    int contributors;                  /* the divisor of an average */
    int device;                        /* device of the tensors; -1: host memory */
    int root;                          /* broadcast */
    const struct coll_tensor *tensors; /* fused; only an allreduce can have more than one */
    size_t n;
    /* One number a rank, in elements; NULL where the kind has none.
     *   allgather      recv_counts: what each rank gives (own: tensors[0].count)
     *   alltoall       send_counts: to each rank; recv_counts: from each
     *   reducescatter  recv_counts: what each rank gets; tensors[0].count is their sum */
    const size_t *send_counts;
    const size_t *recv_counts;
    /* On a device, for each tensor: an event after which in is complete and out may be overwritten.
     * NULL: in is complete and out may be overwritten already. */
    void *const *ready;
    /* On a device: the inputs, or the outputs, are in host memory all the same. Not for an
     * allreduce, and not by NCCL. */
    bool in_host, out_host;
};

/* A barrier of the ranks, through host memory. */
extern const struct coll_op coll_barrier;

struct coll;

/* Scratch memory is reused, and grows to what the largest operation needs: at most two fusion
 * buffers. */
int coll_create(struct mesh *mesh, struct coll **ret, struct err *err);
void coll_destroy(struct coll *coll);

struct algorithm;

/* Adds the algorithms of a back end (list ends with NULL), before coll's own and after those of
 * back ends added earlier. All ranks add the same. Call it before the first operation that they
 * apply to. backend: passed to their init as coll->backend; outlives the coll. */
int coll_add_algorithms(struct coll *coll, const struct algorithm *const *list, void *backend,
                        struct err *err);

/* Starts an operation without waiting for other ranks. op and what it points to must stay valid
 * until the operation ends. */
int coll_start(struct coll *coll, const struct coll_op *op, struct err *err);

/* Makes progress. 0: finished; 1: would have to wait; -errno: failed, and only coll_destroy()
 * may follow. Never sleeps or spins. */
int coll_progress(struct coll *coll);

/* How to wait after coll_progress() has returned 1. */
enum coll_wait {
    COLL_WAKES, /* sleep on mesh_fd() */
    COLL_MOVES, /* nothing wakes the caller, and each call makes progress: a library that works only
                   inside calls */
    COLL_ASKS,  /* nothing wakes the caller: a device works by itself and has to be polled */
    COLL_NAPS,  /* the same, and nothing has to follow at once when it is done */
};

/* NULL: returns COLL_WAKES. */
enum coll_wait coll_wait(const struct coll *coll);

/* Why the operation has failed; NULL: no reason was recorded. code -ENOTSUP: every rank has
 * reached the same verdict. -EXDEV: the other ranks continue without this one. */
const struct err *coll_why(const struct coll *coll);

/* Stops the current operation, if any, which has failed or is given up. When it returns the
 * operation does not touch its tensors any more, unless coll_abandoned() says otherwise. Bounded in
 * time. Only coll_destroy() may follow. NULL is allowed. */
void coll_stop(struct coll *coll);

/* NULL, or the name of a library that did not release the memory of an operation that was
 * stopped or cancelled. It may still read and write the operation's tensors, which must stay
 * valid until the process ends; coll_destroy() then frees nothing that algorithms of back ends
 * used. NULL as coll is allowed. */
const char *coll_abandoned(const struct coll *coll);

/* Cancels the operation that was started; see above for when this is allowed. The caller then
 * begins a new generation on every rank. */
void coll_cancel(struct coll *coll);

/* ---- elastic: how survivors finish an operation after a rank was lost (engine/REPAIR.md) ---- */

/* From here on every operation can be finished by the survivors, or restarted. For algorithms
 * that cannot ensure this themselves, inputs that are also outputs are copied first, and a
 * barrier after the operation ensures that every rank has the result. On one host, operations of
 * a mesh that was given up (mesh_abort) do not return success any more, even if they have
 * finished: coll_standing() reports that. */
void coll_set_elastic(struct coll *coll);

/* How far the current operation has come, as far as this rank can see. */
struct coll_standing {
    bool started;
    bool whole;            /* this rank has the result; only the barrier after it was not passed */
    uint32_t pieces;       /* 0: the operation is final as a whole or not at all */
    const uint32_t *final; /* [pieces] how many steps of each piece are final; owned by the coll
                              until its next call */
};

void coll_standing(struct coll *coll, struct coll_standing *ret);

/* The elements that still have to be processed. */
struct coll_rest {
    struct coll_tensor *list;
    size_t n, cap;
};

void coll_rest_fini(struct coll_rest *rest);

/* Writes the final parts of the current operation to the outputs, from memory that the ranks of
 * this host share, and appends the rest to ret_rest. The rest is the same on every rank with the
 * same arguments. final: [pieces], NULL: all of it is final. Needs nothing from peers and changes
 * none of their data. May be repeated with values of final that are not smaller. */
int coll_settle(struct coll *coll, const uint32_t *final, struct coll_rest *ret_rest);

/* Before the current operation is restarted: restores inputs that it has overwritten (on a
 * device: in the order of the back ends' streams). */
void coll_restore(struct coll *coll);

/* The name of the algorithm in use, for the timeline and the log: "shm_slice", "ring", ... */
const char *coll_algorithm(const struct coll *coll);

/* Bytes of memory that the shared segment of n ranks of one host takes once large operations use
 * it, 0 for one rank: of staging, and a page for each rank. Pipes come to it only for pairs of
 * ranks that use them. Below: how much of that the mesh's segment does not have yet. */
size_t coll_shared_memory(int n);
size_t coll_shared_memory_to_come(const struct mesh *mesh);

#endif
