/* SPDX-License-Identifier: Apache-2.0
 *
 * claim: which ranks ask for what under one tensor's name; what negotiate collects on its way up
 * the tree when a cache id does not say it all.
 *
 * A list of claims has one claim for each different common signature (signature.h), and one more
 * for the ranks that gave the cache id. Owned by the tensor; called by negotiate, no locking.
 */
#ifndef HVD_NEGOTIATE_CLAIM_H
#define HVD_NEGOTIATE_CLAIM_H

#include "core/base/buf.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/rankset.h"

/* What only one rank says. */
struct extra {
    int rank;
    int64_t dim0;
    int64_t *splits; /* [size], alltoall only */
};

struct claim {
    struct claim *next;
    bool by_id; /* the same as last time, by the cache id */
    struct signature common;
    struct rankset ranks;
    struct extra *extras; /* one for each rank that has one, unless by_id */
    size_t nextras, cap;
};

void claims_free(struct claim **claims);

/* Forgets what was said by cache id. */
void claims_drop_ids(struct claim **claims);

/* ranks ask for `common` (by_id: by the cache id). -ENOMEM. The claim, for claim_set_extra(). */
int claims_add(struct claim **claims, bool by_id, const struct signature *common,
               const struct rankset *ranks, struct claim **ret);

/* Replaces what the rank said before. splits: [size] or NULL. -ENOMEM. */
int claim_set_extra(struct claim *c, int rank, int64_t dim0, const int64_t *splits);

/* Adds the claims of *src to *dst; *src is empty then. -ENOMEM: a part was moved. */
int claims_move(struct claim **dst, struct claim **src);

void claims_write(const struct claim *claims, struct buf *b);

/* Adds what is read to *claims; *ret_ranks becomes the union of the ranks. cached: what the cache
 * id stands for, NULL when it is not known. Nonsense (a rank twice, extras missing) fails the
 * reader; -ENOMEM is returned. */
int claims_read(struct claim **claims, int size, const struct signature *cached, struct reader *r,
                struct rankset *ret_ranks);

/* For people: those by id join those that ask for the same in full; sorted by the first rank. */
void claims_settle(struct claim **claims);

/* Do all ranks ask for the same? */
bool claims_agree(const struct claim *claims);

/* Were all of them submitted in the same world (signature.world)? */
bool claims_of_one_world(const struct claim *claims);

/* "allreduce 'grad': rank 0,2: float32 [10,4] sum; rank 1: ...", cut to fit. */
void claims_text(const struct claim *claims, const char *name, char *text, size_t size);

#endif
