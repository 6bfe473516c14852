/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_own LEVEL [late]: a program that uses MPI itself beside hvd: initializes it for LEVEL
 * (single, multiple), sums with both, and finalizes both. late: calls hvd_init() after
 * MPI_Finalize. Built if there is an mpicc.
 */
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include <hvd.h>

static int both(void)
{
    int rank, size, one = 1, all = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 20; i++) {
        float x = 1;
        if (hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0 || x != (float)size)
            return -1;
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (all != size)
            return -1;
    }
    return rank == hvd_rank() && size == hvd_size() ? 0 : -1;
}

int main(int argc, char **argv)
{
    bool multiple = argc > 1 && strcmp(argv[1], "multiple") == 0, late = argc > 2;
    struct hvd_backend b = {.size_of_struct = sizeof(b)};
    int provided, rc = 0;
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    if (late)
        MPI_Finalize();
    if (hvd_init() < 0) {
        fprintf(stderr, "mpi_own: %s\n", hvd_error());
        if (!late)
            MPI_Finalize();
        return 1;
    }
    rc = both();
    if (hvd_backend("mpi", &b) < 0 || !b.built || !b.open || !b.threads)
        rc = -1;
    hvd_shutdown();
    if (hvd_backend("mpi", &b) < 0 || b.open)
        rc = -1;
    MPI_Finalize();
    if (rc == 0)
        puts("both: ok");
    return rc < 0;
}
