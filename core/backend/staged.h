/* SPDX-License-Identifier: Apache-2.0
 *
 * staged: tensors of a device through locked memory of the host and the host's algorithms: for
 * devices that no library between devices serves.
 *
 * An allreduce is cut into chunks, all else is one. Each goes through a place of locked memory: out
 * of the device, summed there by all ranks, back to the device; while one is summed the next ones
 * come out and those before go back. A tensor is cut at multiples of its own beginning, so that how
 * its elements are summed does not depend on what it is fused with. Under the progress lock.
 */
#ifndef HVD_BACKEND_STAGED_H
#define HVD_BACKEND_STAGED_H

#include "core/backend/gpu.h"
#include "core/backend/kernels/kernels.h"
#include "core/coll/algorithm.h"

struct staged;

/* All in a visit of the GPU, which outlives it. */
int staged_create(struct gpu *gpu, struct staged **ret, struct err *err);

/* Nothing of it is on streams any more. NULL is fine. */
void staged_destroy(struct staged *staged);

/* op stays until its end. Touches no tensor yet. */
int staged_prepare(struct staged *staged, const struct mesh *mesh, const struct coll_op *op,
                   struct err *err);

/* Answers as coll_progress(). Runs parts of the operation under way of coll. */
int staged_progress(struct staged *staged, struct coll *coll, struct err *err);

/* Forgets the operation. What is under way on streams ends there: see staged_drained(). */
void staged_cancel(struct staged *staged, struct coll *coll);

/* 1: something of it still touches tensors. */
int staged_drained(struct staged *staged, struct err *err);

/* ---- how an operation is cut (staged_cut.c); pure ---- */

#define STAGED_CHUNK  ((size_t)4 << 20) /* bytes of a chunk; more where a kind cannot be cut */
#define STAGED_PLACES 4                 /* chunks under way at a time */
#define STAGED_PIECES KERNEL_PIECES     /* of a chunk: one launch packs them */

/* A part of a tensor, and where in its chunk's place it comes to and goes from. */
struct staged_piece {
    const uint8_t *in;
    uint8_t *out;
    size_t count;               /* elements of the input */
    size_t in_bytes, out_bytes; /* 0: nothing goes that way */
    size_t in_at, out_at;       /* the same: the sum takes the place of the input */
};

struct staged_chunk {
    size_t n;
    size_t in_size;         /* bytes from the beginning of the place that come out */
    size_t out_at, out_end; /* and those that go back */
    struct staged_piece pieces[STAGED_PIECES];
};

struct staged_cut {
    const struct coll_op *op;
    const struct mesh *mesh;
    size_t tensor, element; /* what comes next */
    bool ended;
};

/* Bytes that a place needs for chunks of this operation. */
size_t staged_room(const struct mesh *mesh, const struct coll_op *op);

/* Places that it can use: what is not cut is one chunk, and may be large. */
size_t staged_places(const struct coll_op *op);

/* The next chunk; false: there are no more. Of an operation without elements there is one, without
 * pieces. */
bool staged_cut_next(struct staged_cut *cut, struct staged_chunk *ret);

#endif
