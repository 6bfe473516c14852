/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_mpi_messages: what bench_messages measures, with MPI, for comparison. Built if there is an
 * mpicc. Output as of bench_messages.
 *
 *     mpirun -np 2 bench_mpi_messages [-t MILLISECONDS a size] BYTES...
 */
#include <mpi.h>

#include "tests/bench/bench_messages.h"

static int ping(const struct bench *b, size_t bytes)
{
    int n = (int)bytes;
    if (b->rank == 0) {
        MPI_Send(b->data, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(b->data, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(b->data, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(b->data, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return 0; /* else MPI has ended the program */
}

static int stream(const struct bench *b, size_t bytes)
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
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (b->rank == 0)
        MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    return 0;
}

static int agree(int64_t *calls)
{
    MPI_Allreduce(MPI_IN_PLACE, calls, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.ping = ping, .stream = stream, .agree = agree};
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rc = size != 2 || bench_messages(&b, argc, argv);
    MPI_Finalize();
    return rc;
}
