/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_mpi_messages: what bench_messages measures, with MPI, for comparison. Built if there is an
 * mpicc. Output as of bench_messages.
 *
 *     mpirun -np 2 bench_mpi_messages [-t MILLISECONDS a size] BYTES...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 100000, WINDOW = 16, LARGE = 4 << 20 };

/* Of large messages few are in flight, and few warm up. */
static int window_of(size_t bytes)
{
    return bytes < LARGE ? WINDOW : 4;
}

static int warm_up_of(size_t bytes)
{
    return bytes < LARGE ? 50 : 3;
}

struct bench {
    int rank;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
    char *data;
};

static void ping(const struct bench *b, size_t bytes)
{
    int n = (int)bytes;
    if (b->rank == 0) {
        MPI_Send(b->data, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(b->data, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(b->data, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(b->data, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void stream(const struct bench *b, size_t bytes)
{
    MPI_Request requests[WINDOW];
    char done = 0;
    int window = window_of(bytes);
    for (int i = 0; i < window; i++) {
        void *at = b->data + (size_t)i * bytes;
        if (b->rank == 0)
            MPI_Isend(at, (int)bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(at, (int)bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (b->rank == 0)
        MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

typedef void call_f(const struct bench *b, size_t bytes);

static uint64_t measure(const struct bench *b, call_f *call, size_t bytes, int64_t *ret_calls)
{
    uint64_t begin = clock_ns();
    int warm_up = warm_up_of(bytes);
    for (int i = 0; i < warm_up; i++)
        call(b, bytes);
    int64_t calls = (int64_t)(b->budget_ns / ((clock_ns() - begin) / (uint64_t)warm_up + 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    MPI_Allreduce(MPI_IN_PLACE, &calls, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    for (int64_t i = 0; i < calls; i++) {
        uint64_t start = clock_ns();
        call(b, bytes);
        b->times[i] = clock_ns() - start;
    }
    times_sort(b->times, (size_t)calls);
    *ret_calls = calls;
    return b->times[calls / 2];
}

static int run(struct bench *b, char **sizes)
{
    for (; *sizes; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        int64_t calls;
        b->data = calloc(bytes * (size_t)window_of(bytes) + 1, 1);
        if (!b->data)
            return 1;
        memset(b->data, 1, bytes * (size_t)window_of(bytes));
        uint64_t there_and_back = measure(b, ping, bytes, &calls);
        uint64_t whole = measure(b, stream, bytes, &calls);
        if (b->rank == 0)
            printf("%zu %lld %llu %.4g\n", bytes, (long long)calls,
                   (unsigned long long)there_and_back / 2,
                   (double)bytes * window_of(bytes) / (double)whole * 1e9);
        free(b->data);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 200 * CLOCK_MS};
    int opt, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while ((opt = getopt(argc, argv, "t:")) == 't')
        b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
    b.times = malloc(MAX_CALLS * sizeof(*b.times));
    int rc = opt != -1 || !b.times || size != 2 ? 1 : run(&b, argv + optind);
    free(b.times);
    MPI_Finalize();
    return rc;
}
