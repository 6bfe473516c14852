/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_private: what nccl_run.c (life and operations) and nccl_run_form.c (epochs) share.
 */
#ifndef HVD_BACKEND_NCCL_RUN_PRIVATE_H
#define HVD_BACKEND_NCCL_RUN_PRIVATE_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_flight.h"
#include "core/backend/nccl_run.h"

/* What calls into NCCL read on their own threads. It is not freed when one of these threads hangs.
 */
struct nccl_ground {
    const struct cuda_api *api;
    struct CUctx_st *context;
    struct nccl_ground *next;
};

#define NCCL_MARKS 3 /* streams of struct gpu */

struct nccl_run {
    struct gpu *gpu;
    struct nccl_limits limits;
    const struct nccl_api *api; /* NULL: not loaded */
    struct nccl_ground *ground;
    struct nccl_comm *comm; /* NULL: NCCL is not loaded */
    struct err no_nccl;     /* why NCCL cannot be used here */

    /* This epoch. */
    bool heard;   /* all ranks can have a communicator */
    bool ready;   /* this rank has it */
    bool kernels; /* every rank has hvd's kernels */
    int rank, size;
    struct nccl_abi_id id;
    bool unused; /* this rank made id, and no communicator was made with it. NCCL keeps a thread
                    and a socket for an id until that happens */

    /* Operations. */
    struct nccl_way way;
    struct nccl_flight *first, **end; /* not released, oldest first */
    struct nccl_flight *aloft;        /* the first that has not landed; NULL: none */
    struct nccl_flight *next;         /* the first whose event is not recorded yet; NULL: none */
    size_t called, landed;
    struct nccl_flight *owed; /* given back and not restored yet */
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

/* Fills err with the reason why there is no communicator. */
int nccl_run_none(const struct nccl_run *run, struct err *err);

/* Loads NCCL if it is not loaded yet. On an error: -errno, and the reason in run->no_nccl. */
int nccl_run_load(struct nccl_run *run);

/* 1: work of hvd is on the streams, 0: none. */
int nccl_run_settle(struct nccl_run *run, struct err *err);

/* Returns whether the communicator is still being aborted, after making progress on that. */
bool nccl_run_aborting(struct nccl_run *run);

#endif
