/* SPDX-License-Identifier: Apache-2.0
 *
 * claim: which ranks request what under one tensor's name. Collected on the way up the tree when
 * not all requests equal the cached ones. A list of claims has one claim for each distinct common
 * signature (signature.h), and one for the ranks that announced by cache id. Owned by the tensor;
 * called by negotiate, no locking.
 */
#ifndef HVD_NEGOTIATE_CLAIM_H
#define HVD_NEGOTIATE_CLAIM_H

#include "core/base/buf.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/rankset.h"

/* The part of a request in which ranks may differ (allgather). */
struct extra {
    int rank;
    int64_t dim0;
};

struct claim {
    struct claim *next;
    bool by_id; /* these ranks announced by cache id: their cached requests hold */
    struct signature common;
    struct rankset ranks;
    struct extra *extras; /* one for each rank that has one, unless by_id */
    size_t nextras, cap;
};

void claims_free(struct claim **claims);

/* Removes the claims by cache id. */
void claims_drop_ids(struct claim **claims);

/* Adds the ranks to the claim with this signature (by_id: to the claim by cache id). *ret is
 * that claim, for claim_set_extra(). -ENOMEM. */
int claims_add(struct claim **claims, bool by_id, const struct signature *common,
               const struct rankset *ranks, struct claim **ret);

/* Sets or replaces a rank's own part. -ENOMEM. */
int claim_set_extra(struct claim *c, int rank, int64_t dim0);

/* Moves the claims of *src to *dst; *src is empty afterwards. -ENOMEM: only a part was moved. */
int claims_move(struct claim **dst, struct claim **src);

void claims_write(const struct claim *claims, struct buf *b);

/* Reads claims and adds them to *claims; *ret_ranks is the union of their ranks. cached: the
 * signature that the cache id stands for, NULL: unknown. Malformed input (a rank twice, extras
 * missing) fails the reader; -ENOMEM is returned. */
int claims_read(struct claim **claims, int size, const struct signature *cached, struct reader *r,
                struct rankset *ret_ranks);

/* For error texts: joins claims by cache id with equal claims in full, and sorts by the first
 * rank. */
void claims_settle(struct claim **claims);

/* Returns whether all ranks request the same. */
bool claims_agree(const struct claim *claims);

/* Returns whether all ranks submitted the tensor in the same world (signature.world). */
bool claims_of_one_world(const struct claim *claims);

/* "allreduce 'grad': rank 0,2: float32 [10,4] sum; rank 1: ...", cut to fit. names: see
 * negotiate_config. */
void claims_text(const struct claim *claims, const int *names, const char *name, char *text,
                 size_t size);

#endif
