/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_mpi: MPI_Allreduce of float32, for comparison. Rank 0 prints a line for each size: "bytes
 * place calls p50_ns p90_ns", place in or out. Built if there is an mpicc.
 *
 *     mpirun -np N bench_mpi [-t MILLISECONDS a size] BYTES...
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_SAMPLES = 20000, TRIALS = 5, WARM_UP_NS = 30000000, SAMPLE_NS = 20000 };

static void sum(const float *in, float *out, size_t count)
{
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

/* The same tensors for all sizes, because fresh memory is slow at first. */
struct bench {
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_SAMPLES] */
    float *in, *out; /* of the largest size */
};

static void repeat(const struct bench *b, float *dst, size_t count, int64_t calls)
{
    for (int64_t i = 0; i < calls; i++)
        sum(b->in, dst, count);
}

static void run(struct bench *b, size_t bytes, bool in_place)
{
    size_t count = bytes / sizeof(float);
    float *dst = in_place ? b->in : b->out;
    uint64_t begin = clock_ns(), *times = b->times;
    repeat(b, dst, count, TRIALS);
    int64_t one = (int64_t)((clock_ns() - begin) / TRIALS) + 1;
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    repeat(b, dst, count, WARM_UP_NS / one + 1);
    int64_t group = SAMPLE_NS / one + 1;
    int64_t samples = (int64_t)b->budget_ns / (one * group);
    samples = samples < 5 ? 5 : samples > MAX_SAMPLES ? MAX_SAMPLES : samples;
    for (int64_t i = 0; i < samples; i++) {
        uint64_t start = clock_ns();
        repeat(b, dst, count, group);
        times[i] = (clock_ns() - start) / (uint64_t)group;
    }
    times_sort(times, (size_t)samples);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("%zu %s %lld %llu %llu\n", bytes, in_place ? "in" : "out",
               (long long)samples * group, (unsigned long long)times[samples / 2],
               (unsigned long long)times[samples * 9 / 10]);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 300 * CLOCK_MS};
    size_t largest = 0;
    MPI_Init(&argc, &argv);
    for (int opt; (opt = getopt(argc, argv, "t:")) != -1;) {
        if (opt == 't')
            b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
        else
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = optind; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        largest = bytes > largest ? bytes : largest;
    }
    auto_free uint64_t *times = b.times = calloc(MAX_SAMPLES, sizeof(*times));
    auto_free float *in = b.in = malloc(largest + 64);
    auto_free float *out = b.out = malloc(largest + 64);
    if (!times || !in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(in, 0, largest);
    memset(out, 0, largest);
    for (int i = optind; i < argc; i++) {
        run(&b, strtoull(argv[i], NULL, 10), true);
        run(&b, strtoull(argv[i], NULL, 10), false);
    }
    MPI_Finalize();
    return 0;
}
