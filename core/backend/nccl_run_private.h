/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_private: what nccl_run.c (life and operations) and nccl_run_form.c (epochs) share.
 */
#ifndef HVD_BACKEND_NCCL_RUN_PRIVATE_H
#define HVD_BACKEND_NCCL_RUN_PRIVATE_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_run.h"

/* What calls into NCCL read on their own threads. It is not freed when one of these threads hangs.
 */
struct nccl_ground {
    const struct cuda_api *api;
    struct CUctx_st *context;
    struct nccl_run *run; /* only for the thread that drives the engine */
    struct nccl_ground *next;
};

/* The phases in which this epoch gets a communicator. */
enum nccl_forming {
    FORM_NONE,    /* there will be no communicator */
    FORM_ENDING,  /* waits for the abort of the former communicator */
    FORM_MAKING,  /* creates a new communicator */
    FORM_MEETING, /* a barrier: every rank has the communicator */
    FORM_CLEAR,   /* waits until no work of a cancelled operation is on the stream */
    FORM_READY,
    FORM_PHASES,
};

struct nccl_form_way {
    enum nccl_forming phase;
    struct coll *coll;
    struct coll_op part;
    struct coll_tensor tensor;
    bool parting;      /* part is in progress */
    uint64_t deadline; /* of FORM_MEETING */
};

enum nccl_doing {
    RUN_IDLE,
    RUN_PLANNED,  /* none of its work is on the stream, which still has older work */
    RUN_PREPARED, /* inputs are being packed */
    RUN_LAUNCHED, /* NCCL may still be putting it on the stream */
    RUN_BEHIND,   /* all of it is on the stream, followed by the event */
};

struct nccl_run {
    struct gpu *gpu;
    struct nccl_limits limits;
    const struct nccl_api *api; /* NULL: not loaded */
    struct nccl_ground *ground;
    struct nccl_comm *comm; /* NULL: NCCL is not loaded */
    struct err no_nccl;     /* why NCCL is not loaded */

    /* This epoch. */
    bool heard;
    bool kernels; /* every rank has hvd's kernels */
    int rank, size;
    struct nccl_form_way form;

    /* The operation. */
    enum nccl_doing doing;
    const struct coll_op *op;
    bool packed;
    struct nccl_steps steps;
    bool direct;              /* if packed: large tensors are not packed */
    struct coll_tensor *seen; /* [cap + 1] if packed: what NCCL sees, the buffer first */
    size_t nseen;
    struct gpu_piece *pieces; /* [cap], in and out */
    size_t *counts, *places;  /* [cap] */
    size_t cap;
    size_t out_at; /* offset of the results in the buffer */

    /* hvd's work on the stream. */
    struct cuda_memory fusion;
    struct CUevent_st *event;
    bool used;     /* hvd's work is on the stream, or was at the last check */
    bool marked;   /* event was recorded after all of hvd's work on the stream */
    bool given_up; /* the launched work never ends by itself */
    uint64_t drain_deadline;
};

/* Fills err with the reason why there is no communicator. */
int nccl_run_none(const struct nccl_run *run, struct err *err);

/* Loads NCCL if it is not loaded yet. On an error: -errno, and the reason in run->no_nccl. */
int nccl_run_load(struct nccl_run *run);

/* 1: work of hvd is on the stream, 0: none. */
int nccl_run_settle(struct nccl_run *run, struct err *err);

/* Returns whether the communicator is still being aborted, after making progress on that. */
bool nccl_run_aborting(struct nccl_run *run);

/* For nccl_host. */
int nccl_run_exchange(void *ctx, void *data, size_t n);

#endif
