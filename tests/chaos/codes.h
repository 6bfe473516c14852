/* SPDX-License-Identifier: Apache-2.0
 *
 * codes: numbers from whose sum it can be read, element by element, who contributed. The workers of
 * the chaos run fill their tensors with them and look at every element of what comes back. Pure.
 *
 * A rank puts weight << (bits * rank) into an element: each rank has a digit of its own. The weight
 * (1 to 3 where the type has room) depends on the salt and the place, so that an element of another
 * operation, or of another place, does not pass for this one; with two bits and more a contribution
 * that was added twice shows as well. Every sum is exact in its type.
 */
#ifndef HVD_TESTS_CHAOS_CODES_H
#define HVD_TESTS_CHAOS_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

enum {
    CODES_MAX_RANKS = 8, /* the narrowest types hold no more */
    CODES_MAX_SETS = 16,
};

/* A set of ranks (bit r: rank r) that some elements name, and what an average was divided by. */
struct codes_set {
    uint32_t mask;
    int divisor; /* 1 for what is no average */
    int64_t count;
};

struct codes_verdict {
    uint64_t hash; /* of the result's bytes */
    int64_t bad;   /* elements that name no set of ranks */
    int64_t first_bad;
    double bad_value;
    int nsets;
    struct codes_set sets[CODES_MAX_SETS];
};

/* True for what codes_fill() can do: sum, average (float32, float64), min, max. */
bool codes_can(enum hvd_dtype dtype, enum hvd_op op);

void codes_fill(void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int rank,
                uint64_t salt);

/* Looks at a result. Of a minimum or maximum no set can be read: there is none in the verdict. */
void codes_verify(const void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int size,
                  uint64_t salt, struct codes_verdict *ret);

/* An allgather: rank r gives codes_rows(r, salt) rows of width int64. */
int64_t codes_rows(int rank, uint64_t salt);
void codes_fill_rows(void *data, int64_t width, int rank, uint64_t salt);

/* rows: how many came. Ranks whose rows are missing are not in the set. */
void codes_verify_rows(const int64_t *data, int64_t rows, int64_t width, int size, uint64_t salt,
                       struct codes_verdict *ret);

#endif
