/* SPDX-License-Identifier: Apache-2.0
 *
 * layout: how the tensors of one operation are cut into pieces and lie one after the other. Pure.
 *
 * Each tensor is cut into the same number of pieces, as even as its own count allows, the longer
 * ones first. The packed form is piece-major: piece 0 of every tensor, then piece 1 of every
 * tensor, and so on. So the piece an element is in, and with it the order in which the element is
 * summed, depends on its place in its own tensor only, never on what it was fused with.
 */
#ifndef HVD_COLL_LAYOUT_H
#define HVD_COLL_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/coll/coll.h"

struct layout {
    const struct coll_tensor *tensors;
    size_t n;
    size_t elem; /* bytes of an element */
    size_t pieces;
};

/* The first element of piece k of a tensor of count elements; k == pieces: its end. */
static inline size_t layout_begin(size_t count, size_t pieces, size_t k)
{
    size_t longer = count % pieces;
    return k * (count / pieces) + (k < longer ? k : longer);
}

/* Bytes of piece k of all tensors. */
size_t layout_piece_bytes(const struct layout *l, size_t k);

/* A walk along one piece, from its begin on. Walks go forward only. */
struct layout_walk {
    size_t piece;
    size_t tensor;
    size_t done; /* elements of the tensor's piece that lie behind */
};

/* Elements of one tensor that are neighbours in the packed form too. */
struct layout_run {
    const uint8_t *in;
    uint8_t *out;
    size_t count;
};

static inline struct layout_walk layout_walk(size_t piece)
{
    return (struct layout_walk){.piece = piece};
}

/* The next run of at most max elements; false at the end of the piece. */
bool layout_next(const struct layout *l, struct layout_walk *w, size_t max,
                 struct layout_run *ret_run);

#endif
