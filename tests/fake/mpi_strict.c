/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_strict: for LD_PRELOAD: MPI_Ireduce_scatter refuses one address for input and output, as
 * MPICH does and Open MPI does not; otherwise it calls the real one.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef int (*scatter_f)(const void *, void *, const int *, void *, void *, void *, void *);

int MPI_Ireduce_scatter(const void *in, void *out, const int *counts, void *type, void *op,
                        void *comm, void *request);

int MPI_Ireduce_scatter(const void *in, void *out, const int *counts, void *type, void *op,
                        void *comm, void *request)
{
    void *mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
    scatter_f real = mpi ? (scatter_f)dlsym(mpi, "MPI_Ireduce_scatter") : NULL;
    if (real && in != out)
        return real(in, out, counts, type, op, comm, request);
    fprintf(stderr, "MPI_Ireduce_scatter: %s\n", real ? "buffers are aliased" : "no libmpi");
    return 1;
}
