/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: operations on a GPU by NCCL: from what the ranks say of themselves to a communicator,
 * and from an operation to packed tensors, calls on the GPU's stream, and their end.
 *
 * One a rank, for as long as the engine lives; it goes through epochs. In each one, before the
 * first operation on a GPU:
 *
 *     nccl_run_say()     what this rank has, loading NCCL the first time: goes to all ranks
 *     nccl_run_hear()    what all have said: the verdict, and what becomes of the communicator
 *     nccl_run_form()    until it is ready: all ranks at the same place of the log
 *
 * and for each operation:
 *
 *     nccl_run_prepare() tensors into the fusion buffer, as soon as they are there; still nothing
 *                        that others would notice: nccl_run_cancel() takes it back
 *     nccl_run_launch()  when every rank has come to it
 *     nccl_run_progress()until the results are in the outputs
 *
 * Everything runs under the progress lock, in a visit of the GPU. Never sleeps.
 *
 * How tensors travel: a single one that NCCL can do as it is goes from its memory to its memory.
 * Others are packed into one buffer by one launch of hvd's kernels, which scale and convert on the
 * way, reduced by one call, and unpacked by one launch. Large ones among them that need no kernel
 * go as they are, in the same group of calls: to pack them would be two passes over memory. Without
 * kernels several tensors are a group of calls.
 */
#ifndef HVD_BACKEND_NCCL_RUN_H
#define HVD_BACKEND_NCCL_RUN_H

#include "core/backend/gpu.h"
#include "core/backend/nccl_comm.h"
#include "core/backend/nccl_facts.h"

struct nccl_run;

/* What a rank says of itself in an epoch. Plain bytes. */
struct nccl_said {
    struct nccl_fact fact;
    struct nccl_survivor survivor;
    int32_t was;  /* ranks of the communicator that it tells of */
    bool kernels; /* ours are used where every rank has them */
};

/* limits NULL: NCCL_LIMITS_DEFAULT. gpu outlives it. */
int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err);

/* Ends what there is; bounded. False: something of NCCL's was left behind with a thread of its own,
 * which still uses the GPU: the GPU's memory must stay. NULL is fine. */
bool nccl_run_destroy(struct nccl_run *run);

/* Loads NCCL and asks GPU and driver. What is missing is in ret->fact.why: no error here. */
void nccl_run_say(struct nccl_run *run, struct nccl_said *ret);

/* all: [size], in the order of the ranks of this epoch. host_of: NULL: one communicator of all
 * ranks; else each rank's host, from 0 on: one for the ranks of each host, and the hosts go the
 * same way. NCCL_BAD: no communicator, err has the line for people; NCCL_WARN: err has a line for
 * the log (code 0 all the same). */
enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_said *all, int rank,
                                int size, const int *host_of, struct err *err);

/* 1: on its way; 0: ready on every rank, and nothing on the stream is left of an operation that was
 * launched before and given up. May run parts of the operation under way of coll
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

/* For who packs by himself and needs several calls for an operation (hier.h): instead of prepare
 * and launch a call of NCCL's at a time, behind what is on the GPU's stream. op: on memory of the
 * device, in a dtype of NCCL's, without factors; its counts are those of the communicator's ranks.
 * Then nccl_run_called() until it answers 0: it is on the stream, and other things may be put
 * there; later, that nothing has failed since. nccl_run_progress() is for the end of all of them.
 */
int nccl_run_call(struct nccl_run *run, const struct coll_op *op, struct err *err);
int nccl_run_called(struct nccl_run *run, struct err *err);

/* He has put something of an operation onto the GPU's stream. */
void nccl_run_use(struct nccl_run *run);

/* What to plan with, kernels included. */
struct nccl_means nccl_run_means(const struct nccl_run *run);

/* Of what was prepared and not launched: nothing of it will touch the tensors' outputs. Inputs may
 * still be read until nccl_run_drained() answers 0. A part of nccl_run_form() that is under way is
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
