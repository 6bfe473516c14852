/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_steps: an operation of ours as a list of NCCL's calls (pure; under the progress lock), and
 * the making of these calls.
 *
 *   allreduce      one ncclAllReduce a tensor
 *   allgather      ncclAllGather, or where ranks give different amounts a ncclBroadcast from each
 *   broadcast      ncclBroadcast
 *   alltoall       ncclSend and ncclRecv with each rank; the own part is a copy
 *   reducescatter  ncclReduceScatter, or where parts differ a ncclReduce to each
 *
 * Operations that only move data use bytes, for every dtype. Reductions need a type that NCCL has:
 *
 *   uint8 int8 int32 int64 float16 float32 float64   as they are
 *   bfloat16         as it is in builds for CUDA 11 and newer, otherwise as float32 (kernels)
 *   int16 uint16     as int32, and cut to 16 bits afterwards (kernels)
 *   bool             as uint8: "or" is the maximum, "and" the minimum; then all but 0 becomes 1
 *                    (kernels)
 *
 * Factors: an average of a float type is ncclAvg; another factor of a float sum becomes PreMulSum,
 * which multiplies the inputs by it, rounded to the tensor's type. All other factors (of integers,
 * products, minima) need kernels. A caller that packs and unpacks anyway sets nccl_means.kernels
 * (core/backend/cuda: kernels scale and convert in float32 or better) and then applies all factors.
 * For a tensor that needs no packing, the caller tries without kernels first: a factor applied by
 * NCCL saves a pass over the data.
 */
#ifndef HVD_BACKEND_NCCL_STEPS_H
#define HVD_BACKEND_NCCL_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/coll/coll.h"

struct CUstream_st;
struct ncclComm;
struct nccl_api;

/* What NCCL and the caller can do. */
struct nccl_means {
    int version;  /* NCCL's version, such as 22707 */
    int cuda;     /* the CUDA version that NCCL was built for, such as 13000; 0: unknown */
    bool kernels; /* the caller can scale and convert */
};

/* The form in which NCCL gets the values of an operation. */
struct nccl_form {
    enum hvd_dtype dtype; /* dtype of the buffers that NCCL sees; if the operation has another one,
                             the caller converts before and after */
    int type, op;         /* NCCL's constants; type is bytes if nothing is reduced */
    double factor;        /* != 1: op is a PreMulSum with this factor, not created yet */
    /* What the caller's kernels do: inputs times prescale; results divided by divisor (after they
     * are of the operation's dtype again), then times postscale; bool: made 0 or 1. */
    double prescale, postscale;
    int divisor;
    bool to_bool;
};

enum nccl_verb {
    NCCL_ALLREDUCE,
    NCCL_REDUCE,
    NCCL_BROADCAST,
    NCCL_ALLGATHER,
    NCCL_REDUCESCATTER,
    NCCL_SEND,
    NCCL_RECV,
    NCCL_COPY, /* a copy by the caller, on the same stream */
    NCCL_VERBS,
};

struct nccl_step {
    enum nccl_verb verb;
    int peer; /* rank of the peer, or the root */
    const void *in;
    void *out;
    size_t count; /* elements of form.type; for NCCL_COPY bytes */
};

struct nccl_steps {
    struct nccl_form form;
    struct nccl_step *v; /* grows, and is reused */
    size_t n, cap;
};

/* 0: *ret is a form in which NCCL can run the operation. -ENOTSUP: there is none; err says what is
 * missing. */
int nccl_form_of(const struct nccl_means *means, const struct coll_op *op, int size,
                 struct nccl_form *ret, struct err *err);

/* Returns whether NCCL would multiply by a factor that a 16-bit type only approximates (1/3 in
 * bfloat16 is off by 0.2 %). hvd's kernels multiply in float32. */
bool nccl_form_is_rough(const struct nccl_form *form, int size);

/* tensors: buffers of the form's dtype. Zero-sized parts have no step; an operation that moves
 * nothing has none at all. -ENOTSUP, -ENOMEM. */
int nccl_steps_make(const struct nccl_means *means, const struct coll_op *op, int rank, int size,
                    struct nccl_steps *ret, struct err *err);

void nccl_steps_fini(struct nccl_steps *steps);

/* What a creator of communicators provides. ctx must stay valid as long as calls may be left
 * behind, see nccl_comm_destroy(). */
struct nccl_host {
    void *ctx;
    /* Makes the GPU's context current on the calling thread, which only calls NCCL (caller.h),
     * before each call. 0 or -errno; NULL: not needed. */
    int (*bind)(void *ctx);
    /* Adds a copy on the device to the stream. Runs on the launching thread, which may be such a
     * thread. 0 or -errno. */
    int (*copy)(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream);
};

/* Where steps are put. */
struct nccl_issue {
    const struct nccl_api *api;
    const struct nccl_host *host;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    const struct nccl_steps *steps;
};

/* Puts steps onto the stream, as one group. The GPU's context must be current on the calling
 * thread. Returns NCCL's result, which may be NCCL_ABI_IN_PROGRESS. *ret_call names the call that
 * failed. */
int nccl_issue(const struct nccl_issue *issue, const char **ret_call);

#endif
