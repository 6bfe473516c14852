/* SPDX-License-Identifier: Apache-2.0
 *
 * rankset: a set of ranks: a bitmap in memory, ranges in messages and texts. Used by negotiate for
 * the ranks that request something and for missing ranks. Plain data: the set's owner frees the
 * memory; no locking.
 */
#ifndef HVD_NEGOTIATE_RANKSET_H
#define HVD_NEGOTIATE_RANKSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

struct rankset {
    int size;       /* number of ranks of the world */
    uint64_t *bits; /* (size + 63) / 64 words */
};

/* Makes an empty set. 0 or -ENOMEM. */
int rankset_init(struct rankset *s, int size);
void rankset_fini(struct rankset *s);

static inline bool rankset_has(const struct rankset *s, int rank)
{
    return s->bits[rank >> 6] >> (rank & 63) & 1;
}

static inline void rankset_add(struct rankset *s, int rank)
{
    s->bits[rank >> 6] |= 1ULL << (rank & 63);
}

void rankset_clear(struct rankset *s);
void rankset_union(struct rankset *dst, const struct rankset *src);
void rankset_subtract(struct rankset *dst, const struct rankset *src);
bool rankset_equal(const struct rankset *a, const struct rankset *b);
/* Returns whether every member of a is in b. */
bool rankset_within(const struct rankset *a, const struct rankset *b);

bool rankset_overlap(const struct rankset *a, const struct rankset *b);
int rankset_count(const struct rankset *s);

/* The smallest member >= rank, -1 when there is none. */
int rankset_next(const struct rankset *s, int rank);

void rankset_write(const struct rankset *s, struct buf *b);

/* Reads into an initialized set. Ranks outside the world, and ranges that are not ascending,
 * fail the reader. */
void rankset_read(struct rankset *s, struct reader *r);

/* A rank's number in messages: that in the job. names: see negotiate_config. */
static inline int rank_name(const int *names, int rank)
{
    return names ? names[rank] : rank;
}

/* "0,2-5,9", the ranks' names in the order of the ranks, cut with "..." when it does not fit. */
void rankset_text(const struct rankset *s, const int *names, char *text, size_t size);

#endif
