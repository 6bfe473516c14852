/* SPDX-License-Identifier: Apache-2.0
 *
 * values: small whole numbers in every dtype, and the exact results of reducing them.
 *
 * Sums, products and averages of these are exact in every type (integers wrap), so that a missing,
 * doubled or misplaced contribution shows. Buffers may be unaligned. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_VALUES_H
#define HVD_TESTS_HARNESS_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

/* The rank's element i. salt makes two operations differ. */
int64_t values_input(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, size_t i, int salt);

/* The reduction of element i over all ranks. */
int64_t values_reduced(enum hvd_dtype dtype, enum hvd_op op, int size, size_t i, int salt);

void values_fill(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, void *buf, size_t count,
                 int salt);

/* Index of the first element that is not the rank's input; -1: none. buf begins with input `first`.
 */
long values_check_input(enum hvd_dtype dtype, enum hvd_op op, int rank, int size, const void *buf,
                        size_t first, size_t count, int salt);

/* Index in buf of the first element that is not the result; -1: none. buf begins with result
 * `first`. */
long values_check(enum hvd_dtype dtype, enum hvd_op op, int size, const void *buf, size_t first,
                  size_t count, int salt);

#endif
