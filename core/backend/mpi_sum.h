/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_sum: the sum of one vector over the ranks of a communicator, nonblocking.
 *
 * Large ones go round a ring of MPI's messages, in blocks, and are added by our own kernels: MPI's
 * nonblocking allreduce neither cuts nor overlaps (twice the time of its blocking one on one host,
 * tests/bench/RESULTS.md). Sends need no memory, so many of them are begun early: a receiver that
 * copies by itself (one host) then never waits for the sender's processor. Small ones are
 * MPI_Iallreduce. In both, an element is summed once and
 * the result goes to all, or in an order that does not show in the bits: they are the same on every
 * rank.
 */
#ifndef HVD_BACKEND_MPI_SUM_H
#define HVD_BACKEND_MPI_SUM_H

#include <stddef.h>

#include "core/backend/mpi_process.h"
#include "core/coll/reduce.h"

#define MPI_SUM_WINDOW 4  /* receives under way; each has a block of scratch */
#define MPI_SUM_SENDS  32 /* sends under way */

/* A block of the ring: byte `off` of the segment that a step moves. */
struct mpi_place {
    int step;
    size_t off;
    unsigned n; /* places before it */
};

struct mpi_sum {
    /* Filled in by the caller; memory is its own until the end. */
    const struct mpi_here *here;
    void *comm;
    int members, place;
    bool near;               /* all members are on this host */
    struct reduce_plan plan; /* no 16-bit floats; inputs carry their prescale already */
    size_t elem;
    const void *in;
    void *out;             /* may be in */
    const size_t *offsets; /* [members + 1] bytes: the segments of the ring */
    void *scratch;         /* mpi_sum_scratch() bytes */

    struct mpi_task task;
    size_t block; /* 0: MPI's own */
    bool asked;   /* MPI has its own */
    struct mpi_request one;
    struct mpi_place posted, taken; /* of receives: next to post, next to wait for */
    struct mpi_place begun, gone;   /* of sends */
    struct mpi_request recvs[MPI_SUM_WINDOW], sends[MPI_SUM_SENDS];
};

/* Bytes of scratch for segments of at most this many bytes; the others as above. */
size_t mpi_sum_scratch(size_t segment, int members, bool near);

int mpi_sum_start(struct mpi_sum *s);

/* 0: done, 1: would have to wait. */
int mpi_sum_progress(struct mpi_sum *s);

/* As mpi_task_stop(). */
bool mpi_sum_stop(struct mpi_sum *s);

#endif
