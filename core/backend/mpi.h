/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: the site's MPI as a back end: its communicators, and the two algorithms it brings. Private
 * to core/backend; under the progress lock.
 *
 * hvd's shared memory is used inside hosts and MPI between them. MPI moves the data; hvd adds. In
 * an allreduce the slice owners of a lane exchange through MPI, as in coll/hier_allreduce; other
 * kinds use MPI between all ranks. Barriers and small sums use hvd's own links: such a barrier
 * precedes every operation of MPI, because MPI cannot cancel one.
 */
#ifndef HVD_BACKEND_MPI_H
#define HVD_BACKEND_MPI_H

#include "core/backend/mpi_library.h"
#include "core/backend/mpi_process.h"
#include "core/coll/algorithm.h"

/* coll->backend of its algorithms. */
struct mpi {
    struct mpi_library library;
    struct mpi_setup here;
    bool flat;      /* HVD_MPI_FLAT on rank 0: MPI is used on one host, too */
    mpi_comm world; /* of all ranks, in rank order */
    mpi_comm lane;  /* of the ranks with this local rank, in host order */
};

/* As a row of the table in backends.c. */
int mpi_probe(char *ret_text, size_t size, struct err *err);

/* Called once, in the first epoch, on a mesh that is up: every rank does the same. Communicates.
 * Blocks until the deadline at most. */
int mpi_open(struct coll *coll, uint64_t deadline, struct mpi **ret, struct err *err);

/* Called after the coll is destroyed. Bounded in time. lost: a rank was lost. NULL is allowed. */
void mpi_close(struct mpi *mpi, bool lost);

/* The algorithms for this mesh, as a list that ends with NULL. They get mpi as coll->backend. */
const struct algorithm *const *mpi_algorithms(const struct mpi *mpi, const struct mesh *mesh);

/* "Open MPI 4.1.4 (/usr/lib/libmpi.so.40), between hosts": for the log. */
void mpi_describe(const struct mpi *mpi, char *dst, size_t size);

extern const struct algorithm mpi_allreduce_algorithm, mpi_moves_algorithm;

#endif
