/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_slow_free: for LD_PRELOAD: MPI_Comm_free first sleeps, as if another rank came late, and then
 * calls the real one.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

int MPI_Comm_free(void *comm);

int MPI_Comm_free(void *comm)
{
    void *mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
    void *at = mpi ? dlsym(mpi, "MPI_Comm_free") : NULL;
    int (*real)(void *) = (int (*)(void *))at;
    nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    return real ? real(comm) : 1;
}
