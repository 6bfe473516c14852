/* SPDX-License-Identifier: Apache-2.0
 *
 * layout: how the tensors of one operation are cut into pieces and lie one after the other. Pure.
 *
 * Each tensor is cut into the same number of pieces, as even as its own count allows, the longer
 * ones first. The packed form is piece-major: piece 0 of every tensor, then piece 1 of every
 * tensor, and so on. So an element's piece, and with it the order in which it is summed, depends
 * only on its position in its own tensor, never on fusion.
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

/* An iterator over one piece, from its beginning. It only moves forward. */
struct layout_walk {
    size_t piece;
    size_t tensor;
    size_t done; /* elements of this tensor's piece that layout_next() has returned already */
};

/* Consecutive elements of one tensor, which are consecutive in the packed form, too. */
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
