/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: the site's MPI as a back end; see mpi.h.
 */
#include "core/backend/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/backend.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"

/* What a rank sends to the others after it has started MPI. */
struct facts {
    struct err err;
    bool flat;
};

static int mpi_probe(char *ret_text, size_t size, struct err *err)
{
    struct mpi_library library;
    int rc = mpi_library_load(&library, err);
    if (rc < 0)
        return rc;
    if (library.plugin->over())
        return err_set(err, ESHUTDOWN,
                       "this program has called MPI_Finalize: MPI cannot be started again. Call "
                       "hvd_init() before it");
    snprintf(ret_text, size, "%s", library.version);
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int check(const struct mpi_setup *here, const struct mesh *mesh, struct err *err)
{
    if (here->size == 1 && mesh->size > 1)
        return err_set(err, EINVAL,
                       "MPI sees rank %d of %d alone: the job was not started by this MPI's own "
                       "launcher. Start it with mpirun -np %d, or srun --mpi=pmix",
                       mesh->rank, mesh->size, mesh->size);
    if (here->size != mesh->size || here->rank != mesh->rank)
        return err_set(err, EINVAL,
                       "rank %d of %d is rank %d of %d in MPI: they must agree. With mpirun set "
                       "none of HVD_RANK, HVD_SIZE, RANK, WORLD_SIZE",
                       mesh->rank, mesh->size, here->rank, here->size);
    return 0;
}

/* Starts MPI on all ranks; err is that of the first rank on which that failed. */
static int start(struct mpi *mpi, struct coll *coll, uint64_t deadline, struct err *err)
{
    struct facts mine = {.flat = false};
    int rc = env_bool("MPI_FLAT", false, &mine.flat, &mine.err);
    if (rc == 0)
        rc = mpi_library_load(&mpi->library, &mine.err);
    if (rc == 0)
        rc = mpi_process_enter(mpi->library.plugin, coll->mesh, deadline, &mpi->here, &mine.err);
    if (rc == 0)
        check(&mpi->here, coll->mesh, &mine.err);
    auto_free struct facts *all = calloc((size_t)coll->mesh->size, sizeof(*all));
    if (!all)
        return err_set(err, ENOMEM, "no memory for %d ranks", coll->mesh->size);
    rc = backend_allgather(coll, &mine, all, sizeof(mine), deadline, err);
    for (int r = 0; r < coll->mesh->size && rc == 0; r++)
        if (all[r].err.code < 0)
            rc = err_set(err, -all[r].err.code, "rank %d: %.1000s", r, all[r].err.msg);
    mpi->flat = all[0].flat;
    return rc;
}

static void mpi_close(void *state, bool lost)
{
    struct mpi *mpi = state;
    const mpi_comm comms[] = {mpi->lane, mpi->world};
    mpi_process_close(comms, 2, lost);
    free(mpi);
}

static int mpi_open(struct coll *coll, uint64_t deadline, void **ret_state, struct err *err)
{
    struct mesh *mesh = coll->mesh;
    struct mpi *mpi = calloc(1, sizeof(*mpi));
    if (!mpi)
        return err_set(err, ENOMEM, "no memory for MPI");
    int rc = start(mpi, coll, deadline, err);
    if (rc == 0)
        rc = mpi_process_split(0, mesh->rank, mesh, deadline, &mpi->world, err);
    if (rc == 0)
        rc = mpi_process_split(mesh->local_rank, mesh->host, mesh, deadline, &mpi->lane, err);
    if (rc < 0) {
        mpi_process_close(NULL, 0, true);
        free(mpi);
        return rc;
    }
    *ret_state = mpi;
    return 0;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* On one host shared memory is faster. */
static const struct algorithm *const *mpi_algorithms(const void *state, const struct mesh *mesh)
{
    static const struct algorithm *const all[] = {&mpi_allreduce_algorithm, &mpi_moves_algorithm,
                                                  NULL};
    const struct mpi *mpi = state;
    return mpi->flat || mesh->hosts > 1 ? all : all + 2;
}

static void mpi_describe(const void *state, char *dst, size_t size)
{
    const struct mpi *mpi = state;
    snprintf(dst, size, "%s (%s), MPI_THREAD_%s, between hosts%s", mpi->library.version,
             mpi->library.file, mpi->here.multiple ? "MULTIPLE" : "SERIALIZED",
             mpi->flat ? ", and on one host" : ", shared memory inside them");
}

static bool mpi_threads(const void *state)
{
    return ((const struct mpi *)state)->here.multiple;
}

const struct backend_ops mpi_backend = {
    .name = "mpi",
    .never_elastic = "MPI can neither lose a rank nor take one in. Without HVD_BACKEND hvd's own "
                     "links do both",
    .built = mpi_library_built,
    .probe = mpi_probe,
    .open = mpi_open,
    .algorithms = mpi_algorithms,
    .describe = mpi_describe,
    .threads = mpi_threads,
    .close = mpi_close,
};
