/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: what the parts of the MPI back end share: its communicators, and the two algorithms it
 * brings. Private to core/backend; under the progress lock.
 *
 * Inside a host our shared memory is used and MPI between hosts; with HVD_MPI_FLAT=1 everything
 * goes through MPI. A rank of each host makes the sums of its lane there, as in
 * coll/hier_allreduce; what is not a sum goes from rank to rank. Barriers, and operations without
 * elements, are the host's: every operation of MPI has such a barrier before it, because MPI cannot
 * take one back.
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
                   host */
};

extern const struct algorithm mpi_allreduce_algorithm, mpi_moves_algorithm;

#endif
