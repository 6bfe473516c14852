/* SPDX-License-Identifier: Apache-2.0
 *
 * signature: what a rank asks for under a tensor's name (struct signature of negotiate.h):
 * compared, written, read and put into words. Pure functions.
 *
 * The common part is what all ranks must agree on: everything but dimension 0 of an allgather or an
 * alltoall. Those are collected rank by rank.
 */
#ifndef HVD_NEGOTIATE_SIGNATURE_H
#define HVD_NEGOTIATE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/negotiate/negotiate.h"

/* Are both the same, padding and unused dimensions aside? */
bool signature_equal(const struct signature *a, const struct signature *b);

/* *sig with everything zeroed that is this rank's own. */
struct signature signature_common(const struct signature *sig);

/* Members of a group wait for each other; this one does not any more. */
static inline void signature_ungroup(struct signature *sig)
{
    sig->group_size = sig->group_index = 0;
    sig->group_hash = 0;
}

/* Does dimension 0 belong to each rank? */
static inline bool signature_has_dim0(const struct signature *sig)
{
    return (sig->kind == HVD_ALLGATHER || sig->kind == HVD_ALLTOALL) && sig->ndim > 0;
}

/* -EINVAL for values no request can have. A root may be beyond the ranks that negotiate: it is a
 * rank of the world that the user sees, which in an elastic job is larger until its next boundary.
 * engine/request has checked it. */
int signature_check(const struct signature *sig, struct err *err);

/* Payload bytes of the input; saturates. */
uint64_t signature_bytes(const struct signature *sig);

/* May both be in one batch? Only allreduces are fused. */
bool signature_fusable(const struct signature *a, const struct signature *b);

void signature_write(const struct signature *sig, struct buf *b);

/* Nonsense fails the reader. */
void signature_read(struct signature *sig, struct reader *r);

/* "float32 [10,4] sum", cut to fit. Dimension 0 that belongs to each rank is "*". */
void signature_text(const struct signature *sig, char *text, size_t size);

#endif
