/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_rank: a rank of a test of core/backend/nccl_comm on a libnccl.so.2 of tests/fake, without
 * engine and mesh: ids travel through shared memory. For forked ranks only: errors are printed and
 * returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_NCCL_RANK_H
#define HVD_TESTS_HARNESS_NCCL_RANK_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"

#define NCCL_RANK_ROUNDS 64

/* Shared by all ranks (world_shared()): what rank 0 sends the other ranks, one entry for each
 * round. */
struct nccl_meeting {
    struct {
        _Atomic int there; /* 1: id is; -errno: rank 0 has none */
        struct nccl_abi_id id;
    } round[NCCL_RANK_ROUNDS];
    _Atomic int arrived[NCCL_RANK_ROUNDS];
};

struct nccl_rank {
    int rank, size;
    struct nccl_meeting *meeting;
    int round; /* of ids */
    struct nccl_api api;
    struct nccl_comm *comm;
    struct CUstream_st *stream;
    int (*idle)(void *stream);
    int (*live)(void);
    struct nccl_limits limits;
    int patience_ms;   /* time limit of an operation; 0: 20 s */
    _Atomic int *stop; /* not 0: waiting ends with -ETIME; NULL: unused */
    struct nccl_steps steps;
    struct err err; /* error of the last call */
};

/* Loads the library and creates a communicator that has not started. The caller has set limits;
 * init_ms 0: abort_ms becomes 5 s, the others 10 s. */
int nccl_rank_open(struct nccl_rank *r, const char *version, int rank, int size,
                   struct nccl_meeting *meeting);

/* Returns true when NCCL has no leaked object and no live communicator. */
bool nccl_rank_close(struct nccl_rank *r);

/* Calls progress, sleeping in between, until it returns something other than 1; -ETIME after ms. */
int nccl_rank_drive(struct nccl_rank *r, int ms);

/* Starts the communicator with the id of this round, which must be unused: rank 0 gets it, and the
 * others wait for that. -ECONNRESET: rank 0 has failed. */
int nccl_rank_begin(struct nccl_rank *r, int round, int rank, int size);

/* nccl_rank_begin(), then drives. */
int nccl_rank_start(struct nccl_rank *r, int round, int rank, int size);

/* Launches, drives, and waits until the stream is idle, checking for errors; -ETIME when that takes
 * too long. */
int nccl_rank_run(struct nccl_rank *r, const struct coll_op *op);

/* Waits until all of size ranks have reached this point of the test; false after ms. */
bool nccl_rank_meet(struct nccl_rank *r, int place, int size, int ms);

/* Runs and checks a sum of 1000 floats whose values depend on the ranks' numbers. 0 or -errno. */
int nccl_rank_check(struct nccl_rank *r);

#endif
