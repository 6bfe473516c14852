/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: the operations of the chaos run's workers in a step: a function of seed and step alone, so
 * that every rank, also a joiner, does the same. Pure.
 *
 * Steps come in blocks. In every other block all steps are alike, so that the engine freezes its
 * schedule. In the others each step is different, partly with names that were never used before.
 */
#ifndef HVD_TESTS_CHAOS_PLAN_H
#define HVD_TESTS_CHAOS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

enum {
    PLAN_MAX_OPS = 40,
    PLAN_BLOCK = 24, /* steps of a block */
};

/* How the operations of a burst, which are neighbours in the plan, are submitted. */
enum plan_mode {
    PLAN_CALL,  /* one operation: hvd_allreduce(), hvd_broadcast() */
    PLAN_ASYNC, /* one hvd_submit() each, all in flight together */
    PLAN_GROUP, /* one hvd_submit() for all: they start together */
};

struct plan_op {
    enum hvd_kind kind; /* allreduce, allgather, broadcast, barrier */
    enum hvd_dtype dtype;
    enum hvd_op op;
    int64_t count; /* elements; of an allgather: of a row */
    bool in_place;
    int burst;
    enum plan_mode mode;
    int shift; /* bytes by which the buffers are misaligned */
    uint64_t salt;
    char name[64];
};

struct plan {
    uint64_t step;
    int nops, nbursts;
    struct plan_op ops[PLAN_MAX_OPS];
};

/* Computes the operations of a step. max_bytes: the most bytes of one tensor. */
void plan_step(struct plan *p, uint64_t seed, uint64_t step, int64_t max_bytes);

/* Every step consists of length operations like this one, all in flight together (1: a plain call).
 */
void plan_only(struct plan *p, const struct plan_op *like, int length, uint64_t seed,
               uint64_t step);

/* "KIND:DTYPE:in|out:COUNT:LENGTH" into an operation and a length. 0 or -EINVAL. */
int plan_parse_only(const char *text, struct plan_op *ret, int *ret_length);

/* Returns the next pseudo-random number, and advances *state. */
uint64_t plan_random(uint64_t *state);

#endif
