/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_sum: the sum of one vector over the ranks of a communicator, nonblocking.
 *
 * Large vectors use a ring of MPI messages, in blocks, and are summed by hvd's own code: MPI's
 * nonblocking allreduce neither cuts nor overlaps them (on one host it takes twice as long as the
 * blocking one, tests/bench/RESULTS.md). Sends need no memory, so many of them are started early:
 * on one host the receiver copies, and then never waits until the sender gets its processor. Small
 * vectors use MPI_Iallreduce. In both cases the result has the same bits on every rank.
 */
#ifndef HVD_BACKEND_MPI_SUM_H
#define HVD_BACKEND_MPI_SUM_H

#include <stddef.h>

#include "core/backend/mpi_process.h"
#include "core/coll/reduce.h"

#define MPI_SUM_WINDOW 4  /* receives in progress; each has a block of scratch */
#define MPI_SUM_SENDS  32 /* sends in progress */

/* A block of the ring: byte `off` of the segment that a step moves. */
struct mpi_place {
    int step;
    size_t off;
    unsigned n; /* number of blocks before this one */
};

struct mpi_sum {
    /* Filled in by the caller. The memory must stay valid until the end. */
    const struct mpi_here *here;
    void *comm;
    int members, place;
    bool near;               /* all members are on this host */
    struct reduce_plan plan; /* no 16-bit floats; inputs are prescaled already */
    size_t elem;
    const void *in;
    void *out;             /* may be in */
    const size_t *offsets; /* [members + 1] bytes: the segments of the ring */
    void *scratch;         /* mpi_sum_scratch() bytes */

    struct mpi_task task;
    size_t block; /* bytes of a block; 0: MPI_Iallreduce is used */
    bool asked;   /* MPI_Iallreduce was started */
    struct mpi_request one;
    struct mpi_place posted, taken; /* receives: the next to post, the next to wait for */
    struct mpi_place begun, gone;   /* sends: the next to begin, the next to wait for */
    struct mpi_request recvs[MPI_SUM_WINDOW], sends[MPI_SUM_SENDS];
};

/* Bytes of scratch for segments of at most `segment` bytes; members and near as in struct mpi_sum.
 */
size_t mpi_sum_scratch(size_t segment, int members, bool near);

int mpi_sum_start(struct mpi_sum *s);

/* 0: done, 1: would have to wait. */
int mpi_sum_progress(struct mpi_sum *s);

/* As mpi_task_stop(). */
bool mpi_sum_stop(struct mpi_sum *s);

#endif
