/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_cut: the owners' vectors on a host: which elements of the tensors each owner has, in which
 * order. Pure; private to core/coll/shm_*.
 *
 * By shape: owner o has piece first + o * stride of every tensor (layout.h). Flat: the concatenated
 * tensors are one long vector, and owner o has its o-th part of equal size. Parts begin at
 * multiples of a cache line, so the last ones may be shorter or empty. In parts: the same, but the
 * caller gives the beginning of each part.
 */
#ifndef HVD_COLL_SHM_CUT_H
#define HVD_COLL_SHM_CUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/coll/layout.h"

struct shm_cut {
    const struct layout *layout;
    int owners;
    size_t first, stride; /* by shape */
    bool flat;
    size_t total, part;   /* flat, in parts: elements of all owners; of the longest part */
    const size_t *begins; /* in parts: [owners + 1] */
};

/* An iterator over one owner's vector, from its beginning. */
struct shm_walk {
    struct layout_walk at;
    size_t left; /* flat: elements of the vector that are still to come */
};

void shm_cut_shape(struct shm_cut *cut, const struct layout *layout, size_t first, size_t stride,
                   int owners);
void shm_cut_flat(struct shm_cut *cut, const struct layout *layout, int owners);

/* begins: [owners + 1] in elements, ascending from 0 to the total; must stay valid while cut is
 * used. */
void shm_cut_parts(struct shm_cut *cut, const struct layout *layout, int owners,
                   const size_t *begins);

/* Elements of the longest vector. */
size_t shm_cut_longest(const struct shm_cut *cut);

/* Creates an iterator for each owner, at the beginning of its vector. */
void shm_cut_walks(const struct shm_cut *cut, struct shm_walk *ret_walks);

/* The next run of at most max elements, false at the end of the vector. */
bool shm_cut_next(const struct shm_cut *cut, struct shm_walk *walk, size_t max,
                  struct layout_run *ret_run);

#endif
