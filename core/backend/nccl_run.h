/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: operations on a GPU by NCCL: creates a communicator from the ranks' reports, packs
 * the tensors of an operation, calls NCCL on the GPU's stream, and waits for the end.
 *
 * Each rank has one, for as long as the engine exists. In each epoch, before the first operation on
 * a GPU:
 *
 *     nccl_run_say()      reports what this rank has (loads NCCL the first time); sent to all ranks
 *     nccl_run_hear()     takes what all ranks sent: the verdict. Aborts the communicator of the
 *                         former epoch
 *     nccl_run_form()     until the new one is ready: all ranks call it at the same position of the
 *                         log
 *
 * and for each operation:
 *
 *     nccl_run_prepare()   packs inputs into the fusion buffer as soon as they are complete; other
 *                          ranks do not notice, and nccl_run_cancel() undoes it
 *     nccl_run_launch()    when every rank has entered the operation
 *     nccl_run_progress()  until the results are in the outputs
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

#include "core/backend/gpu.h"
#include "core/backend/nccl_comm.h"
#include "core/backend/nccl_facts.h"

struct nccl_run;

/* limits NULL: NCCL_LIMITS_DEFAULT. gpu outlives it. */
int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err);

/* Destroys run; bounded in time. False: a call was abandoned in NCCL on a thread, which still uses
 * the GPU: the GPU's memory must not be freed. NULL is allowed. */
bool nccl_run_destroy(struct nccl_run *run);

/* Loads NCCL and queries GPU and driver. If something is missing, ret->why says what: this is no
 * error here. rank: this rank in the new epoch. */
void nccl_run_say(struct nccl_run *run, int rank, struct nccl_fact *ret);

/* Takes all ranks' reports. all: [size], in the order of the ranks of this epoch. NCCL_BAD: no
 * communicator is possible, err has the sentence for the user; NCCL_WARN: err has a line for the
 * log, and its code is 0. */
enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *err);

/* Makes progress on the communicator. 1: in progress; 0: it is ready on every rank, and no work of
 * an operation that was given up is on the stream any more. May run parts of coll's operation in
 * flight (coll_part_start()), the same parts on every rank. */
int nccl_run_form(struct nccl_run *run, struct coll *coll, struct err *err);

/* Call nccl_run_prepare() after nccl_run_hear(), also while nccl_run_form() is in progress; launch
 * after nccl_run_form() has returned 0. op must stay valid until the operation ends. Inputs are
 * read after op->ready. -ENOTSUP, the same on every rank: neither NCCL nor our kernels can run op;
 * err says why. */
int nccl_run_prepare(struct nccl_run *run, const struct mesh *mesh, const struct coll_op *op,
                     struct err *err);
int nccl_run_launch(struct nccl_run *run, struct err *err);

/* 1: in progress; 0: the results are in the outputs, and nothing on the stream touches tensors any
 * more. -errno: NCCL or the GPU has failed; the loss of another rank is reported in this way too.
 */
int nccl_run_progress(struct nccl_run *run, struct err *err);

/* Cancels an operation that was prepared and not launched: it will not touch the outputs. Its
 * inputs may still be read until nccl_run_drained() returns 0. Also cancels a part of
 * nccl_run_form() that is in flight, whose coll must still exist. */
void nccl_run_cancel(struct nccl_run *run);

/* Starts to abort the launched operation (ncclCommAbort). Later work on the stream then runs.
 * nccl_run_drained() returns 1 while work of the operation is on the stream, then 0; -ETIMEDOUT:
 * the operation does not end in this process. Does not touch a part of nccl_run_form(): if its coll
 * still exists and will be used, call nccl_run_cancel() first. */
void nccl_run_abort(struct nccl_run *run);
int nccl_run_drained(struct nccl_run *run, struct err *err);

/* "2.27.7 (/usr/lib/libnccl.so.2, mapped already)": for log and hvd_backend(). */
void nccl_run_describe(const struct nccl_run *run, char *dst, size_t size);

#endif
