/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_rank: a rank of a test of core/backend/nccl_comm on a libnccl.so.2 of tests/fake, without
 * engine and mesh: ids travel through memory that the ranks share. For forked ranks only: what goes
 * wrong is printed and returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_NCCL_RANK_H
#define HVD_TESTS_HARNESS_NCCL_RANK_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"

#define NCCL_RANK_ROUNDS 64

/* Shared by all ranks (world_shared()): what rank 0 gives the others, a round each; and whatever
 * else the ranks want to tell each other. */
struct nccl_meeting {
    struct {
        _Atomic int there;
        unsigned char data[256];
    } round[NCCL_RANK_ROUNDS];
    _Atomic int arrived[NCCL_RANK_ROUNDS];
};

struct nccl_rank {
    int rank, size;
    struct nccl_meeting *meeting;
    int round; /* of the exchange */
    struct nccl_api api;
    struct nccl_comm *comm;
    struct CUstream_st *stream;
    int (*idle)(void *stream);
    int (*live)(void);
    struct nccl_limits limits;
    int patience_ms;   /* until an operation has ended; 0: 20 s */
    _Atomic int *stop; /* not 0: waiting is over, -ETIME; NULL: never */
    struct nccl_steps steps;
    struct err err; /* of the last call */
};

/* Loads it and makes a communicator that has not begun. limits: set before. */
int nccl_rank_open(struct nccl_rank *r, const char *version, int rank, int size,
                   struct nccl_meeting *meeting);

/* True when nothing was left behind in NCCL, and no communicator lives. */
bool nccl_rank_close(struct nccl_rank *r);

/* Progress until it answers something else than 1, napping; at most ms, then -ETIME. */
int nccl_rank_drive(struct nccl_rank *r, int ms);

/* start and drive, with the exchange of this round, which was not used before */
int nccl_rank_start(struct nccl_rank *r, int round, int rank, int size);

/* Launches, drives, and waits until the stream is idle, watching for errors; -ETIME when it is not
 * in time. */
int nccl_rank_run(struct nccl_rank *r, const struct coll_op *op);

/* Waits for all of size ranks at this place of the test; false after ms. */
bool nccl_rank_meet(struct nccl_rank *r, int place, int size, int ms);

/* A sum of 1000 floats over the present ranks, whose values tell the ranks' numbers apart; checked.
 * 0, -errno. */
int nccl_rank_check(struct nccl_rank *r);

#endif
