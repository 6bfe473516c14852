/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_both: MPI_Allreduce and hvd_allreduce (HVD_BACKEND=mpi) of float32, in alternating calls,
 * in one process and on the same tensors. Rank 0 prints a line for each size: "bytes place calls
 * mpi_p50_ns hvd_p50_ns", place in or out. Built if there is an mpicc.
 *
 *     mpirun -np N bench_both [-t MILLISECONDS a size] BYTES...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_SAMPLES = 20000, WARM_UP = 20 };

struct bench {
    uint64_t budget_ns;
    float *in, *out;
    uint64_t *times[2]; /* of MPI, of hvd */
};

static uint64_t sum_mpi(const float *in, float *out, size_t count)
{
    uint64_t begin = clock_ns();
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    return clock_ns() - begin;
}

static uint64_t sum_hvd(const float *in, float *out, size_t count)
{
    char name[64];
    snprintf(name, sizeof(name), "bench.%zu.%d", count, in == out);
    uint64_t begin = clock_ns();
    if (hvd_allreduce(name, in, out, (int64_t)count, HVD_FLOAT32, HVD_SUM) < 0) {
        fprintf(stderr, "bench_both: %s\n", hvd_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return clock_ns() - begin;
}

static void run(struct bench *b, size_t bytes, int in_place)
{
    size_t count = bytes / sizeof(float);
    float *dst = in_place ? b->in : b->out;
    uint64_t one = 0;
    int rank;
    for (int i = 0; i < WARM_UP; i++)
        one = sum_mpi(b->in, dst, count) + sum_hvd(b->in, dst, count);
    int64_t samples = (int64_t)(b->budget_ns / one);
    MPI_Allreduce(MPI_IN_PLACE, &samples, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    samples = samples < 9 ? 9 : samples > MAX_SAMPLES ? MAX_SAMPLES : samples;
    for (int64_t i = 0; i < samples; i++) {
        b->times[0][i] = sum_mpi(b->in, dst, count);
        b->times[1][i] = sum_hvd(b->in, dst, count);
    }
    for (int k = 0; k < 2; k++)
        times_sort(b->times[k], (size_t)samples);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%zu %s %lld %llu %llu\n", bytes, in_place ? "in" : "out", (long long)samples,
               (unsigned long long)b->times[0][samples / 2],
               (unsigned long long)b->times[1][samples / 2]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 300 * CLOCK_MS};
    size_t largest = 0;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    for (int opt; (opt = getopt(argc, argv, "t:")) != -1;)
        b.budget_ns = strtoull(opt == 't' ? optarg : "300", NULL, 10) * CLOCK_MS;
    for (int i = optind; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        largest = bytes > largest ? bytes : largest;
    }
    auto_free float *in = b.in = malloc(largest + 64);
    auto_free float *out = b.out = malloc(largest + 64);
    auto_free uint64_t *mpi = b.times[0] = calloc(MAX_SAMPLES, sizeof(*mpi));
    auto_free uint64_t *hvd = b.times[1] = calloc(MAX_SAMPLES, sizeof(*hvd));
    if (!in || !out || !mpi || !hvd)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (hvd_init() < 0) {
        fprintf(stderr, "bench_both: %s\n", hvd_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(in, 0, largest);
    memset(out, 0, largest);
    for (int i = optind; i < argc; i++)
        for (int in_place = 1; in_place >= 0; in_place--)
            run(&b, strtoull(argv[i], NULL, 10), in_place);
    hvd_shutdown();
    MPI_Finalize();
    return 0;
}
