/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd.h: collective operations for data-parallel training, in C.
 *
 *     hvd_init();
 *     float grad[1000];
 *     hvd_allreduce("grad", grad, grad, 1000, HVD_FLOAT32, HVD_AVERAGE);
 *     hvd_shutdown();
 *
 * A process is one rank. Its launcher (hvdrun, mpirun or srun) tells it rank and size; without a
 * launcher they come from HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and HVD_KEY_FILE, and without these it
 * is alone (size 1). Under torchrun, and under an mpirun other than Open MPI's, hvd_init() of a
 * program in C also needs HVD_RENDEZVOUS, and fails without it.
 *
 * Operations: every rank calls the same operations with the same names, in any order and from any
 * thread. Operations of one name are matched in the order in which each rank submits them. A name
 * may be submitted again only after hvd_wait() for the last operation of that name (else -EEXIST).
 *
 * Worlds: a request belongs to the world in which it was submitted. Only hvd_commit() of an elastic
 * job changes the world. If another thread submits meanwhile, its operations that have not finished
 * before the change fail with -ESTALE. Such an operation has changed no tensor; the program may
 * submit it again, prepared for the new world.
 *
 * Errors: functions return 0 on success and a negative errno on failure; then hvd_error() has a
 * sentence about it. A call that fails because of its arguments has touched no data. If the ranks
 * disagree about an operation, every rank gets -EINVAL and a text that lists what each rank asked
 * for. If a rank is lost, every operation in flight and every later one fails with -ECONNRESET, and
 * the outputs are undefined. (Elastic jobs continue instead, see below.)
 *
 * Results: all ranks get the same bits, also from run to run with the same ranks. The order in
 * which an element is summed depends only on its position in its tensor and on the ranks. float16
 * and bfloat16 are summed in float32; between hosts partial sums are sent in the tensor's type.
 * Integers wrap; an integer average truncates toward zero. For bool: sum, max and HVD_BOR are "or";
 * product, min and HVD_BAND are "and"; HVD_BXOR is "exclusive or"; average is refused. Different
 * transports (one host, several hosts, MPI) may round differently.
 *
 * Fork: a forked child has no engine: every call fails there with -EPERM, hvd_init() included
 * (start a new process instead). fork() blocks while another thread is in hvd_init(), in
 * hvd_shutdown(), in hvd_enter(), in hvd_set_add(), in hvd_set_form(), in hvd_set_remove() or
 * in a repair. Do not call fork() in a signal handler.
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
    /* 8-bit floats: sign, exponent of 4 bits and fraction of 3, without infinities; and exponent of
     * 5 bits and fraction of 2. They are only moved, bit for bit: broadcast, allgather, alltoall.
     * What combines elements (allreduce, reducescatter) is refused with -EINVAL: convert such a
     * tensor to bfloat16 first. */
    HVD_FLOAT8_E4M3FN,
    HVD_FLOAT8_E5M2,
    HVD_DTYPES, /* number of types */
};

enum hvd_op {
    HVD_AVERAGE, /* sum divided by the number of ranks that contributed */
    HVD_SUM,
    /* Adaptive summation, which keeps the length of a step whatever the number of ranks: see
     * core/coll/adasum.h. In an allreduce or reduce of floating-point tensors, each by itself;
     * float16, bfloat16 and float32 are combined as float32. With HVD_HIERARCHICAL_ADASUM=1 on
     * every rank the averages of the hosts are combined, instead of the ranks' tensors. Tensors on
     * GPUs go through the host's memory, also in a job with NCCL. */
    HVD_ADASUM,
    HVD_MIN,
    HVD_MAX,
    HVD_PRODUCT,
    /* Bitwise, for integers and bool; never scaled. NCCL has only "and" and "or" of bool: on GPUs
     * the others need HVD_GPU_FALLBACK=1, else they fail like all that NCCL cannot do. */
    HVD_BAND,
    HVD_BOR,
    HVD_BXOR,
    HVD_OPS,
};

enum hvd_kind {
    HVD_ALLREDUCE,
    HVD_ALLGATHER,
    HVD_BROADCAST,
    HVD_ALLTOALL,
    HVD_REDUCESCATTER,
    HVD_BARRIER,
    /* With one rank, the root, that has the result, or the input. See shapes below. */
    HVD_REDUCE,
    HVD_GATHER,
    HVD_SCATTER,
    HVD_KINDS,
};

#define HVD_MAX_DIMS 16
#define HVD_MAX_NAME 255 /* bytes of a tensor's name */

/* ---- life ------------------------------------------------------------------------------- */

/* Joins the job.
 *
 * Returns: 0 when every rank has called it; on a joiner of an elastic job at once (see
 *   hvd_enter()). 0 without effect when already initialized.
 * Errors: -ETIMEDOUT after HVD_START_TIMEOUT (30 s; under hvdrun --elastic-timeout, if that is
 *   longer): hvd_error() names the ranks that are missing. -ESHUTDOWN: the elastic job does not
 *   need this rank any more. -EPERM in a forked child. Others: hvd_error().
 * Threads: any. May be called again after hvd_shutdown(); it reads the environment each time. */
HVD_API int hvd_init(void);

/* Leaves the job.
 *
 * Returns: 0, or a negative errno when leaving was not orderly. Waits at most 5 s for the other
 *   ranks to leave, too, so that they do not take the end of this process for a crash. In a job of
 *   fixed size in which sets have used NCCL: at most 10 minutes, because the others learn through
 *   this rank in which order to launch their operations; the log names them after 10 s.
 * Effects: operations in flight fail with -ESHUTDOWN on this rank; handles become unknown. On the
 *   other ranks those that no rank has begun fail with -ESHUTDOWN, too. If other ranks run one that
 *   this rank has not finished, the job ends: wait for operations before.
 * Threads: any. */
HVD_API int hvd_shutdown(void);

/* True between a successful hvd_init() and hvd_shutdown(). Any thread. */
HVD_API bool hvd_initialized(void);

/* The rank and the number of ranks: in the job; among the ranks of this host (local); of this host
 * among the hosts (cross).
 *
 * Returns: the number, or -ENOTCONN before hvd_init().
 * Threads: any. They change only in hvd_commit(), and on a joiner when it enters (hvd_enter()). A
 *   joiner's local rank is from the start one that no other rank of its host has: use it to choose
 *   the GPU. */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);

/* This rank's place. Ranks are numbered without gaps: after a loss the ranks above it close up. A
 * job that keeps places (hvdrun --keep-places) gives each rank a place, too, which it has until it
 * leaves: 0 <= place, and rank() <= place. A joiner takes the lowest place that is free, so a
 * replacement has the place of the lost rank. Ranks are in the order of places. When no place is
 * free, rank() and place are equal, as they always are where places are not kept. For a program
 * that gives each rank a part of its own, such as a cell of a grid: the cell is the place.
 *
 * With places a joiner may be rank 0. The training state comes from hvd_world.source.
 *
 * Returns: the place, or -ENOTCONN before hvd_init(); on a joiner that has not entered, the one
 *   that it would have.
 * Threads: any. It changes when rank() does. */
HVD_API int hvd_place(void);

/* Writes the places of ranks 0, 1 and so on, at most n, to ret_places: they rise, and a number
 * between two of them is a free place.
 *
 * Returns: how many ranks there are. -ENOTCONN before hvd_init(). -EAGAIN: this joiner has not
 *   entered yet (hvd_enter()).
 * Threads: any. */
HVD_API int hvd_places(int *ret_places, int n);

/* True when every host has the same number of ranks. False on a joiner that has not entered yet. */
HVD_API bool hvd_homogeneous(void);

/* The text of the last failed call of this thread. Owned by the library; valid until this thread's
 * next call of hvd. */
HVD_API const char *hvd_error(void);

/* The version, such as "0.1.0". Owned by the library. */
HVD_API const char *hvd_version(void);

/* ---- operations ------------------------------------------------------------------------- */

/* One operation on one tensor. Tensors are contiguous and in C order; sizes are in elements. Input
 * and output have any alignment; the engine uses them until hvd_wait() has returned. input ==
 * output means in place; otherwise they must not overlap.
 *
 * On a GPU: input and output are device memory in the primary context of the CUDA device with the
 * number `device`; a rank uses one GPU. The operation starts after the work that is on `stream`
 * when it is submitted. After hvd_wait() any stream may use the result. -EBUSY: the stream is being
 * captured into a graph. An operation must be on GPUs on all ranks or on none. It uses NCCL. If the
 * ranks cannot use NCCL, and the user does not allow another way (HVD_BACKEND, HVD_GPU_FALLBACK),
 * this operation and all later ones on GPUs fail with -ENOTSUP on all ranks. */
struct hvd_request {
    enum hvd_kind kind;
    const char *name;      /* NULL: named by its kind and the count of unnamed calls */
    const void *input;     /* may be NULL when it has no elements */
    void *output;          /* allgather, alltoall, gather, scatter: NULL, or see output_rows */
    enum hvd_dtype dtype;  /* barrier: ignored */
    int ndim;              /* 0..HVD_MAX_DIMS; a scalar has none */
    const int64_t *shape;  /* of the input; broadcast: of the tensor, the same on every rank */
    enum hvd_op op;        /* allreduce, reduce, reducescatter */
    double prescale;       /* allreduce, reducescatter: input times this first; 0 stands for 1 */
    double postscale;      /* and the result times this at the end; 0 stands for 1 */
    int root;              /* broadcast: the rank that sends; output is written on all others.
                            * reduce, gather: the rank that has the result; scatter: that sends */
    const int64_t *splits; /* alltoall; scatter, on the root: rows of dimension 0 for each rank;
                            * NULL: equal numbers */
    int device;            /* -1: host memory; else the GPU of input and output */
    void *stream;          /* on a GPU: the CUstream whose queued work completes input and frees
                            * output; NULL: the default stream */
    int64_t output_rows;   /* allgather, alltoall: rows that output has room for. A result that
                            * fits is written there; a larger one (or any, without output) to memory
                            * of the engine; hvd_result() has its address */
    uint32_t epoch;        /* hvd_world.epoch of the world that the request was made for:
                            * hvd_submit() fails with -ESTALE in another one; 0: any. For a thread
                            * that submits beside hvd_commit() requests that depend on rank and
                            * size */
    int set;               /* the set whose ranks take part (hvd_set_add()); 0: all ranks. root and
                            * splits are numbered in the set */
};

/* shapes:
 *   allreduce      output as input.
 *   allgather      dimension 0 may differ between ranks, the others must not; result: the rows of
 *                  all ranks in the order of ranks.
 *   broadcast      output (and on the root input, which may be the output) has the shape.
 *   alltoall       splits[r] rows go to rank r; result: received rows in the order of the ranks.
 *   reducescatter  the rows are distributed: the first shape[0] % size ranks get one row more;
 *                  output holds this rank's rows.
 *   reduce         as allreduce; output is only defined on the root, and overwritten on all ranks:
 *                  it is not NULL on any.
 *   gather         as allgather; only the root gets rows.
 *   scatter        as alltoall of the root's rows; on other ranks dimension 0 counts as 0,
 *                  splits are ignored, and input may be NULL.
 */

typedef int64_t hvd_handle; /* > 0; of this process and of this hvd_init() */

#define HVD_MAX_GROUP 65536

/* Submits n operations; with n > 1 they are a group.
 *
 * Takes: 1 to HVD_MAX_GROUP requests of size_of_request bytes each (sizeof(struct hvd_request) of
 *   the caller); a group's are of one kind and of one set, and start together, once every rank of
 *   the set has submitted all of them. The structs and what they point to, except the tensors, are
 *   copied.
 * Returns: 0 and n handles in ret_handles; on failure nothing is submitted. Does not wait, except
 *   on a joiner of an elastic job (see hvd_enter()), and while hvd_commit() in another thread
 *   changes the world: then it waits for the new world and fails with -ESTALE.
 * Errors: -EINVAL wrong arguments; -EEXIST an operation of this name is in flight; -ENOTCONN
 *   before hvd_init(); -ECONNRESET a rank was lost; -EBUSY, -ENOTSUP see struct hvd_request;
 *   -ESHUTDOWN see hvd_enter(); -ESTALE the world has changed during the call, or is not that of
 *   hvd_request.epoch (see also hvd_enter()); -ENOMEM.
 * Owner: the engine uses the tensors until hvd_wait() for the handle has returned.
 * Threads: any. */
HVD_API int hvd_submit_sized(const struct hvd_request *requests, size_t size_of_request, size_t n,
                             hvd_handle *ret_handles);

/* The library also has a function of this name, for programs that were built before requests had
 * a set. */
static inline int hvd_submit(const struct hvd_request *requests, size_t n, hvd_handle *ret_handles)
{
    return hvd_submit_sized(requests, sizeof(*requests), n, ret_handles);
}

/* Returns 1 when the operation has finished or failed, 0 while it is in flight, -EINVAL for an
 * unknown handle. Does not wait. Any thread, also while another thread is in hvd_wait() for it. */
HVD_API int hvd_poll(hvd_handle handle);

/* Waits until the operation has finished or failed. The loss of a peer bounds the wait, and so does
 * HVD_STALL_SHUTDOWN_TIME_SECONDS.
 *
 * Returns: 0 when it has finished, else why it failed (see Errors above).
 * Errors: -EINVAL: unknown handle, or another thread waits for this handle: only that one gets the
 *   result.
 * Owner: after 0 the caller owns input and output again and may overwrite both. The result of an
 *   allgather, alltoall, gather or scatter stays with the handle until hvd_release(); this call
 * releases every other handle. Threads: any, one for each handle. */
HVD_API int hvd_wait(hvd_handle handle);

/* For a program that goes on with GPU work: makes later work on `stream` wait for the operation,
 * without waiting for the GPU on the host.
 *
 * Returns: 0 when the operation is enqueued on this rank's GPU and the stream waits for its end.
 *   That is not before every rank has submitted it (or, when the program repeats itself, before
 * this rank has submitted all operations that are fused with it). In an elastic job, for tensors in
 *   host memory, and where tensors of GPUs go through the host's memory: 0 when the operation has
 *   finished or failed.
 * Errors: -EINVAL: unknown handle. -EBUSY: the stream is being captured into a graph. Errors of the
 *   operation are those of hvd_wait(), which has to be called later in any case. If it fails, the
 *   work on the stream has used undefined values.
 * Owner: the engine uses the tensors until hvd_wait() has returned. Work on the stream may use
 *   them, too. After 0 hvd_result() may be called.
 * Threads: any. */
HVD_API int hvd_wait_stream(hvd_handle handle, void *stream);

/* The result of an allgather, alltoall, gather or scatter. Memory of the engine stays valid
 * until hvd_release(). On a GPU the engine then reuses it for another result: work that reads it
 * must have ended by then, or be on the stream of the requests that follow. */
struct hvd_result {
    const void *data; /* the request's output if the result fits, else memory of the engine; on the
                       * request's device */
    int ndim;
    int64_t shape[HVD_MAX_DIMS];
    const int64_t *splits; /* [ranks] rows received from each rank */
    int ranks;             /* of the set, or of the world in which it was submitted (size() may
                            * differ by now) */
};

/* Fills ret_result for a handle of an allgather, alltoall, gather or scatter for which hvd_wait()
 * or hvd_wait_stream() has returned 0.
 *
 * Returns: 0; -EINVAL: unknown handle, or neither has returned 0 for it.
 * Owner: data and splits belong to the engine (unless data is the request's output) until
 *   hvd_release(), which has to be called once for each such handle.
 * Threads: any. */
HVD_API int hvd_result(hvd_handle handle, struct hvd_result *ret_result);

/* Releases the handle of an allgather, alltoall, gather or scatter, and its result.
 *
 * Threads: any. No other call may use the handle or its result meanwhile, except hvd_wait() in
 *   another thread: then this call does nothing. */
HVD_API void hvd_release(hvd_handle handle);

/* Submit and wait in one call, for tensors in host memory with one dimension. Errors are those of
 * hvd_submit() and hvd_wait(). */
HVD_API int hvd_allreduce(const char *name, const void *input, void *output, int64_t count,
                          enum hvd_dtype dtype, enum hvd_op op);
HVD_API int hvd_broadcast(const char *name, void *data, int64_t count, enum hvd_dtype dtype,
                          int root);
HVD_API int hvd_barrier(const char *name);

/* For a rank whose data has run out before that of others. Until every rank of the job has called
 * it, this rank takes part in what the others submit, in the world and in its sets, with an element
 * that changes nothing: 0 for sum, average, adasum, HVD_BOR and HVD_BXOR, 1 for product, the
 * largest value for min, the smallest for max, all ones for HVD_BAND, no rows for allgather and
 * alltoall. (To a product with a prescale it contributes 1 / prescale, rounded; of integers 1, so
 * that the result is multiplied by the prescale once more.) An average divides by the number of all
 * ranks, also of those that have joined. The results of these operations are dropped on this rank.
 * With HVD_JOIN_ALL=0 (Horovod's rule, for programs that rely on it) it contributes 0 to every
 * allreduce, also to min, max and product, and every other kind but a barrier fails with -EINVAL on
 * the ranks that submit it.
 * A broadcast from it fails with -EINVAL on every rank that submits it; hvd_set_add(),
 * hvd_set_remove() and the hvd_set_form() of this rank fail with -EBUSY.
 *
 * Operations that this rank has submitted before go on. While a rank is in this call nothing runs
 * by a frozen schedule. After it operations without a name are counted from 0 again.
 *
 * Returns: the rank that called it last, the same on every rank, once all have called it, no
 *   operation is in flight on any of them, and all are about to return.
 * In an elastic job the survivors of a loss go on. Then the clocks of their hosts decide which of
 * them called last. While a rank is in this call, hvd_commit() returns 0 on the others and changes
 * nothing.
 *
 * Errors: -EBUSY: another thread of this rank is in it; meanwhile requests, hvd_set_add(),
 *   hvd_set_remove() and hvd_commit() are refused with -EBUSY, too. -ESHUTDOWN: a rank has shut
 *   down without it, 5 s ago (in an elastic job this is no error: the others go on without it).
 *   -ECONNRESET and others as hvd_wait(): the job has failed.
 * Threads: any. Waits for an hvd_commit() in another thread; blocks without a limit, but the stall
 *   report says for which ranks. */
HVD_API int hvd_join(void);

/* Bytes of one element; 0 for an unknown dtype. */
HVD_API size_t hvd_dtype_size(enum hvd_dtype dtype);

/* Names, such as "float32", "sum" and "allreduce". Static strings. */
HVD_API const char *hvd_dtype_name(enum hvd_dtype dtype);
HVD_API const char *hvd_op_name(enum hvd_op op);
HVD_API const char *hvd_kind_name(enum hvd_kind kind);

/* ---- elastic jobs ----------------------------------------------------------------------- */

/* In an elastic job (hvdrun --min-np, --max-np; an HvdJob) the loss of a rank is not an error. The
 * survivors finish the operations in flight, with the same bits on all of them. An average is
 * divided by the number of ranks that contributed: parts of a tensor that were complete when the
 * rank was lost include its contribution, other parts do not. rank() and size() do not change
 * before the next hvd_commit(). Until then the lost rank's part is missing: it adds no rows to an
 * allgather or alltoall, and its rows of a reduce-scatter or alltoall are dropped. A broadcast from
 * it fails with -EOWNERDEAD unless its data had been sent. */

/* Enters the job, on a joiner of an elastic job: waits for the other ranks' next boundary
 * (hvd_commit()) and becomes a member there. On all other ranks it does nothing.
 *
 * A joiner does not delay the ranks that train. Its hvd_init() returns at once; rank() and size()
 * are those that it would have if it entered now. It can load its program, model and data
 * meanwhile. Its first call that needs the other ranks enters by itself: hvd_submit() and the
 * like, hvd_commit(), or this function. rank() and size() may change then. Before it has entered,
 * it may leave by hvd_shutdown() or exit, unnoticed by other ranks; handles are unknown (-EINVAL),
 * counters are 0, and a timeline begins when it enters.
 *
 * Returns: 0: this rank is a member.
 * Errors: -ESHUTDOWN: the job does not need this rank any more (it shrinks, or has ended): the
 *   process should exit. -ETIMEDOUT: the other ranks reached no boundary within the time limit of
 *   hvd_init(); a program that never calls hvd_commit() admits no joiner. After either error, all
 *   calls fail in the same way until hvd_shutdown(). hvd_submit() that enters may also fail with
 *   -ESTALE, with nothing submitted: rank() or size() changed and the request depends on them
 *   (splits, a reduce-scatter).
 * Threads: any. */
HVD_API int hvd_enter(void);

/* The world as of the last boundary. */
struct hvd_world {
    uint64_t size_of_struct; /* in: sizeof(struct hvd_world) of the caller */
    uint32_t epoch;          /* number of the roster; increases with every change */
    int rank, size;
    int source;   /* the lowest rank that was a member before: it has the training state */
    int joined;   /* ranks that have joined since the previous world */
    int left;     /* ranks that have left or were lost since the previous world */
    bool is_new;  /* this rank is a joiner: it has no training state yet */
    bool elastic; /* the job is elastic */
    /* From the news of the last lost rank until work continued; 0: none was lost. */
    uint64_t repair_ns;
    bool waiting; /* this joiner has not been admitted to the world yet: rank and size are those
                   * that it would have; is_new is true, source 0 */
};

/* Fills *ret_world (the caller sets size_of_struct). Returns 0; -ENOTCONN before hvd_init();
 * -EINVAL. Any thread. */
HVD_API int hvd_world(struct hvd_world *ret_world);

/* A boundary: the end of a step, where every rank is at the same place of its program and its
 * state is consistent. All ranks call it; it takes the time of a small allreduce. From here on
 * rank() and size() show the losses since the last boundary, and planned changes (scale up, scale
 * down, drain) take place. Outside an elastic job it returns 0 and waits for no rank.
 *
 * Returns: 0: the world has not changed. 1: it has, see hvd_world(): if ranks have joined, all
 *   ranks now bring the state from world.source to the joiners. A joiner that enters by this call
 *   returns 1, at the boundary at which the other ranks are.
 * Errors: -ESHUTDOWN: this rank was asked to leave and is no longer in the world: the process
 *   should exit. -EBUSY: operations of this rank are in flight: wait for them first. Messages may
 *   be in flight.
 * Threads: any. An operation that another thread submits meanwhile finishes in the old world or
 *   fails with -ESTALE, the same on every rank. An operation that ranks submit in different worlds
 *   also fails with -ESTALE on every rank. */
HVD_API int hvd_commit(void);

/* ---- a look inside ---------------------------------------------------------------------- */

/* Starts writing a timeline (Chrome trace format as a JSON array, for Perfetto) to path. Rank 0
 * writes it; if path contains "%r" every rank writes one, with its rank in place of "%r". It has
 * the operations of that rank, in the world and in its sets: those of a set are called "name (set
 * 1)" and have the set's number among their arguments. mark_cycles: also marks each cycle of the
 * engine. Returns 0 or a negative errno. Any thread. */
HVD_API int hvd_start_timeline(const char *path, bool mark_cycles);
/* Ends the timeline and closes its file. */
HVD_API int hvd_stop_timeline(void);

/* Counters since hvd_init(), of the world and all sets together, for tests and metrics. */
struct hvd_stats {
    uint64_t size;          /* in: sizeof(struct hvd_stats) of the caller */
    uint64_t ops;           /* tensors finished */
    uint64_t batches;       /* batches (of fused tensors) finished */
    uint64_t bytes;         /* payload bytes of inputs */
    uint64_t negotiated;    /* tensors that were announced by a full request */
    uint64_t cached;        /* tensors that were announced by their cache id */
    uint64_t frozen;        /* batches that ran by the frozen schedule, without negotiation */
    uint64_t thaws;         /* how often the frozen schedule was left */
    uint64_t refused;       /* connections refused: wrong key, or not from a rank of this job */
    uint64_t allocations;   /* heap allocations of the engine on the data path */
    uint64_t stalls;        /* stall reports */
    uint64_t submitted;     /* tensors that were submitted, finished or not */
    uint64_t sets;          /* sets that this rank is in now, without the world */
    uint64_t messages_nccl; /* messages between GPUs that NCCL has sent or received */
};

/* Fills *ret_stats (the caller sets size). 0; -ENOTCONN before hvd_init(). Any thread. */
HVD_API int hvd_stats(struct hvd_stats *ret_stats);

/* The state of a back end (HVD_BACKEND). Before hvd_init() none is open. */
struct hvd_backend {
    uint64_t size_of_struct; /* in: sizeof(struct hvd_backend) of the caller */
    bool built;   /* hvd was built with it; for nccl and staged: this machine has what they need */
    bool open;    /* this job uses it, in the world or in a set of this rank's */
    bool threads; /* the program may call the library itself on any thread while hvd uses it */
    char text[512]; /* if open: library, version and file, as in the log; otherwise, for nccl
                     * and staged: what this machine has of them, or why they cannot be used */
};

/* Fills *ret_backend (the caller sets size_of_struct) for "host", "mpi", or a back end for tensors
 * of GPUs, "nccl" or "staged" (through host memory), which are open from the first such tensor on.
 * Returns 0; -EINVAL: no back end of this name. Any thread. */
HVD_API int hvd_backend(const char *name, struct hvd_backend *ret_backend);

#ifdef __cplusplus
}
#endif

#include "hvd_messages.h"
#include "hvd_sets.h"

#endif
