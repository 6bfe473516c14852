/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: the frozen piece of log that repeats, and how far this rank has walked round it.
 *
 * Batch `at` is the next to be handed out; it is when none of its tensors is missing. A tensor may
 * stand in several batches; a submission counts for the first one from `at` on. Called by
 * negotiate.
 */
#ifndef HVD_NEGOTIATE_PLAN_H
#define HVD_NEGOTIATE_PLAN_H

#include "core/negotiate/tensor.h"

struct plan {
    struct tensor **tensors;
    uint32_t *ends; /* of each batch, in tensors */
    uint32_t nbatches, at;
    uint32_t missing; /* tensors of batch `at` that are not submitted */
    uint64_t wants;   /* counts plan_want() over all plans */
    uint64_t walked;  /* batches handed out since the plan began */
};

void plan_fini(struct plan *p);

/* Reads what plan_write() wrote; the tensors learn that they are in the plan of `generation`. The
 * old plan stays when it fails: -ENOMEM, or -EPROTO for nonsense. */
int plan_read(struct plan *p, const struct tensors *table, uint64_t generation, struct reader *r);

/* Starts counting what batch `at` misses. */
void plan_want(struct plan *p);

/* e was submitted as the plan knows it; true: batch `at` is complete. */
bool plan_submitted(struct plan *p, const struct tensor *e);

/* The tensors of batch `at`. */
struct tensor **plan_batch(const struct plan *p, uint32_t *ret_n);

/* Batch `at` was handed out. */
void plan_advance(struct plan *p);

#endif
