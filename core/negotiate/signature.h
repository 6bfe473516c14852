/* SPDX-License-Identifier: Apache-2.0
 *
 * signature: compares, writes, reads and describes a rank's request (struct signature of
 * negotiate.h). Pure functions. The common part is what all ranks must agree on: everything except
 * dimension 0 of an allgather or alltoall, which is collected for each rank.
 */
#ifndef HVD_NEGOTIATE_SIGNATURE_H
#define HVD_NEGOTIATE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/negotiate/negotiate.h"

/* Returns whether both are equal, ignoring padding and unused dimensions. */
bool signature_equal(const struct signature *a, const struct signature *b);

/* A copy of *sig in which the fields that may differ between ranks are zero. */
struct signature signature_common(const struct signature *sig);

/* Removes the tensor from its group, so that it does not wait for the other members any more. */
static inline void signature_ungroup(struct signature *sig)
{
    sig->group_size = sig->group_index = 0;
    sig->group_hash = 0;
}

/* The kind that is run for a request of the kind `asked`: see signature.asked. */
enum hvd_kind signature_runs_as(enum hvd_kind asked);

/* The kind that the program has asked for. */
static inline enum hvd_kind signature_asked(const struct signature *sig)
{
    return (enum hvd_kind)(sig->asked ? sig->asked : sig->kind);
}

/* Whether the operation needs the root's data: it fails without the root. */
static inline bool signature_needs_root(const struct signature *sig)
{
    return sig->kind == HVD_BROADCAST || sig->asked == HVD_SCATTER;
}

/* Returns whether ranks may differ in dimension 0, which the log then tells to all. (In an alltoall
 * they may, too; but there it is 0 in the signature, and ranks tell each other how many rows they
 * send.) */
static inline bool signature_has_dim0(const struct signature *sig)
{
    return sig->kind == HVD_ALLGATHER && sig->ndim > 0;
}

/* -EINVAL for values that no request can have. root may exceed the number of ranks that
 * negotiate: it is a rank of the world that the user sees, which in an elastic job can be larger
 * until the next boundary. engine/request has checked it. */
int signature_check(const struct signature *sig, struct err *err);

/* Payload bytes of the input; saturates. */
uint64_t signature_bytes(const struct signature *sig);

/* Returns whether both may be in one batch. Only allreduces are fused. */
bool signature_fusable(const struct signature *a, const struct signature *b);

void signature_write(const struct signature *sig, struct buf *b);

/* Malformed input fails the reader. */
void signature_read(struct signature *sig, struct reader *r);

/* "float32 [10,4] sum", cut to fit. A dimension 0 in which ranks may differ is "*". */
void signature_text(const struct signature *sig, char *text, size_t size);

#endif
