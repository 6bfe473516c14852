/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd.h: collective operations for data-parallel training, in C.
 *
 *     hvd_init();
 *     float grad[1000];
 *     hvd_allreduce("grad", grad, grad, 1000, HVD_FLOAT32, HVD_AVERAGE);
 *     hvd_shutdown();
 *
 * A process is one rank. It finds the others through its launcher (hvdrun, mpirun, srun, or
 * HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS, HVD_KEY_FILE by hand); without one it is a world of 1. Under
 * an mpirun that is not Open MPI's, and under torchrun, hvd_init() of a program in C needs
 * HVD_RENDEZVOUS too, and fails without it.
 *
 * Every rank calls the same operations with the same names, in any order and from any thread.
 * Operations of one name are matched in the order in which each rank submits them; a second one
 * may be submitted before the first is done only after that was waited for (else -EEXIST).
 *
 * A request belongs to the world in which it was submitted. Only hvd_commit() of an elastic job
 * changes the world; where another thread submits beside it, an operation that is not done before
 * ends with -ESTALE: it has changed no tensor, and may be submitted again, made for the new world.
 *
 * Errors: 0 is done, a negative errno failed; hvd_error() then has the sentence. A call that fails
 * for its arguments has touched no data. When the ranks disagree about an operation, every rank
 * gets -EINVAL and a text that says what each of them asked for. When a rank is lost, every
 * operation under way and to come fails with -ECONNRESET; the outputs are then undefined. (Elastic
 * jobs go on instead, see below.)
 *
 * Results: the same bits on every rank, and from run to run for the same set of ranks: the order in
 * which an element is summed depends on nothing but its place in its tensor and on the world.
 * float16 and bfloat16 are summed in float32; between hosts a partial sum travels in the tensor's
 * type. Integers wrap; an integer average truncates toward zero. bool: sum and max are "or",
 * product and min are "and", average is refused. Different transports (one host, several hosts,
 * MPI) may round differently. With HVD_BACKEND=mpi what is small (fewer than 32 KB for each rank,
 * fused) and a reducescatter are summed in MPI's order: the same bits on every rank, but not always
 * from run to run.
 *
 * Fork: a child has no engine; every call but hvd_init fails there with -EPERM. (hvd_init in a
 * child fails too: start a new process instead.) fork() waits while another thread is inside
 * hvd_init or hvd_shutdown, or waits to come in, and through a repair; it must not be called by a
 * signal handler.
 */
#ifndef HVD_H
#define HVD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_VERSION "0.1.0"

#define HVD_API __attribute__((visibility("default")))

enum hvd_dtype {
    HVD_UINT8,
    HVD_INT8,
    HVD_UINT16,
    HVD_INT16,
    HVD_INT32,
    HVD_INT64,
    HVD_FLOAT16,
    HVD_FLOAT32,
    HVD_FLOAT64,
    HVD_BOOL, /* one byte, 0 or not 0; results are 0 or 1 */
    HVD_BFLOAT16,
    HVD_DTYPES, /* how many there are */
};

enum hvd_op {
    HVD_AVERAGE, /* sum divided by the number of ranks that contributed */
    HVD_SUM,
    HVD_ADASUM, /* not supported yet: -ENOTSUP */
    HVD_MIN,
    HVD_MAX,
    HVD_PRODUCT,
    HVD_OPS,
};

enum hvd_kind {
    HVD_ALLREDUCE,
    HVD_ALLGATHER,
    HVD_BROADCAST,
    HVD_ALLTOALL,
    HVD_REDUCESCATTER,
    HVD_BARRIER,
    HVD_KINDS,
};

#define HVD_MAX_DIMS 16
#define HVD_MAX_NAME 255 /* bytes of a tensor's name */

/* ---- life ------------------------------------------------------------------------------- */

/* Joins the world; returns when every rank has. Bounded by HVD_START_TIMEOUT (30 s; under hvdrun
 * --elastic-timeout, where that is longer): the text says for whom it waited. Reads the
 * environment; may be called again after hvd_shutdown(). Calling it when initialized is fine and
 * does nothing. Of an elastic job in which others train already it returns at once, with a place:
 * see hvd_enter(). */
HVD_API int hvd_init(void);

/* Leaves the world. Operations still under way fail with -ESHUTDOWN here; waits at most 5 s for the
 * other ranks to leave too, so that nobody mistakes an end for a crash. */
HVD_API int hvd_shutdown(void);

HVD_API bool hvd_initialized(void);

/* Ranks of the whole world, of this host, and of the hosts; -ENOTCONN before hvd_init(). Those of a
 * rank that has only a place (hvd_enter()) may be others when it comes in. Its local rank is then
 * that which nobody else on its host was started with: the device to take. */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);

/* True when every host has the same number of ranks. False where there is only a place. */
HVD_API bool hvd_homogeneous(void);

/* What the last call that failed on this thread has to say. Valid until the next call here. */
HVD_API const char *hvd_error(void);

HVD_API const char *hvd_version(void);

/* ---- operations ------------------------------------------------------------------------- */

/* One operation on one tensor. Tensors are contiguous, in C order; input and output are this
 * process's memory, of any alignment, and belong to the engine until hvd_wait() has returned. input
 * == output means in place; they must not overlap otherwise. Sizes are in elements.
 *
 * On a GPU: both are device memory of the CUDA device of that number as this process counts them,
 * its primary context's; a rank uses one. The operation begins behind what is on the stream when it
 * is submitted; once hvd_wait() has returned the result is there for every stream. A stream that is
 * being captured into a graph is refused with -EBUSY. An operation is on a GPU on all ranks or on
 * none. It goes by NCCL; where the ranks cannot use that, and the user does not allow another way
 * (HVD_BACKEND, HVD_GPU_FALLBACK), it fails with -ENOTSUP on all of them, and so does everything
 * from then on. */
struct hvd_request {
    enum hvd_kind kind;
    const char *name;      /* NULL: named by kind and count of unnamed calls so far */
    const void *input;     /* may be NULL when it has no elements */
    void *output;          /* allgather, alltoall: NULL, or see output_rows */
    enum hvd_dtype dtype;  /* barrier: ignored */
    int ndim;              /* 0..HVD_MAX_DIMS; a scalar has none */
    const int64_t *shape;  /* of the input; broadcast: of the tensor, the same on every rank */
    enum hvd_op op;        /* allreduce, reducescatter */
    double prescale;       /* allreduce, reducescatter: input times this first; 0 stands for 1 */
    double postscale;      /* and the result times this at the end; 0 stands for 1 */
    int root;              /* broadcast: whose data; output is written on the others */
    const int64_t *splits; /* alltoall: rows of dimension 0 for each rank; NULL: equal shares */
    int device;            /* -1: the host's memory; else the GPU that both are on */
    void *stream;          /* on a GPU: the CUstream that input and output are ready behind; NULL:
                            * the default stream */
    int64_t output_rows;   /* allgather, alltoall: rows that output has room for. A result of no
                            * more goes there, a larger one (or any, where there is no output) into
                            * memory of the engine's; hvd_result() tells where it is */
    uint32_t epoch;        /* hvd_world.epoch of the world that it was made for: hvd_submit() fails
                            * with -ESTALE in another one; 0: any. For a thread that submits
                            * beside hvd_commit() what it has made by rank and size */
};

/* shapes:
 *   allreduce      output as input.
 *   allgather      dimension 0 may differ between ranks, the others must not; result: the ranks'
 *                  rows one after the other.
 *   broadcast      output (and on the root input, which may be the output) has the shape.
 *   alltoall       splits[r] rows go to rank r; result: received rows in the order of the ranks.
 *   reducescatter  dimension 0 is shared out: the first shape[0] % size ranks get one row more;
 *                  output holds this rank's rows.
 */

typedef int64_t hvd_handle; /* > 0; of this process and of this hvd_init() */

#define HVD_MAX_GROUP 65536

/* Hands n operations (1..HVD_MAX_GROUP) to the engine: all of them or, on failure, none. With n > 1
 * they are a group: all n start together, when every rank has all of them, and members of a group
 * are of one kind. The structs and what they point to (not the tensors) are copied. While
 * hvd_commit() in another thread changes the world the call waits for the new one and then fails
 * with -ESTALE; nothing was submitted. */
HVD_API int hvd_submit(const struct hvd_request *requests, size_t n, hvd_handle *ret_handles);

/* 1 when done (or failed), 0 when not, -EINVAL for an unknown handle. Any thread, also while
 * another one waits for it. */
HVD_API int hvd_poll(hvd_handle handle);

/* Waits until it is done and returns how it ended. Once it has returned 0 the user owns input and
 * output again and may overwrite both. An allgather's and an alltoall's result stays with the
 * handle until hvd_release(); every other handle is released by this call. Waits are bounded by
 * the life of the peers and HVD_STALL_SHUTDOWN_TIME_SECONDS. One thread waits for a handle and gets
 * its result: a second one gets -EINVAL at once, or because the handle is released by then. */
HVD_API int hvd_wait(hvd_handle handle);

/* What an allgather or alltoall has received; the engine's own memory is there until hvd_release().
 * That on a GPU is given to the next result then: what reads it there has ended, or is on the
 * stream of the requests that follow. */
struct hvd_result {
    const void *data; /* the request's output, where that had room; where that is, host or GPU */
    int ndim;
    int64_t shape[HVD_MAX_DIMS];
    const int64_t *splits; /* [ranks] rows received from each rank */
    int ranks;             /* of the world that it was submitted in: size() may be another by now */
};

/* After hvd_wait() returned 0. */
HVD_API int hvd_result(hvd_handle handle, struct hvd_result *ret_result);

/* No other call may be using the handle or its result, but hvd_wait() in another thread: then this
 * does nothing. */
HVD_API void hvd_release(hvd_handle handle);

/* The common ones, for flat tensors, submit and wait in one call. */
HVD_API int hvd_allreduce(const char *name, const void *input, void *output, int64_t count,
                          enum hvd_dtype dtype, enum hvd_op op);
HVD_API int hvd_broadcast(const char *name, void *data, int64_t count, enum hvd_dtype dtype,
                          int root);
HVD_API int hvd_barrier(const char *name);

/* Bytes of one element; 0 for an unknown dtype. */
HVD_API size_t hvd_dtype_size(enum hvd_dtype dtype);
HVD_API const char *hvd_dtype_name(enum hvd_dtype dtype);
HVD_API const char *hvd_op_name(enum hvd_op op);
HVD_API const char *hvd_kind_name(enum hvd_kind kind);

/* ---- elastic jobs ----------------------------------------------------------------------- */

/* In an elastic job (hvdrun --min-np, --max-np; an HvdJob) the loss of a rank is no error: what is
 * under way is finished by the survivors, with the same bits on all of them, and an average divides
 * by the ranks that contributed: parts of a tensor that were final when it died have its share,
 * others have not. rank() and size() stay as they were until the next hvd_commit(). Until then, of
 * what has a part for each rank, that of a lost one is missing: it gives no rows to an allgather or
 * alltoall, its rows of a reducescatter and alltoall are dropped; a broadcast from it fails with
 * -EOWNERDEAD when its data was not out yet. */

/* A rank that is started while others train holds nobody up. Its hvd_init() returns at once with a
 * *place*: the rank and size that it would have if it came in now. It can load its program, build
 * its model and open its data; the others go on. The first call that needs them lets it in, and
 * waits for their next boundary: hvd_submit() and the like, hvd_commit(), or hvd_enter(). From then
 * on rank() and size() are those of the world and may be others than before. hvd_submit() fails
 * with -ESTALE, and nothing was submitted, when they are others and it was asked for what depends
 * on them: splits, a reducescatter.
 *
 * Coming in fails with -ESHUTDOWN when this rank is not wanted any more (the job is to be smaller,
 * or has come to its end): it should end. With -ETIMEDOUT when the others came to no boundary for
 * as long as hvd_init() may take: a program that never calls hvd_commit() lets nobody in. Every
 * later call fails alike, until hvd_shutdown(). A rank may leave again without coming in, by
 * hvd_shutdown() or its end: the others do not notice. Until it is in, handles are unknown
 * (-EINVAL), counters are 0, a timeline begins when it comes in.
 *
 * 0: it is in. In every other case hvd_enter() does nothing. */
HVD_API int hvd_enter(void);

/* The world as of the last boundary. */
struct hvd_world {
    uint64_t size_of_struct; /* in: sizeof(struct hvd_world) of the caller */
    uint32_t epoch;          /* of the roster; rises with every change */
    int rank, size;
    int source;         /* the lowest rank that has been in the world before: it has the state */
    int joined, left;   /* ranks that are new, and that are gone, since the boundary before */
    bool is_new;        /* this rank has joined a world that was there: it has no state yet */
    bool elastic;       /* of an elastic job */
    uint64_t repair_ns; /* from hearing of the last loss until work went on; 0: none yet */
    bool waiting;       /* it is not in yet: the above is a place, is_new, with source 0 */
};
HVD_API int hvd_world(struct hvd_world *ret_world);

/* A boundary: the end of a step, where every rank is at the same place of its program and its state
 * is consistent. All ranks call it; it takes the time of a small allreduce. Losses since the last
 * one show in rank() and size() from here on, and planned changes (scale up, scale down, drain)
 * take place. 0: the world is as it was; 1: it is another one, see hvd_world(): where ranks have
 * joined, all of them now bring the state from world.source to the new ones. -ESHUTDOWN: this rank
 * was asked to leave and is out of the world: it should end. -EBUSY: operations of this rank are
 * under way: wait for them first. What another thread submits from then on is done in the old world
 * or ends with -ESTALE, on every rank alike, and so does what ranks submit in different worlds.
 * Outside an elastic job: 0, without asking anybody. A rank that comes in by this call does so at
 * the boundary at which the others are: it returns 1 there. */
HVD_API int hvd_commit(void);

/* ---- a look inside ---------------------------------------------------------------------- */

/* Writes a Chrome trace (JSON array, loads in Perfetto) from now on; rank 0 writes path, the others
 * nothing, unless path contains "%r", which stands for the rank. */
HVD_API int hvd_start_timeline(const char *path, bool mark_cycles);
HVD_API int hvd_stop_timeline(void);

/* Counters since hvd_init(), for tests, metrics and the curious. */
struct hvd_stats {
    uint64_t size;        /* in: sizeof(struct hvd_stats) of the caller */
    uint64_t ops;         /* tensors done */
    uint64_t batches;     /* fused launches done */
    uint64_t bytes;       /* payload bytes of inputs */
    uint64_t negotiated;  /* tensors that took a full request */
    uint64_t cached;      /* tensors that took a cache bit */
    uint64_t frozen;      /* batches that ran on the frozen schedule, unnegotiated */
    uint64_t thaws;       /* times the frozen schedule was left */
    uint64_t refused;     /* connections refused: wrong key, garbage, strangers */
    uint64_t allocations; /* heap allocations of the engine on the data path */
    uint64_t stalls;      /* stall reports */
    uint64_t submitted;   /* tensors that were handed over, done or not */
};
HVD_API int hvd_stats(struct hvd_stats *ret_stats);

/* What there is of a back end (HVD_BACKEND). Before hvd_init() none is open. */
struct hvd_backend {
    uint64_t size_of_struct; /* in: sizeof(struct hvd_backend) of the caller */
    bool built;              /* hvd was built with it; nccl, staged: and what they need is here */
    bool open;               /* this job uses it */
    bool threads;            /* the program may call the library itself beside hvd, on any thread */
    char text[512];          /* open: library, version and file, as in the log; nccl and staged
                              * otherwise: what there is of them, or why not */
};

/* -EINVAL: there is no back end of this name ("host", "mpi", and for tensors of GPUs "nccl",
 * "staged": through the host's memory; these are open from the first such tensor on). */
HVD_API int hvd_backend(const char *name, struct hvd_backend *ret_backend);

#ifdef __cplusplus
}
#endif

#endif
