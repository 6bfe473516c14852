/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_flight: one operation on its way through NCCL, on three streams of the GPU, so that the
 * inputs of one operation are packed and the results of another unpacked while NCCL runs a third:
 *
 *     gpu->stream   waits for the inputs, copies those that must be retained, packs
 *     gpu->call     NCCL
 *     gpu->out      unpacks
 *
 * Events connect the streams; the host waits for none of them. An operation that needs no packing
 * uses gpu->call alone. Part of nccl_run, which owns the flights and calls the functions in this
 * order for each: plan, pack, call, follow. Under the progress lock, in a visit of the GPU.
 */
#ifndef HVD_BACKEND_NCCL_FLIGHT_H
#define HVD_BACKEND_NCCL_FLIGHT_H

#include "core/backend/kept.h"
#include "core/backend/nccl_comm.h"

enum nccl_stage {
    FLIGHT_PLANNED, /* nothing of it is on a stream */
    FLIGHT_PACKED,  /* inputs are being packed */
    FLIGHT_CALLED,  /* NCCL may still be putting it on its stream */
    FLIGHT_BEHIND,  /* all of it is on streams, and `done` is recorded behind it */
    FLIGHT_DONE,    /* the results are in the outputs */
};

struct nccl_flight {
    struct nccl_flight *next;
    enum nccl_stage stage;
    bool aside;              /* a message of two ranks: released alone, not counted */
    struct kept kept;        /* the operation */
    struct nccl_steps steps; /* it as NCCL's calls */
    size_t buffered;         /* elements that go through the buffer; 0: NCCL uses the tensors */
    bool direct;             /* large tensors do not go through it */
    size_t out_at;           /* offset of the results in the buffer */
    size_t out_count;        /* reduce-scatter: elements of this rank's result */
    struct cuda_memory buffer;
    size_t bytes; /* of memory that this operation uses */
    /* Recorded when the inputs are packed, when NCCL has run, and when the results are in the
     * outputs. */
    struct CUevent_st *inputs, *called, *done;
};

/* The means with which all flights of a struct nccl_run are planned and launched. */
struct nccl_way {
    struct gpu *gpu;
    struct nccl_means means;
    bool kernels; /* every rank has hvd's kernels */
    int rank, size;
};

/* Gives the memory of the operation back: it has ended. */
void nccl_flight_drop(struct nccl_flight *flight, struct gpu *gpu);

int nccl_flight_create(struct gpu *gpu, struct nccl_flight **ret, struct err *err);

/* gpu NULL: what is on the device is left as it is, because NCCL may still use it. */
void nccl_flight_destroy(struct nccl_flight *flight, struct gpu *gpu);

/* Whether NCCL, or NCCL and the kernels, can run op: the same answer on every rank. -ENOTSUP: err
 * says why not. Touches no stream. */
int nccl_flight_possible(const struct nccl_way *way, const struct coll_op *op, struct err *err);

/* Copies op and chooses how NCCL runs it. retain: see kept_take(). -ENOTSUP as above. */
int nccl_flight_plan(struct nccl_flight *flight, const struct nccl_way *way,
                     const struct coll_op *op, bool retain, struct err *err);

int nccl_flight_pack(struct nccl_flight *flight, const struct nccl_way *way, struct err *err);

/* Starts NCCL's calls (nccl_comm_launch()). */
int nccl_flight_call(struct nccl_flight *flight, const struct nccl_way *way, struct nccl_comm *comm,
                     struct err *err);

/* The event behind the operation's work on the streams. NULL: there is none, or NCCL is still
 * putting it there. */
struct CUevent_st *nccl_flight_last(const struct nccl_flight *flight);

/* NCCL has put its work on the stream: unpacks behind it. */
int nccl_flight_follow(struct nccl_flight *flight, const struct nccl_way *way, struct err *err);

#endif
