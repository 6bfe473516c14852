/* SPDX-License-Identifier: Apache-2.0
 *
 * coll: one collective operation at a time over a mesh.
 *
 * The engine starts operations in the order of the log, which is the same on every rank, and drives
 * each to its end with coll_progress() under its progress lock. An algorithm is a file of this
 * folder with a start and a progress function, chosen by coll_select.c from mesh, kind and size;
 * every rank chooses the same.
 *
 * Stable completion: when coll_progress() returns 0, the outputs are written and the caller may
 * overwrite inputs and outputs at once; what slower peers still need is in memory of ours (staging,
 * work buffers), which is reused only when every rank is known to have finished with it.
 *
 * Until every rank has started an operation nobody is done with it and no input is overwritten (an
 * allreduce, a reduce-scatter and a broadcast write no output either), so an operation that some
 * rank has not started can be cancelled on all of them (coll_cancel, then a new generation).
 *
 * Order of summation of an allreduce: within a host in the order of local ranks; between hosts
 * piece q of a tensor (its count split as evenly as possible over lanes x hosts pieces, in order)
 * starts at host q % hosts and goes round from there. Neither depends on fusion, chunks, arrival or
 * on which algorithm runs between these hosts. A sum across hosts is that of a world with one rank
 * a host. A reduce-scatter sums in the order of ranks.
 */
#ifndef HVD_COLL_COLL_H
#define HVD_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/transport/mesh.h"

struct coll_tensor {
    const void *in;
    void *out;    /* == in: in place */
    size_t count; /* elements */
};

/* Would an operation overwrite what it reads? */
static inline bool coll_destroys_input(const struct coll_tensor *tensor)
{
    return tensor->count > 0 && tensor->in && tensor->in == tensor->out;
}

/* Does the output lie in the input? Then what is read must stay until no rank can begin anew. */
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
    int contributors;                  /* what an average divides by */
    int device;                        /* where the tensors are; -1: the host's memory */
    int root;                          /* broadcast */
    bool across;                       /* allreduce: see below */
    const struct coll_tensor *tensors; /* fused ones; only allreduce has more than one */
    size_t n;
    /* One number a rank, in elements; NULL where the kind has none.
     *   allgather      recv_counts: what each rank gives (own: tensors[0].count)
     *   alltoall       send_counts: to each rank; recv_counts: from each
     *   reducescatter  recv_counts: what each rank gets; tensors[0].count is their sum */
    const size_t *send_counts;
    const size_t *recv_counts;
    /* across: each rank's tensors are summed with those of the ranks that have its local rank on
     * the other hosts. Only as a part of an operation to which every rank has come, where there are
     * several hosts and all have as many ranks (core/backend/hier); ranks of one host may differ in
     * counts. */
    /* Of a device, one a tensor: an event behind which in is complete and out may be overwritten.
     * NULL: that is so. */
    void *const *ready;
};

/* A barrier of the host's links. */
extern const struct coll_op coll_barrier;

struct coll;

/* Scratch memory is kept and grows to what the largest operation needs: at most two buckets. */
int coll_create(struct mesh *mesh, struct coll **ret, struct err *err);
void coll_destroy(struct coll *coll);

struct algorithm;

/* The algorithms of a back end (list ends with NULL), in front of the coll's own and behind those
 * of back ends that were added before; the same on every rank. Before the first operation that they
 * apply to. backend: what their init gets, as coll->backend; outlives the coll. */
int coll_add_algorithms(struct coll *coll, const struct algorithm *const *list, void *backend,
                        struct err *err);

/* op and what it points to must stay until the end. Starts without waiting for anybody. */
int coll_start(struct coll *coll, const struct coll_op *op, struct err *err);

/* Works until it would have to wait: 1. 0: done. -errno: failed, the coll is good only for
 * coll_destroy(). Never sleeps, never spins. */
int coll_progress(struct coll *coll);

/* After a 1: how to wait. */
enum coll_wait {
    COLL_WAKES,  /* on mesh_fd() */
    COLL_YIELDS, /* the same, but a thread of ours works on it that may need this processor */
    COLL_MOVES, /* nothing wakes us, and every look moves it: a library that works while it is asked
                 */
    COLL_ASKS,  /* nothing wakes us: a device works by itself, and says so when it is asked */
};

/* NULL: COLL_WAKES. */
enum coll_wait coll_wait(const struct coll *coll);

/* Do sums across hosts (coll_op.across) go by a back end, not by the host's own links? */
bool coll_across_by_library(const struct coll *coll);

/* In words, why an operation has failed: NULL where there are none. code -ENOTSUP: every rank has
 * come to the same answer from what all of them said; -EXDEV: the others have come to doing without
 * this one. */
const struct err *coll_why(const struct coll *coll);

/* The operation under way, if any, has failed or is given up for good: when this returns nothing of
 * it touches its tensors any more, unless coll_left() says so. Bounded. The coll is good only for
 * coll_destroy(). NULL is fine. */
void coll_stop(struct coll *coll);

/* NULL; or the library that could not be made to let go of what has been stopped or cancelled, and
 * may still read and write its tensors: these must stay as they are until the process ends.
 * coll_destroy() then frees nothing that an algorithm of a back end has used. NULL is fine. */
const char *coll_left(const struct coll *coll);

/* Forgets the operation that was started; see above for when this is allowed. The caller then makes
 * a new generation on every rank. */
void coll_cancel(struct coll *coll);

/* ---- elastic: what survivors make of an operation that has lost a rank (engine/REPAIR.md) ---- */

/* From here on every operation can be finished by the survivors, or begun anew: where an algorithm
 * cannot see to that by itself, inputs that are outputs too are saved first, and a barrier behind
 * the operation tells that everybody has the result. On one host nothing is returned any more
 * from a mesh that was given up (mesh_abort), also what is done: coll_standing() says that it is.
 */
void coll_set_elastic(struct coll *coll);

/* How far the operation under way has come, as far as this rank can see. */
struct coll_standing {
    bool started;
    bool whole;      /* the result is here; only the barrier behind it was not passed */
    uint32_t pieces; /* 0: all or nothing */
    const uint32_t
        *final; /* [pieces] steps of each that are final; the coll's, until its next call */
};

void coll_standing(struct coll *coll, struct coll_standing *ret);

/* Elements that are still to be worked on. */
struct coll_rest {
    struct coll_tensor *list;
    size_t n, cap;
};

void coll_rest_fini(struct coll_rest *rest);

/* Of the operation under way: brings what is final to the outputs (from memory that the ranks of
 * this host share) and appends the rest, which is the same on every rank that is given the same.
 * final: [pieces], NULL: all of it is final. Nothing of the peers is needed or touched; may be
 * repeated, with figures that are no smaller. */
int coll_settle(struct coll *coll, const uint32_t *final, struct coll_rest *ret_rest);

/* Of the operation under way, which is to be begun anew: inputs that it has overwritten are as they
 * were (on a device: for whatever comes next on the back ends' streams). */
void coll_restore(struct coll *coll);

/* The name of the algorithm in use, for the timeline and the log: "shm_slice", "ring", ... */
const char *coll_algorithm(const struct coll *coll);

#endif
