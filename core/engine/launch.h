/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: turns a batch into a collective operation: counts, fused tensors, memory for
 * results. A struct launch has one operation at a time. Called with the progress lock held. A
 * failure is set in e->trouble.
 */
#ifndef HVD_ENGINE_LAUNCH_H
#define HVD_ENGINE_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"
#include "core/engine/launch_adasum.h"
#include "core/engine/launch_gpu.h"

struct batch;
struct circle;
struct signature;
struct slot;

/* A copy to make after an operation: bytes from `from` to `to`. bytes 0: no copy. */
struct pending_copy {
    int device; /* GPU that holds both buffers; -1: host memory */
    void *to;
    const void *from;
    size_t bytes;
};

struct launch {
    struct coll_op op; /* points to the lists below */
    struct coll_tensor *tensors;
    void **ready; /* [tensors_cap] events after which GPU tensors may be used */
    size_t tensors_cap;
    size_t *send_counts, *recv_counts; /* [size] elements for and from each mesh rank */
    /* [2 * rows_cap] of launch_counts(): rows for each mesh rank, then rows from each. Stays while
     * the ranks change, because an operation in flight then may still have to be finished. */
    int64_t *rows;
    size_t rows_cap;
    /* buffer for packed tensors; used only while the mesh has fewer ranks than the world */
    uint8_t *scratch;
    size_t scratch_cap;
    struct launch_gpu gpu; /* the same buffer on a GPU */
    struct launch_adasum adasum;
    struct pending_copy pending_copy;
};

int launch_init(struct launch *l, struct err *err);
void launch_fini(struct launch *l);

/* Resizes the per-rank arrays to the ranks of a new epoch. */
int launch_resize(struct launch *l, int size, struct err *err);

/* Call it before l->op is filled for an operation: the one before may have been given up with its
 * copy pending. */
static inline void launch_begin(struct launch *l)
{
    l->pending_copy = (struct pending_copy){0};
}

/* Fills l->op with the batch's operation. */
int launch_prepare(struct circle *c, struct launch *l, struct batch *batch);

/* Called after the operation: makes l->pending_copy, if there is one. */
void launch_finish(struct circle *c, struct launch *l);

/* The root's rank in the mesh; -1 when the root is lost; 0 for operations without a root. */
int launch_root(const struct circle *c, const struct signature *sig);

/* Fills l->op with the exchange in which the ranks tell each other how many rows of an alltoall
 * they send. */
int launch_counts(struct circle *c, struct launch *l, const struct slot *slot);

/* Takes the result of launch_counts() into slot->rows. */
void launch_take_counts(struct circle *c, struct launch *l, struct slot *slot);

/* Fills l->op with what the signature determines, for one tensor and without counts. */
void launch_fill_op(struct circle *c, struct launch *l, const struct signature *sig);

#endif
