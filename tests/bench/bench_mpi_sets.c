/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_mpi_sets: what bench_sets measures, with MPI, for comparison: sums in communicators of some
 * ranks, and MPI_Alltoallv. Built if there is an mpicc. Output as of bench_sets.
 *
 *     mpirun -np N bench_mpi_sets sums MEMBERS | pairs | exchange [-t MILLISECONDS a size] BYTES...
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 100000, WARM_UP = 30, ROW = 4, MOST = 64 };

struct bench {
    MPI_Comm comm;
    int rank, size;
    bool exchanges;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
    float *in, *out;
};

static void exchange(const struct bench *b, size_t bytes, int64_t step)
{
    int to[MOST], from[MOST], to_at[MOST + 1] = {0}, from_at[MOST + 1] = {0};
    int each = (int)(bytes / 4 / ROW / (size_t)b->size);
    for (int r = 0; r < b->size; r++) {
        to[r] = ROW * (each + ((r + step) % 2 ? 1 : each > 0 ? -1 : 0));
        from[r] = ROW * (each + ((b->rank + step) % 2 ? 1 : each > 0 ? -1 : 0));
        to_at[r + 1] = to_at[r] + to[r];
        from_at[r + 1] = from_at[r] + from[r];
    }
    MPI_Alltoallv(b->in, to, to_at, MPI_FLOAT, b->out, from, from_at, MPI_FLOAT, b->comm);
}

static void call(const struct bench *b, size_t bytes, int64_t step)
{
    if (b->exchanges)
        exchange(b, bytes, step);
    else
        MPI_Allreduce(MPI_IN_PLACE, b->in, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, b->comm);
}

static int64_t measure(struct bench *b, size_t bytes)
{
    uint64_t begin = clock_ns();
    for (int i = 0; i < WARM_UP; i++)
        call(b, bytes, i);
    int64_t calls = (int64_t)(b->budget_ns / ((clock_ns() - begin) / WARM_UP + 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    MPI_Allreduce(MPI_IN_PLACE, &calls, 1, MPI_INT64_T, MPI_MIN, b->comm);
    for (int64_t i = -WARM_UP; i < calls; i++) {
        uint64_t start = clock_ns();
        call(b, bytes, i + WARM_UP);
        if (i >= 0)
            b->times[i] = clock_ns() - start;
    }
    times_sort(b->times, (size_t)calls);
    return calls;
}

static void show(const struct bench *b, size_t bytes, int64_t calls, bool pairs, int world_rank)
{
    uint64_t p50 = b->times[calls / 2];
    double rate = (double)bytes / (double)p50 * 1e9 / 2;
    if (pairs)
        MPI_Allreduce(MPI_IN_PLACE, &rate, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank != 0)
        return;
    printf("%zu %lld %llu", bytes, (long long)calls, (unsigned long long)p50);
    if (pairs)
        printf(" %.3g", rate);
    puts("");
}

static void run(struct bench *b, char **sizes, bool pairs, int world_rank)
{
    for (; *sizes; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        size_t room = bytes + sizeof(float) * ROW * 2 * MOST;
        b->in = calloc(room, 1);
        b->out = calloc(room, 1);
        if (!b->in || !b->out)
            MPI_Abort(MPI_COMM_WORLD, 1);
        show(b, bytes, measure(b, bytes), pairs, world_rank);
        free(b->in);
        free(b->out);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 250 * CLOCK_MS};
    int rank, at = argc > 1 && strcmp(argv[1], "sums") == 0 ? 3 : 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool pairs = argc > 2 && strcmp(argv[1], "pairs") == 0;
    b.exchanges = argc > 2 && strcmp(argv[1], "exchange") == 0;
    if (at >= argc || (at == 2 && !pairs && !b.exchanges))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (at + 1 < argc && strcmp(argv[at], "-t") == 0) {
        b.budget_ns = strtoull(argv[at + 1], NULL, 10) * CLOCK_MS;
        at += 2;
    }
    b.times = calloc(MAX_CALLS, sizeof(*b.times));
    int color = pairs ? rank / 2 : b.exchanges || rank < atoi(argv[2]) ? 0 : MPI_UNDEFINED;
    MPI_Comm_split(MPI_COMM_WORLD, color, rank, &b.comm);
    if (b.comm != MPI_COMM_NULL && b.times) {
        MPI_Comm_rank(b.comm, &b.rank);
        MPI_Comm_size(b.comm, &b.size);
        run(&b, argv + at, pairs, rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(b.times);
    MPI_Finalize();
    return 0;
}
