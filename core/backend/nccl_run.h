/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: operations on a GPU by NCCL: creates a communicator from the ranks' reports, packs
 * the tensors of an operation, calls NCCL on the GPU's stream, and waits for the end.
 *
 * Each rank has one, for as long as the engine exists. In each epoch, before the first operation on
 * a GPU:
 *
 *     nccl_run_abort()    gives up the former epoch
 *     nccl_run_say()      what this rank has (loads NCCL the first time; rank 0 adds the id of the
 *                         communicator); sent to all ranks
 *     nccl_run_hear()     takes what all ranks sent: the verdict
 *     nccl_run_form()     until the communicator is ready here; then the ranks must meet, so that
 *                         no rank continues alone
 *
 * Then operations are added, in the same order on all ranks; several are in flight:
 *
 *     nccl_run_add()       packs inputs as soon as they are complete, and calls NCCL, which waits
 *                          for the other ranks
 *     nccl_run_progress()  continues with what has to follow an earlier step
 *     nccl_run_release()   ends their use
 *
 * After a loss:
 *
 *     nccl_run_abort()      aborts the communicator
 *     nccl_run_give_back()  ends the use of all operations that are not released
 *     nccl_run_restore()    when the streams are free of them, copies their retained inputs back
 *
 * Everything runs under the progress lock, in a visit of the GPU. Never sleeps.
 *
 * A single tensor whose type and scaling NCCL supports is passed to it without a copy. Other
 * tensors are packed into one buffer by one launch of hvd's kernels, which also scale and convert;
 * one call reduces the buffer, and one launch unpacks it. Large tensors that need no kernel are
 * passed without a copy in the same group of calls, because packing would cost two passes over
 * memory. Without kernels several tensors are a group of calls.
 */
#ifndef HVD_BACKEND_NCCL_RUN_H
#define HVD_BACKEND_NCCL_RUN_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_context.h"
#include "core/backend/nccl_facts.h"
#include "core/backend/nccl_flight.h"

#define NCCL_MARKS 3 /* streams of struct gpu */

struct nccl_run {
    struct gpu *gpu;
    struct nccl_limits limits;
    const struct nccl_api *api; /* NULL: not loaded */
    struct nccl_context *context;
    struct nccl_comm *comm; /* NULL: NCCL is not loaded */
    struct err no_nccl;     /* why NCCL cannot be used here */

    /* This epoch. */
    bool heard;                /* all ranks can have a communicator */
    bool ready;                /* this rank has it */
    struct gpu_room_part part; /* its part of the GPU's memory */
    struct nccl_abi_id id;
    /* Rank 0 has made id, and no rank uses it because of the verdict. The next epoch takes the same
     * one: NCCL keeps a thread and a socket for an id until a communicator is made with it. */
    bool unused;

    struct nccl_way way; /* valid if heard */

    /* Operations. */
    struct nccl_flight *first, **end; /* not released, oldest first */
    struct nccl_flight *owed;         /* given back and not restored yet */
    struct nccl_flight *spare;
    size_t out;   /* operations that are not in spare */
    size_t bytes; /* of memory that these use */

    /* hvd's work on the streams. */
    struct CUevent_st *marks[NCCL_MARKS];
    bool used;     /* hvd's work is on the streams, or was at the last check */
    bool marked;   /* marks were recorded after all of hvd's work */
    bool given_up; /* launched work never ends by itself */
    uint64_t drain_deadline, program_deadline; /* for aborted work; for the program's before it */
};

/* limits NULL: NCCL_LIMITS_DEFAULT. gpu outlives it. */
int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err);

/* Destroys run; bounded in time. False: a call was abandoned in NCCL on a thread, which still uses
 * the GPU: the GPU's memory must not be freed. NULL is allowed. */
bool nccl_run_destroy(struct nccl_run *run);

/* Loads NCCL and queries GPU and driver. If something is missing, ret->why says what: this is no
 * error here. rank, size: in the new epoch. 1: in progress, call it again; 0: *ret is complete. */
int nccl_run_say(struct nccl_run *run, int rank, int size, struct nccl_fact *ret);

/* Takes all ranks' reports. all: [size], in the order of the ranks of this epoch. Returns the
 * verdict of nccl_facts_judge(); NCCL_BAD: no communicator is possible. */
enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *ret_why);

/* Creates the communicator. 1: in progress; 0: it is ready on this rank. */
int nccl_run_form(struct nccl_run *run, struct err *err);

/* After nccl_run_hear(): whether NCCL and the kernels that all ranks have can run op: 0. -ENOTSUP,
 * the same on every rank: err says why not. */
int nccl_run_possible(struct nccl_run *run, const struct coll_op *op, struct err *err);

/* How many operations have reached this stage, from the oldest one that is not released up to the
 * first one that has not. Operations that are aside are not counted, but one that has not reached
 * the stage ends the count, too. */
size_t nccl_run_count(const struct nccl_run *run, enum nccl_stage stage);

/* False: too much is in flight; wait until operations are released. */
bool nccl_run_has_room(const struct nccl_run *run);

/* After nccl_run_form() has returned 0, as device_add(). retain: see kept_take(). */
int nccl_run_add(struct nccl_run *run, const struct coll_op *op, bool retain,
                 struct nccl_flight **ret, struct err *err);

/* -errno: NCCL or the GPU has failed; the loss of another rank is reported in this way too. */
int nccl_run_progress(struct nccl_run *run, struct err *err);

/* Ends the use of the oldest n operations, which are done, and are not aside. */
void nccl_run_release(struct nccl_run *run, size_t n);

/* Ends the use of an operation that is aside, and done. */
void nccl_run_release_aside(struct nccl_run *run, struct nccl_flight *flight);

/* Later work on the stream waits for the operation. 1: NCCL is still putting it on its stream. */
int nccl_run_await(struct nccl_run *run, const struct nccl_flight *flight,
                   struct CUstream_st *stream, struct err *err);

/* Starts to abort the communicator (ncclCommAbort), if there is one. Operations that are aside are
 * given back. */
void nccl_run_abort(struct nccl_run *run);

/* After nccl_run_abort(): ends the use of all operations. */
void nccl_run_give_back(struct nccl_run *run);

/* 1: work of operations is on the streams, and may touch their tensors; 0: none is; -ETIMEDOUT: the
 * communicator was aborted, and its work does not end in this process. The limit begins when the
 * program's own work before an operation has ended, which may take as long as a step. */
int nccl_run_drained(struct nccl_run *run, struct err *err);

/* Waits like nccl_run_drained(). When it returns 0, the retained inputs of the operations that were
 * given back for that are being copied back, and later work on the streams waits for it. */
int nccl_run_restore(struct nccl_run *run, struct err *err);

/* As device_owes(). */
bool nccl_run_owes(const struct nccl_run *run);

#endif
