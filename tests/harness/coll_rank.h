/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_rank: a rank of a test that uses a mesh and collectives without the engine. It opens them
 * from the environment that world.h sets, and drives one operation to its end. For forked ranks
 * only: errors are printed and returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_COLL_RANK_H
#define HVD_TESTS_HARNESS_COLL_RANK_H

#include "core/boot/boot.h"
#include "core/coll/coll.h"
#include "core/transport/mesh.h"

struct coll_rank {
    struct boot boot;
    struct mesh *mesh;
    struct coll *coll;
    bool quiet; /* set after opening: a failure is expected and not printed */
};

/* hosts: one character for each rank; ranks with the same character may share memory
 * (HVD_LOCALITY). NULL: all ranks that really can. Returns 0, or -errno after a line on stdout. */
int coll_rank_open(struct coll_rank *r, int rank, const char *hosts);

/* Sends a farewell, waits at most 5 s for those of the other ranks, and closes. */
void coll_rank_close(struct coll_rank *r);

/* Runs one operation from start to end, sleeping in between; at most 60 s. */
int coll_rank_run(struct coll_rank *r, const struct coll_op *op);

/* Part of coll_rank_run(): waits for an event after coll_progress() has returned 1. Returns 0 if
 * the operation is done, 1 if not, or -errno. */
int coll_rank_wait(struct coll_rank *r, uint64_t deadline);

/* Runs an allreduce of count floats, such as one between other operations. -EBADMSG: a wrong sum.
 */
int coll_rank_sum(struct coll_rank *r, size_t count);

/* Fills a struct coll_op. */
struct coll_op coll_rank_op(struct coll_rank *r, enum hvd_kind kind, enum hvd_dtype dtype,
                            enum hvd_op op, const struct coll_tensor *tensors, size_t n);

#endif
