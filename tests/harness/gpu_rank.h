/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rank: a rank of a test of core/backend/nccl_run: a mesh and a coll without the engine, a GPU
 * of the fake driver, NCCL of tests/fake, and an algorithm between them that does what the engine's
 * does: in an epoch's first operation all ranks say what they have and form a communicator; then
 * inputs are prepared, all ranks gather, and it is launched. For forked ranks only: what goes wrong
 * is printed and returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_GPU_RANK_H
#define HVD_TESTS_HARNESS_GPU_RANK_H

#include "core/backend/nccl_run.h"
#include "tests/fake/cuda/control.h"
#include "tests/harness/coll_rank.h"

#define GPU_RANK_ROOM  ((size_t)9 << 20) /* bytes of its inputs, and of its outputs */
#define GPU_RANK_FUSED 700               /* tensors of an operation, at most */

enum gpu_rank_stage { GPU_SAYING, GPU_FORMING, GPU_PREPARING, GPU_GATHERING, GPU_RUNNING };

struct gpu_rank {
    struct coll_rank r;
    const struct fake_cuda_control *fake;
    int (*nccl_live)(void);
    struct gpu *gpu;
    struct cuda_visit visit; /* all the time */
    struct nccl_run *run;
    struct CUstream_st *stream; /* the user's */
    struct CUevent_st *event;
    struct cuda_memory memory, locked;
    uint8_t *in, *out; /* room each; others in the next epoch, as what was given up may
                        * still be at these */
    uint8_t *host;     /* locked: what is copied to and fro */
    size_t room;
    long before; /* things of the driver's before its GPU was opened */
    unsigned salt;
    /* the algorithm's */
    enum gpu_rank_stage stage;
    bool dies, breaks; /* when everybody is about to launch: the rank, or its GPU */
    struct nccl_said mine, *all;
    size_t *bytes;
    struct coll_op part;
    struct coll_tensor tensor;
    bool parting, heard;
    enum nccl_verdict verdict;
    struct err err; /* of what went wrong last */
};

struct gpu_rank_options {
    const char *hosts;         /* see coll_rank_open() */
    const char *nccl;          /* "2.27"; NULL: there is none */
    const char *script;        /* FAKE_CUDA, with "count=8" */
    int ordinal;               /* its GPU; -1: its rank */
    struct nccl_limits limits; /* zeros: 15 s, and 5 s for an abort */
    unsigned delay_us;         /* of all that is on streams */
    size_t room;               /* 0: GPU_RANK_ROOM */
    bool quiet;                /* failures are expected */
};

/* 0, or -errno after a line on stdout. */
int gpu_rank_open(struct gpu_rank *me, int rank, const struct gpu_rank_options *o);

/* 0; else what was left behind was printed. */
int gpu_rank_close(struct gpu_rank *me);

/* Parts of them: the GPU with all that is on it, and another coll over the same mesh. */
int gpu_rank_open_gpu(struct gpu_rank *me, int ordinal, const struct nccl_limits *limits);
int gpu_rank_close_gpu(struct gpu_rank *me);
int gpu_rank_renew_coll(struct gpu_rank *me);

/* Another mesh, at the so many-th rendezvous of ports, as rank of size: the next epoch. */
int gpu_rank_epoch(struct gpu_rank *me, const int *ports, int epoch, int rank, int size);

/* One operation to its end, at most ms (0: 60 s); -ETIME. Tensors: of me->in and me->out, which
 * hold bytes of me->host when the operation may read them, not before. */
int gpu_rank_run(struct gpu_rank *me, struct coll_op *op, size_t bytes, int ms);

/* bytes of device memory to me->host. 0 or -errno. */
int gpu_rank_fetch(struct gpu_rank *me, const void *from, size_t bytes);

/* An allreduce of patterns, checked; 0, or what gpu_rank_run() said, or > 0 after a line. */
struct gpu_rank_sum {
    enum hvd_dtype dtype;
    enum hvd_op op;
    const size_t *counts;
    size_t n;
    bool in_place;
    bool scaled; /* by 2 before and by a half behind it */
    int ms;      /* as above */
};

int gpu_rank_allreduce(struct gpu_rank *me, const struct gpu_rank_sum *sum);

/* 1000 floats, and tensors of some other types where there are kernels. */
int gpu_rank_check(struct gpu_rank *me);

/* Until nccl_run_drained() has an answer; 20 s. */
int gpu_rank_drain(struct gpu_rank *me);

#endif
