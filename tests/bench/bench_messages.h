/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_messages: what bench_messages (hvd) and bench_mpi_messages (MPI) share: for each size the
 * latency of blocking messages there and back, and the rate of several in flight.
 */
#ifndef HVD_TESTS_BENCH_BENCH_MESSAGES_H
#define HVD_TESTS_BENCH_BENCH_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 100000, WINDOW = 16, LARGE = 4 << 20 };

struct bench {
    int rank;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
    char *data;
    bool one_by_one; /* -n: "bytes in calls ns 0" for each size: the time of one message of many */

    /* One message there and back; window_of() messages of rank 0, the last is answered. 0, or the
     * program says what has failed. */
    int (*ping)(const struct bench *b, size_t bytes);
    int (*stream)(const struct bench *b, size_t bytes);
    /* Sets *calls to the smallest of both ranks. */
    int (*agree)(int64_t *calls);
};

/* Of large messages few are in flight, and few warm up. */
static inline int window_of(size_t bytes)
{
    return bytes < LARGE ? WINDOW : 4;
}

/* The median time in ns; the number of calls in *ret_calls. 0: failed. */
static uint64_t measure(const struct bench *b, int (*call)(const struct bench *b, size_t bytes),
                        size_t bytes, int64_t *ret_calls)
{
    uint64_t begin = clock_ns();
    int rc = 0, warm_up = bytes < LARGE ? 50 : 3;
    for (int i = 0; i < warm_up && rc == 0; i++)
        rc = call(b, bytes);
    int64_t calls = (int64_t)(b->budget_ns / ((clock_ns() - begin) / (uint64_t)warm_up + 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    if (rc == 0)
        rc = b->agree(&calls);
    for (int64_t i = 0; i < calls && rc == 0; i++) {
        uint64_t start = clock_ns();
        rc = call(b, bytes);
        b->times[i] = clock_ns() - start;
    }
    if (rc != 0)
        return 0;
    times_sort(b->times, (size_t)calls);
    *ret_calls = calls;
    return b->times[calls / 2];
}

static int run_size(struct bench *b, size_t bytes)
{
    size_t all = bytes * (size_t)window_of(bytes);
    int64_t calls = 0;
    b->data = calloc(all + 1, 1);
    if (!b->data)
        return 1;
    memset(b->data, 1, all);
    uint64_t there_and_back = measure(b, b->ping, bytes, &calls);
    uint64_t whole = there_and_back ? measure(b, b->stream, bytes, &calls) : 0;
    free(b->data);
    if (!whole)
        return 1;
    if (b->rank == 0 && b->one_by_one)
        printf("%zu in %lld %llu 0\n", bytes, (long long)calls,
               (unsigned long long)whole / (unsigned)window_of(bytes));
    else if (b->rank == 0)
        printf("%zu %lld %llu %.4g\n", bytes, (long long)calls,
               (unsigned long long)there_and_back / 2, (double)all / (double)whole * 1e9);
    return 0;
}

/* The program's arguments: [-t MILLISECONDS a size] [-n] BYTES... Returns an exit code. */
static int bench_messages(struct bench *b, int argc, char **argv)
{
    int opt, rc;
    b->budget_ns = 200 * CLOCK_MS;
    while ((opt = getopt(argc, argv, "t:n")) == 't' || opt == 'n')
        if (opt == 't')
            b->budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
        else
            b->one_by_one = true;
    b->times = malloc(MAX_CALLS * sizeof(*b->times));
    rc = opt != -1 || !b->times;
    for (argv += optind; rc == 0 && *argv; argv++)
        rc = run_size(b, strtoull(*argv, NULL, 10));
    free(b->times);
    return rc;
}

#endif
