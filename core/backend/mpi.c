/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: the site's MPI as a back end; see mpi.h.
 */
#include "core/backend/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/backend.h"
#include "core/backend/mpi_level.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/transport/shm.h"

/* What a rank sends to the others after it has started MPI. */
struct facts {
    int32_t rc, rank, size;
    int32_t flat, direct;
    char why[492];
};

static int mpi_probe(char *ret_text, size_t size, struct err *err)
{
    struct mpi_found found;
    enum mpi_level level;
    int rc = mpi_load(&found, err);
    if (rc < 0)
        return rc;
    if (found.plugin->state(&level) == MPI_STATE_OVER)
        return err_set(err, ESHUTDOWN,
                       "this program has called MPI_Finalize: MPI cannot be started again. Call "
                       "hvd_init() before it");
    snprintf(ret_text, size, "%s", found.version);
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void start_mpi(struct mpi *mpi, struct mesh *mesh, uint64_t deadline, struct facts *ret)
{
    struct err err = {0};
    int rc = env_bool("MPI_FLAT", false, &mpi->flat, &err);
    if (rc == 0)
        rc = mpi_load(&mpi->found, &err);
    if (rc == 0)
        rc = mpi_process_enter(&mpi->found, mesh, deadline, &mpi->here, &err);
    *ret = (struct facts){.rc = rc,
                          .rank = mpi->here.rank,
                          .size = mpi->here.size,
                          .flat = mpi->flat,
                          .direct = mpi->here.direct};
    if (rc < 0)
        snprintf(ret->why, sizeof(ret->why), "%.*s", (int)sizeof(ret->why) - 1, err.msg);
}

static int check_fact(const struct mesh *mesh, const struct facts *all, int r, struct err *err)
{
    const struct facts *f = &all[r];
    if (f->rc < 0)
        return err_set(err, -f->rc, "rank %d: %.*s", r, (int)sizeof(f->why), f->why);
    if (f->size == 1 && mesh->size > 1)
        return err_set(err, EINVAL,
                       "MPI sees rank %d of %d alone: the job was not started by this MPI's own "
                       "launcher. Start it with mpirun -np %d, or srun --mpi=pmix",
                       r, mesh->size, mesh->size);
    if (f->size != mesh->size || f->rank != r)
        return err_set(err, EINVAL,
                       "rank %d of %d is rank %d of %d in MPI: they must agree. With mpirun set "
                       "none of HVD_RANK, HVD_SIZE, RANK, WORLD_SIZE",
                       r, mesh->size, f->rank, f->size);
    if (f->flat != all[0].flat)
        return err_set(err, EINVAL, "HVD_MPI_FLAT is %d on rank 0 and %d on rank %d", all[0].flat,
                       f->flat, r);
    return 0;
}

/* MPI makes progress only in calls. If the MPI thread makes them, it wakes the waiting thread at
 * the end; spinning meanwhile would take the MPI thread's processor, unless each of the two has
 * one. */
static enum coll_wait wait_for(const struct mpi *mpi, const struct mesh *mesh)
{
    const struct shm *shm = mesh->shm;
    return mpi->here.direct || (shm && shm->usable_cpus >= 2 * shm->seats) ? COLL_MOVES
                                                                           : COLL_YIELDS;
}

static int make_comms(struct mpi *mpi, struct mesh *mesh, uint64_t deadline, struct err *err)
{
    int rc = mpi_process_comm(&mpi->here, 0, mesh->rank, mesh, deadline, &mpi->world, err);
    if (rc == 0 && mesh->hosts > 1 && !mpi->flat)
        rc = mpi_process_comm(&mpi->here, mesh->local_rank, mesh->host, mesh, deadline, &mpi->lane,
                              err);
    return rc;
}

static void mpi_close(void *state, bool lost)
{
    struct mpi *mpi = state;
    mpi_process_close(&mpi->here, mpi->lane, lost);
    mpi_process_close(&mpi->here, mpi->world, lost);
    if (!mpi_process_abandoned()) /* otherwise its thread may still be in a step */
        free(mpi);
}

static int mpi_open(struct coll *coll, uint64_t deadline, void **ret_state, struct err *err)
{
    struct mesh *mesh = coll->mesh;
    struct mpi *mpi = calloc(1, sizeof(*mpi));
    auto_free struct facts *all = calloc((size_t)mesh->size, sizeof(*all));
    struct facts mine;
    int rc = mpi && all ? 0 : err_set(err, ENOMEM, "no memory for %d ranks", mesh->size);
    if (rc == 0) {
        start_mpi(mpi, mesh, deadline, &mine);
        rc = backend_allgather(coll, &mine, all, sizeof(mine), deadline, err);
    }
    for (int r = 0; r < mesh->size && rc == 0; r++)
        rc = check_fact(mesh, all, r, err);
    if (rc == 0) {
        mpi->wait = wait_for(mpi, mesh);
        rc = make_comms(mpi, mesh, deadline, err);
    }
    if (rc < 0) {
        if (mpi)
            mpi_close(mpi, true);
        return rc;
    }
    *ret_state = mpi;
    return 0;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* No algorithms on one host, where shared memory is used, unless HVD_MPI_FLAT is set. */
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
    snprintf(dst, size, "%s (%s), MPI_THREAD_%s, %s", mpi->found.version, mpi->found.file,
             mpi_level_name(mpi->here.level),
             mpi->flat ? "for everything" : "between hosts, shared memory inside them");
}

/* Only if any thread may call: with MPI_THREAD_FUNNELED hvd's own thread makes all calls. */
static bool mpi_threads(const void *state)
{
    return ((const struct mpi *)state)->here.level == MPI_LEVEL_MULTIPLE;
}

const struct backend_ops mpi_backend = {
    .name = "mpi",
    .never_elastic = "MPI can neither lose a rank nor take one in. Without HVD_BACKEND hvd's own "
                     "links do both",
    .built = mpi_built,
    .probe = mpi_probe,
    .open = mpi_open,
    .algorithms = mpi_algorithms,
    .describe = mpi_describe,
    .threads = mpi_threads,
    .close = mpi_close,
};
