/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: the site's MPI as a back end; see mpi.h.
 */
#include "core/backend/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/env.h"

#define NAP_NS 100000

/* What a rank sends to the others after it has started MPI. */
struct facts {
    struct err err;
    bool flat;
};

int mpi_probe(char *ret_text, size_t size, struct err *err)
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

/* ---- asking the other ranks ------------------------------------------------------------------ */

/* Runs one operation from its start to its end. */
static int run(struct coll *coll, const struct coll_op *op, uint64_t deadline, struct err *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct err why = {0};
    int rc = coll_start(coll, op, &why);
    while (rc == 0 && (rc = coll_progress(coll)) == 1) {
        rc = mesh_progress(coll->mesh, NULL, &why);
        if (rc >= 0 && deadline_passed(deadline))
            rc = err_set(&why, ETIMEDOUT, "timed out asking the other ranks");
        if (rc >= 0)
            rc = 0;
        nanosleep(&nap, NULL);
    }
    if (rc == -ECONNRESET && !why.code)
        mesh_why(coll->mesh, NULL, &why);
    if (rc < 0 && !why.code)
        err_sys(&why, -rc, "asking the other ranks");
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* Gathers bytes of every rank in the order of ranks, through hvd's own memory and links. */
static int gather(struct coll *coll, const void *mine, void *ret_all, size_t bytes,
                  uint64_t deadline, struct err *err)
{
    size_t size = (size_t)coll->mesh->size;
    auto_free size_t *counts = calloc(size, sizeof(*counts));
    if (!counts)
        return err_set(err, ENOMEM, "no memory to ask %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        counts[r] = bytes;
    struct coll_tensor t = {.in = mine, .out = ret_all, .count = bytes};
    struct coll_op op = coll_barrier;
    op.kind = HVD_ALLGATHER;
    op.dtype = HVD_UINT8;
    op.tensors = &t;
    op.n = 1;
    op.recv_counts = counts;
    return run(coll, &op, deadline, err);
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
    rc = gather(coll, &mine, all, sizeof(mine), deadline, err);
    for (int r = 0; r < coll->mesh->size && rc == 0; r++)
        if (all[r].err.code < 0)
            rc = err_set(err, -all[r].err.code, "rank %d: %.1000s", r, all[r].err.msg);
    mpi->flat = all[0].flat;
    return rc;
}

void mpi_close(struct mpi *mpi, bool lost)
{
    if (!mpi)
        return;
    const mpi_comm comms[] = {mpi->lane, mpi->world};
    mpi_process_close(comms, 2, lost);
    free(mpi);
}

int mpi_open(struct coll *coll, uint64_t deadline, struct mpi **ret, struct err *err)
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
    *ret = mpi;
    return 0;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* On one host shared memory is faster. */
const struct algorithm *const *mpi_algorithms(const struct mpi *mpi, const struct mesh *mesh)
{
    static const struct algorithm *const all[] = {&mpi_allreduce_algorithm, &mpi_moves_algorithm,
                                                  NULL};
    return mpi->flat || mesh->hosts > 1 ? all : all + 2;
}

void mpi_describe(const struct mpi *mpi, char *dst, size_t size)
{
    snprintf(dst, size, "%s (%s), MPI_THREAD_%s, between hosts%s", mpi->library.version,
             mpi->library.file, mpi->here.multiple ? "MULTIPLE" : "SERIALIZED",
             mpi->flat ? ", and on one host" : ", shared memory inside them");
}
