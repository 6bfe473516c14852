/* SPDX-License-Identifier: Apache-2.0
 *
 * times: measured times of a benchmark, in nanoseconds.
 */
#ifndef HVD_TESTS_HARNESS_TIMES_H
#define HVD_TESTS_HARNESS_TIMES_H

#include <stdint.h>
#include <stdlib.h>

static inline int times_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts n times, the smallest first: times[n / 2] is the median. */
static inline void times_sort(uint64_t *times, size_t n)
{
    qsort(times, n, sizeof(*times), times_compare);
}

#endif
