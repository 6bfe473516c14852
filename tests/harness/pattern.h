/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern: test data of every dtype with exact sums, so that one missing or doubled contribution
 * shows; and those sums. Independent of the arithmetic under test.
 */
#ifndef HVD_TESTS_HARNESS_PATTERN_H
#define HVD_TESTS_HARNESS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

/* Element i of rank's input to operation number salt, small enough for every type and 8 ranks. */
int64_t pattern_value(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t i,
                      unsigned salt);

/* The reduction by op of element i over all ranks. */
int64_t pattern_result(enum hvd_dtype dtype, enum hvd_op op, int size, size_t i, unsigned salt);

/* Writes an integer as element i of dst. */
void pattern_store(enum hvd_dtype dtype, void *dst, size_t i, int64_t value);

void pattern_fill(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t first,
                  size_t count, unsigned salt, void *dst);

/* Index of the first wrong element of count; count when all are right. */
size_t pattern_check(enum hvd_dtype dtype, enum hvd_op op, int size, size_t first, size_t count,
                     unsigned salt, const void *got);

#endif
