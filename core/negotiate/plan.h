/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: the frozen part of the log that repeats, and this rank's position in it.
 *
 * Batch `at` is handed out next, as soon as all its tensors are submitted. A group may fill several
 * batches in a row: they are handed out together, as soon as all their tensors are submitted, so
 * that a thaw finds all members of a group in batches or none. A tensor may be in several batches;
 * a submission counts for the first one from `at` on. Called by negotiate.
 */
#ifndef HVD_NEGOTIATE_PLAN_H
#define HVD_NEGOTIATE_PLAN_H

#include "core/negotiate/tensor.h"

struct plan {
    struct tensor **tensors;
    uint32_t *ends; /* end of each batch, counted in tensors */
    bool *bound;    /* each batch, see negotiate.h */
    bool *joined;   /* each batch: its group continues in the next one */
    uint32_t nbatches, at;
    uint32_t missing; /* tensors of batch `at`, and of those joined to it, that are not submitted */
    uint64_t wants;   /* how often plan_want() was called, over all plans */
    uint64_t walked;  /* batches handed out since the plan began */
    /* Of these: 1 + the index of the last bound one, and of the last one that is done and not
     * bound. 0: there is none. */
    uint64_t bound_to, done_to;
};

void plan_fini(struct plan *p);

/* Reads a plan from a DOWN_PLAN message, and marks the tensors as part of the plan of `generation`.
 * On failure the old plan remains: -ENOMEM, or -EPROTO for malformed input. */
int plan_read(struct plan *p, const struct tensors *table, uint64_t generation, struct reader *r);

/* Follows the tensors of a plan in their order, and notes where a group is incomplete. The members
 * of a group are next to each other. Starts as zero. */
struct plan_group {
    uint64_t hash;
    uint32_t left; /* members that are still to come */
};

/* The next tensor. false: another group is incomplete. */
bool plan_group_step(struct plan_group *g, const struct signature *sig);

/* Starts counting the tensors that batch `at` lacks. */
void plan_want(struct plan *p);

/* e was submitted with the plan's signature. Returns true when batch `at` is complete. */
bool plan_submitted(struct plan *p, const struct tensor *e);

/* The tensors of batch `at`. */
struct tensor **plan_batch(const struct plan *p, uint32_t *ret_n, bool *ret_bound);

/* The tensors of batch `index`, counted from the beginning of the plan. */
struct tensor **plan_at(const struct plan *p, uint64_t index, uint32_t *ret_n, bool *ret_bound);

/* Moves on after batch `at` was handed out. */
void plan_advance(struct plan *p);

/* Batch `index`, counted from the beginning of the plan, is done. */
void plan_done(struct plan *p, uint64_t index, bool bound);

#endif
