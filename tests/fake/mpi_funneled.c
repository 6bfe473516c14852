/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_funneled: for LD_PRELOAD: MPI_Init_thread calls the real one, which then grants only
 * MPI_THREAD_FUNNELED.
 */
#include <dlfcn.h>
#include <stddef.h>

#define FUNNELED 1

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided);

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    void *mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
    void *at = mpi ? dlsym(mpi, "MPI_Init_thread") : NULL;
    int (*real)(int *, char ***, int, int *) = (int (*)(int *, char ***, int, int *))at;
    return real ? real(argc, argv, FUNNELED, provided) : 1;
}
