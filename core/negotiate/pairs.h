/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs: a hash table from two 64-bit numbers to an index into an array of the caller. Called by
 * order. Not thread-safe.
 */
#ifndef HVD_NEGOTIATE_PAIRS_H
#define HVD_NEGOTIATE_PAIRS_H

#include <stdint.h>

#define PAIRS_NONE UINT32_MAX

struct pairs_slot {
    uint64_t a, b;
    uint32_t value; /* PAIRS_NONE: the slot is empty */
};

/* All zero: an empty table. */
struct pairs {
    struct pairs_slot *slots; /* [cap], a power of two, at most half of them used */
    uint32_t n, cap;
};

void pairs_fini(struct pairs *p);

/* Empties the table and keeps its memory. */
void pairs_clear(struct pairs *p);

/* PAIRS_NONE: the table does not have the pair. */
uint32_t pairs_get(const struct pairs *p, uint64_t a, uint64_t b);

/* Adds the pair or changes its value, which is not PAIRS_NONE. -ENOMEM. */
int pairs_put(struct pairs *p, uint64_t a, uint64_t b, uint32_t value);

/* A pair that the table does not have is ignored. */
void pairs_remove(struct pairs *p, uint64_t a, uint64_t b);

#endif
