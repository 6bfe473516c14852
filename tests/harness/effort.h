/* SPDX-License-Identifier: Apache-2.0
 *
 * effort: how many rounds, seeds and sizes a test runs. A strict run (HVD_TEST_STRICT=1) takes all
 * of them, except in a build with a sanitizer: a sanitizer finds its faults in few rounds, and
 * makes a round 3 (ASan) to 15 times (TSan) as long.
 */
#ifndef HVD_TESTS_HARNESS_EFFORT_H
#define HVD_TESTS_HARNESS_EFFORT_H

#include <stdlib.h>
#include <string.h>

/* Tests choose sizes by these. EFFORT_WHOLE: a build without sanitizers. EFFORT_LEAST: one with
 * TSan. */
#if defined(__SANITIZE_THREAD__)
#define EFFORT_WHOLE 0
#define EFFORT_LEAST 1
#elif defined(__SANITIZE_ADDRESS__)
#define EFFORT_WHOLE 0
#define EFFORT_LEAST 0
#else
#define EFFORT_WHOLE 1
#define EFFORT_LEAST 0
#endif

/* The divisor of a test's number of rounds: 1 runs them all, 3 a third of them. */
static inline int effort_share(void)
{
    const char *strict = getenv("HVD_TEST_STRICT");
    if (EFFORT_LEAST)
        return 8;
    if (!EFFORT_WHOLE)
        return 4;
    return strict && strcmp(strict, "1") == 0 ? 1 : 3;
}

/* Every how many rows of a table of cases run. */
static inline size_t effort_rows(void)
{
    return EFFORT_LEAST ? 3 : effort_share() == 1 ? 1 : 2;
}

/* How many of n rounds are run, at least one. */
static inline int effort(int n)
{
    return (n + effort_share() - 1) / effort_share();
}

#endif
