/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: what the parts of the MPI back end share: its communicators, and the two algorithms it
 * brings. Private to core/backend; under the progress lock.
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

extern const struct algorithm mpi_allreduce_algorithm, mpi_moves_algorithm;

#endif
