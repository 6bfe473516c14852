/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rank: a rank of a test of core/backend/nccl_run: a mesh and a coll without the engine, a GPU
 * of the fake driver, NCCL of tests/fake, and between them an algorithm that does what the engine's
 * does. In an epoch's first operation all ranks report what they have, and form a communicator.
 * Then all ranks gather, and the operation is launched. For forked ranks only: errors are printed
 * and returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_GPU_RANK_H
#define HVD_TESTS_HARNESS_GPU_RANK_H

#include "core/backend/nccl_run.h"
#include "tests/fake/cuda/control.h"
#include "tests/harness/coll_rank.h"

#define GPU_RANK_ROOM  ((size_t)9 << 20) /* bytes for inputs, and for outputs */
#define GPU_RANK_FUSED 700               /* tensors of an operation, at most */

enum gpu_rank_stage { GPU_SAYING, GPU_FORMING, GPU_PREPARING, GPU_GATHERING, GPU_RUNNING };

struct gpu_rank {
    struct coll_rank r;
    const struct fake_cuda_control *fake;
    int (*nccl_live)(void);
    struct gpu *gpu;
    struct cuda_visit visit; /* the GPU's context is pushed until gpu_rank_close() */
    struct nccl_run *run;
    struct nccl_flight *flight; /* the operation in flight */
    struct CUstream_st *stream; /* the user's stream */
    struct CUevent_st *event;
    struct cuda_memory memory, locked;
    /* `room` bytes each; new buffers in each epoch, because an operation that was given up may
     * still use the old ones */
    uint8_t *in, *out;
    uint8_t *host; /* pinned host memory for copies in both directions */
    size_t room;
    long before; /* live driver objects before the GPU was opened */
    unsigned salt;
    /* state of the algorithm */
    enum gpu_rank_stage stage;
    bool dies, breaks; /* at the moment of the launch the rank dies, or its GPU fails */
    bool hurries;      /* when an operation has failed, its inputs may still be on their way */
    struct nccl_fact mine, *all;
    size_t *bytes;
    struct coll_op part;
    struct coll_tensor tensor;
    bool parting, heard;
    enum nccl_verdict verdict;
    struct err err; /* the last error */
};

struct gpu_rank_options {
    const char *hosts;         /* see coll_rank_open() */
    const char *nccl;          /* version, such as "2.27"; NULL: no NCCL */
    const char *script;        /* FAKE_CUDA, including "count=8" */
    int ordinal;               /* number of the GPU; -1: equal to the rank */
    struct nccl_limits limits; /* init_ms 0: 15 s each, for an abort 5 s, for the program 20 s */
    unsigned delay_us;         /* delay of everything on streams */
    size_t room;               /* 0: GPU_RANK_ROOM */
    bool quiet;                /* failures are expected */
};

/* Returns 0, or -errno after a line on stdout. */
int gpu_rank_open(struct gpu_rank *me, int rank, const struct gpu_rank_options *o);

/* Returns 0, or prints what was not freed. */
int gpu_rank_close(struct gpu_rank *me);

/* Parts of open and close: the GPU with everything on it; and a new coll over the same mesh. */
int gpu_rank_open_gpu(struct gpu_rank *me, int ordinal, const struct nccl_limits *limits);
int gpu_rank_close_gpu(struct gpu_rank *me);
int gpu_rank_renew_coll(struct gpu_rank *me);

/* Enters the next epoch: a new mesh, at rendezvous number `epoch` of ports, as rank of size. */
int gpu_rank_epoch(struct gpu_rank *me, const int *ports, int epoch, int rank, int size);

/* Runs one operation to its end, at most ms (0: 60 s), then -ETIME. Tensors are in me->in and
 * me->out. me->host is copied to me->in on the stream, so inputs are valid only after the
 * operation's event. */
int gpu_rank_run(struct gpu_rank *me, struct coll_op *op, size_t bytes, int ms);

/* Copies bytes of device memory to me->host. 0 or -errno. */
int gpu_rank_fetch(struct gpu_rank *me, const void *from, size_t bytes);

/* Runs an allreduce of patterns and checks it. Returns 0, the error of gpu_rank_run(), or > 0 after
 * printing a difference. */
struct gpu_rank_sum {
    enum hvd_dtype dtype;
    enum hvd_op op;
    const size_t *counts;
    size_t n;
    bool in_place;
    bool scaled; /* prescale 2, postscale 1/2 */
    int ms;      /* time limit, see gpu_rank_run() */
};

int gpu_rank_allreduce(struct gpu_rank *me, const struct gpu_rank_sum *sum);

/* Runs and checks allreduces of 1000 floats, and of other types if there are kernels. */
int gpu_rank_check(struct gpu_rank *me);

/* Waits until nccl_run_drained() has an answer, at most 20 s. */
int gpu_rank_drain(struct gpu_rank *me);

#endif
