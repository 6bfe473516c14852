/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_private: what nccl_run.c (life and operations) and nccl_run_form.c (epochs) share.
 */
#ifndef HVD_BACKEND_NCCL_RUN_PRIVATE_H
#define HVD_BACKEND_NCCL_RUN_PRIVATE_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_run.h"

/* What calls into NCCL read on threads of their own. It stays when one of them is left behind. */
struct nccl_ground {
    const struct cuda_api *api;
    struct CUctx_st *context;
    struct nccl_run *run; /* for the thread that drives only */
    struct nccl_ground *next;
};

/* How a communicator for this epoch comes about. */
enum nccl_forming {
    FORM_NONE,   /* there will be none */
    FORM_KEEP,   /* the one there is, if it is still good */
    FORM_SHRINK, /* to be begun */
    FORM_SHRINKING,
    FORM_END, /* of the former one: to be begun */
    FORM_ENDING,
    FORM_MAKING, /* a new one */
    FORM_AGREE,  /* is it there on every rank? */
    FORM_CLEAR,  /* until the stream is rid of what was given up */
    FORM_READY,
    FORM_PHASES,
};

struct nccl_form_way {
    enum nccl_forming phase;
    struct coll *coll;
    struct coll_op part;
    struct coll_tensor tensor;
    bool parting;      /* the part is under way */
    bool made;         /* a new one, in this epoch */
    int32_t good;      /* here; of the part: on every rank */
    uint64_t deadline; /* of the part */
    struct err why;    /* not good: this rank's reason */
    int *excluded;     /* [nexcluded], of the former communicator */
    int nexcluded;
    uint8_t *ids;   /* of all ranks, where there are several communicators */
    size_t *counts; /* [world], of that part */
};

enum nccl_doing {
    RUN_IDLE,
    RUN_PLANNED,  /* nothing is on the stream yet: it is not rid of something older */
    RUN_PREPARED, /* inputs are on their way */
    RUN_LAUNCHED, /* NCCL may still be putting it on the stream */
    RUN_BEHIND,   /* all of it is on the stream, and the event behind it */
};

struct nccl_run {
    struct gpu *gpu;
    struct nccl_limits limits;
    const struct nccl_api *api; /* NULL: not loaded */
    struct nccl_ground *ground;
    struct nccl_comm *comm;   /* NULL: as api */
    int comm_rank, comm_size; /* in the communicator */
    struct err no_nccl;       /* why not */

    /* This epoch. */
    bool heard;
    bool kernels;        /* every rank has them */
    int rank, size;      /* in its communicator */
    int me, world, lead; /* in the epoch; lead: who is rank 0 of the communicator */
    bool grouped;        /* one a host */
    struct nccl_form_way form;

    /* The operation. */
    enum nccl_doing doing;
    const struct coll_op *op;
    bool packed;
    struct nccl_steps steps;
    bool direct;              /* packed: large tensors are not */
    struct coll_tensor *seen; /* [cap + 1] packed: what NCCL sees, the buffer first */
    size_t nseen;
    struct gpu_piece *pieces; /* [cap], in and out */
    size_t *counts, *places;  /* [cap] */
    size_t cap;
    size_t out_at; /* in the buffer: where the results are */

    /* What of ours is on the stream. */
    struct cuda_memory fusion;
    struct CUevent_st *event;
    bool used;     /* something is, or was when it was last asked */
    bool marked;   /* the event is behind all of it */
    bool given_up; /* what was launched never ends by itself */
    uint64_t drain_deadline;
};

/* Words for a communicator that is not there. */
int nccl_run_none(const struct nccl_run *run, struct err *err);

/* Loads NCCL where it is not. -errno with run->no_nccl. */
int nccl_run_load(struct nccl_run *run);

/* 1: something of ours is on the stream, 0: nothing. */
int nccl_run_settle(struct nccl_run *run, struct err *err);

/* What is under way is nobody's any more; the communicator is not touched. */
void nccl_run_give_up(struct nccl_run *run);

/* Frees what the way to a communicator has. */
void nccl_run_forget_form(struct nccl_run *run);

/* For nccl_host. */
int nccl_run_exchange(void *ctx, void *data, size_t n);

#endif
