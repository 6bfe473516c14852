/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: what the parts of the MPI back end share: its communicators, and the two algorithms it
 * brings. Private to core/backend; under the progress lock.
 *
 * hvd's shared memory is used inside hosts and MPI between them; with HVD_MPI_FLAT=1 MPI is used
 * for everything. In an allreduce the slice owners of a lane sum through MPI, as in
 * coll/hier_allreduce; other kinds use MPI between all ranks. Barriers, and operations without
 * elements, use hvd's own links: such a barrier precedes every operation of MPI, because MPI cannot
 * cancel one.
 */
#ifndef HVD_BACKEND_MPI_H
#define HVD_BACKEND_MPI_H

#include <stdbool.h>

#include "core/backend/mpi_process.h"
#include "core/coll/algorithm.h"

/* coll->backend of its algorithms. */
struct mpi {
    struct mpi_found found;
    struct mpi_here here;
    bool flat;
    enum coll_wait wait; /* how to wait for an operation of MPI */
    void *world;         /* communicator of all ranks, in rank order */
    void *lane; /* communicator of the ranks with this local rank, in host order; NULL: there is one
                   host, or flat */
};

extern const struct algorithm mpi_allreduce_algorithm, mpi_moves_algorithm;

#endif
