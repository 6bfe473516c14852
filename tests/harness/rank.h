/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: helpers for the code of a rank (harness/world.h): reporting errors, a common request,
 * sleeping, and reproducible random numbers. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_RANK_H
#define HVD_TESTS_HARNESS_RANK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hvd.h>

/* Prints the error. Its value is an exit code that encodes the line. */
#define FAIL(...)                                                                                  \
    (printf("rank %s: ", getenv("HVD_RANK")), printf(__VA_ARGS__), puts(""), __LINE__ % 200 + 1)

static inline void nap_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* A request for an in-place sum of floats. *count and name must outlive it. */
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

/* Submits and waits. 0 or -errno; the caller releases *ret. */
static inline int rank_wait(const struct hvd_request *request, hvd_handle *ret)
{
    int rc = hvd_submit(request, 1, ret);
    return rc < 0 ? rc : hvd_wait(*ret);
}

/* Allgathers `mine` of all ranks into ret_crew[hvd_size()], by rank; -1: lost. 0 or -errno. */
static inline int rank_crew(int64_t mine, int64_t *ret_crew)
{
    int64_t shape = 1;
    struct hvd_result result;
    hvd_handle h;
    struct hvd_request r = {.kind = HVD_ALLGATHER,
                            .name = "crew",
                            .input = &mine,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &shape,
                            .device = -1};
    int rc = rank_wait(&r, &h);
    if (rc < 0)
        return rc;
    hvd_result(h, &result);
    const int64_t *data = result.data;
    for (int i = 0, k = 0; i < hvd_size(); i++)
        ret_crew[i] = result.splits[i] ? data[k++] : -1;
    hvd_release(h);
    return 0;
}

static inline uint64_t rank_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* Fills order with the numbers 0 to n - 1 in a random order; state is that of rank_random(). */
static inline void rank_shuffle(int *order, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(rank_random(state) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

#endif
