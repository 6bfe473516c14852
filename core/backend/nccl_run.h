/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: operations on a GPU by NCCL: creates a communicator from the ranks' reports, packs
 * the tensors of an operation, calls NCCL on the GPU's stream, and waits for the end.
 *
 * Each rank has one, for as long as the engine exists. In each epoch, before the first operation on
 * a GPU:
 *
 *     nccl_run_say()      reports what this rank has (loads NCCL the first time); sent to all ranks
 *     nccl_run_hear()     takes what all ranks sent: the verdict, and whether the communicator is
 *                         kept, shrunk or new
 *     nccl_run_form()     until it is ready: all ranks call it at the same position of the log
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

/* What each rank reports of itself at the start of an epoch. Sent as plain bytes. */
struct nccl_said {
    struct nccl_fact fact;
    struct nccl_survivor survivor;
    int32_t was;  /* size of the communicator that survivor is about */
    bool kernels; /* this rank has hvd's kernels; they are used only if every rank has them */
};

/* limits NULL: NCCL_LIMITS_DEFAULT. gpu outlives it. */
int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err);

/* Destroys it; bounded in time. False: a call was abandoned in NCCL on a thread, which still uses
 * the GPU: the GPU's memory must not be freed. NULL is allowed. */
bool nccl_run_destroy(struct nccl_run *run);

/* Loads NCCL and queries GPU and driver. If something is missing, ret->fact.why says what: this is
 * no error here. */
void nccl_run_say(struct nccl_run *run, struct nccl_said *ret);

/* all: [size], in the order of the ranks of this epoch. host_of: NULL: one communicator of all
 * ranks; else each rank's host, from 0 on: one for the ranks of each host, and the hosts go the
 * same way. NCCL_BAD: no communicator, err has the line for people; NCCL_WARN: err has a line for
 * the log (code 0 all the same). */
enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_said *all, int rank,
                                int size, const int *host_of, struct err *err);

/* 1: on its way; 0: ready on every rank, and nothing on the stream is left of an operation that was
 * launched before and given up. May run parts of the operation in flight of coll
 * (coll_part_start()), the same ones on every rank. */
int nccl_run_form(struct nccl_run *run, struct coll *coll, struct err *err);

/* After nccl_run_hear(); nccl_run_form() may still be on its way. op stays until the end. Inputs
 * are read behind op->ready. -ENOTSUP: neither NCCL nor our kernels can do it, err says why; the
 * same on every rank. */
int nccl_run_prepare(struct nccl_run *run, const struct mesh *mesh, const struct coll_op *op,
                     struct err *err);
int nccl_run_launch(struct nccl_run *run, struct err *err);

/* 1: on its way; 0: the results are in the outputs, and nothing on the stream touches tensors any
 * more. -errno: NCCL or the GPU has failed; a dead rank shows so too. */
int nccl_run_progress(struct nccl_run *run, struct err *err);

/* For callers that pack themselves and need several calls for an operation (hier.h): instead of
 * prepare and launch a call of NCCL's at a time, behind what is on the GPU's stream. op: on memory
 * of the device, in a dtype of NCCL's, without factors; its counts are those of the communicator's
 * ranks. Then nccl_run_called() until it answers 0: it is on the stream, and other things may be
 * put there; later, that nothing has failed since. nccl_run_progress() is for the end of all of
 * them.
 */
int nccl_run_call(struct nccl_run *run, const struct coll_op *op, struct err *err);
int nccl_run_called(struct nccl_run *run, struct err *err);

/* The caller has added work of an operation to the GPU's stream. */
void nccl_run_use(struct nccl_run *run);

/* What to plan with, kernels included. */
struct nccl_means nccl_run_means(const struct nccl_run *run);

/* Of what was prepared and not launched: nothing of it will touch the tensors' outputs. Inputs may
 * still be read until nccl_run_drained() answers 0. A part of nccl_run_form() that is in flight is
 * cancelled, too: its coll must still be there. */
void nccl_run_cancel(struct nccl_run *run);

/* The operation that was launched will never end, or nobody waits for it any more: begins to end it
 * (ncclCommAbort). What is on the stream behind it comes to its turn. Then nccl_run_drained()
 * answers 1 until nothing of it is on the stream, 0 from then on; -ETIMEDOUT: it will not end in
 * this process. A part of nccl_run_form() is not touched: where its coll is still there and shall
 * be used, nccl_run_cancel() comes first. */
void nccl_run_abort(struct nccl_run *run);
int nccl_run_drained(struct nccl_run *run, struct err *err);

/* "2.27.7 (/usr/lib/libnccl.so.2, mapped already)": for log and hvd_backend(). */
void nccl_run_describe(const struct nccl_run *run, char *dst, size_t size);

#endif
