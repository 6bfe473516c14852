/* SPDX-License-Identifier: Apache-2.0
 *
 * codes: numbers from whose sum the contributors can be read, element by element. The workers of
 * the chaos run fill their tensors with them and check every element of the results. Pure.
 *
 * A rank puts weight << (bits * rank) into an element: each rank has a digit of its own. The weight
 * (1 to 3 where the type has room) depends on the salt and the index, so that an element of another
 * operation or of another index is detected. With two bits and more a contribution that was added
 * twice is detected too. Every sum is exact in its type.
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

/* A set of ranks (bit r: rank r) that some elements name, and the divisor of an average. */
struct codes_set {
    uint32_t mask;
    int divisor; /* 1 if the operation is no average */
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

/* True for operations that codes_fill() supports: sum, average (float32, float64), min, max. */
bool codes_can(enum hvd_dtype dtype, enum hvd_op op);

void codes_fill(void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int rank,
                uint64_t salt);

/* Checks a result. The verdict on a minimum or maximum has no sets, because they cannot be read
 * from it. */
void codes_verify(const void *data, enum hvd_dtype dtype, enum hvd_op op, int64_t count, int size,
                  uint64_t salt, struct codes_verdict *ret);

/* An allgather: rank r contributes codes_rows(r, salt) rows of width int64. */
int64_t codes_rows(int rank, uint64_t salt);
void codes_fill_rows(void *data, int64_t width, int rank, uint64_t salt);

/* rows: how many arrived. Ranks whose rows are missing are not in the set. */
void codes_verify_rows(const int64_t *data, int64_t rows, int64_t width, int size, uint64_t salt,
                       struct codes_verdict *ret);

#endif
