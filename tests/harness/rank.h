/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: what the code of a rank (harness/world.h) shares: how it says what went wrong, the request
 * that most of them make, a nap, and numbers that are random but the same in every run. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_RANK_H
#define HVD_TESTS_HARNESS_RANK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hvd.h>

/* Prints what failed; as a rank's exit code it tells the line. */
#define FAIL(...)                                                                                  \
    (printf("rank %s: ", getenv("HVD_RANK")), printf(__VA_ARGS__), puts(""), __LINE__ % 200 + 1)

static inline void nap_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* The sum of a vector of floats, in place. *count and name are the caller's. */
static inline struct hvd_request rank_request(const char *name, float *data, const int64_t *count)
{
    return (struct hvd_request){.kind = HVD_ALLREDUCE,
                                .name = name,
                                .input = data,
                                .output = data,
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = count,
                                .op = HVD_SUM,
                                .device = -1};
}

static inline uint64_t rank_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

#endif
