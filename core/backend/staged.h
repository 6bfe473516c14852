/* SPDX-License-Identifier: Apache-2.0
 *
 * staged: operations on device tensors by way of page-locked host memory and the host's algorithms,
 * where NCCL cannot be used. An allreduce is cut into chunks; other operations are one chunk. Each
 * chunk uses a slot of locked memory: it is copied from the device, reduced there by all ranks, and
 * copied back. While one chunk is reduced the next ones are copied from the device, and earlier
 * ones back. A tensor is cut at fixed distances from its own beginning, so that the order of
 * summation does not depend on fusion. Under the progress lock.
 *
 * An operation is an algorithm of coll's (device_staged), in three phases:
 *
 *     enter   a barrier, until which the operation can be cancelled
 *     run     the chunks
 *     behind  in an elastic job: a barrier, after which every rank has the result; copies of
 *             overwritten inputs are retained until then (kept.h)
 */
#ifndef HVD_BACKEND_STAGED_H
#define HVD_BACKEND_STAGED_H

#include "core/backend/gpu.h"
#include "core/backend/kernels/kernels.h"
#include "core/coll/algorithm.h"

struct staged;

/* In a visit of the GPU, when none of its work is on streams any more. NULL is allowed. */
void staged_destroy(struct staged *staged);

/* In a visit of the GPU. 1: work on streams may still touch tensors of an operation that was
 * cancelled; 0: none does. */
int staged_drained(struct staged *staged, struct err *err);

/* ---- how an operation is cut; pure ---- */

#define STAGED_CHUNK  ((size_t)4 << 20) /* bytes of a chunk; more for kinds that cannot be cut */
#define STAGED_PLACES 4                 /* slots: chunks in progress at a time */
#define STAGED_PIECES KERNEL_PIECES     /* most pieces of a chunk: one launch packs them */

/* A part of a tensor, and its positions in the chunk's slot. */
struct staged_piece {
    const uint8_t *in;
    uint8_t *out;
    size_t count;               /* elements of the input */
    size_t in_bytes, out_bytes; /* 0: nothing is copied in this direction */
    size_t in_at, out_at;       /* equal: the sum overwrites the input */
};

struct staged_chunk {
    size_t n;
    size_t in_size;         /* bytes copied from the device, from the beginning of the slot */
    size_t out_at, out_end; /* the bytes copied back */
    struct staged_piece pieces[STAGED_PIECES];
};

struct staged_cut {
    const struct coll_op *op;
    const struct mesh *mesh;
    size_t tensor, element; /* the next piece begins here */
    bool ended;
};

/* Bytes that a slot needs for chunks of this operation. */
size_t staged_room(const struct mesh *mesh, const struct coll_op *op);

/* Number of slots that the operation can use: 1 if it is not cut, because such a chunk may be
 * large. */
size_t staged_places(const struct coll_op *op);

/* The next chunk; false: there are no more. Of an operation without elements there is one, without
 * pieces. */
bool staged_cut_next(struct staged_cut *cut, struct staged_chunk *ret);

#endif
