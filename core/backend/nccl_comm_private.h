/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm_private: what nccl_comm.c (the machine) and nccl_comm_acts.c (what each phase does)
 * share.
 */
#ifndef HVD_BACKEND_NCCL_COMM_PRIVATE_H
#define HVD_BACKEND_NCCL_COMM_PRIVATE_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_call.h"
#include "core/backend/nccl_comm.h"
#include "core/backend/nccl_thread.h"

/* A communicator that is being aborted. thread NULL: there is none. */
struct nccl_burial {
    struct nccl_thread *thread; /* the communicator's former thread */
    struct nccl_call *abort;    /* NULL: nothing to abort yet */
    struct nccl_call *kept;     /* was in progress; the abort is queued after it on the thread */
    bool inits;      /* kept is an init: the communicator that it creates is aborted too */
    uint64_t hasten; /* when kept is to be ended by the abort */
    uint64_t deadline;
};

struct nccl_comm {
    const struct nccl_api *api;
    struct nccl_host host;
    struct nccl_limits limits;
    int rank, size;
    enum nccl_phase phase;
    uint64_t deadline;          /* when the current phase times out */
    struct ncclComm *handle;    /* NULL: there is none */
    struct nccl_thread *thread; /* runs the communicator's calls; NULL: there were none yet */
    struct nccl_call *call;     /* in progress or finished; NULL: none */
    enum nccl_phase call_of;    /* the phase that started the call */
    const char *doing;          /* name of the call in progress, for messages */
    struct nccl_abi_id id;
    struct nccl_burial burial;
    int abandoned;
    /* arguments of nccl_comm_launch(), while its action runs */
    const struct nccl_steps *steps;
    struct CUstream_st *stream;
    struct err err;
};

/* -ENOTSUP: NCCL_COMM_BLOCKING is set, perhaps by NCCL itself from its configuration file, which it
 * reads when the first communicator is created. */
int nccl_refuse_blocking(const struct nccl_api *api, struct err *err);

/* Actions of the table. */
int nccl_begin_id(struct nccl_comm *c, struct err *err);
int nccl_take_id(struct nccl_comm *c, struct err *err);
int nccl_begin_init(struct nccl_comm *c, struct err *err);
int nccl_begin_launch(struct nccl_comm *c, struct err *err);
int nccl_begin_abort(struct nccl_comm *c, struct err *err);
int nccl_become_ready(struct nccl_comm *c, struct err *err);

/* Polls the current phase: 1: still in progress, 0: done, -errno with c->err. */
int nccl_look(struct nccl_comm *c);

/* Makes progress on the burial. Returns whether it is in progress. */
bool nccl_bury_on(struct nccl_comm *c);

/* err: "NCCL 2.27.7 (file), rank 1 of 4: <doing>: <what NCCL says>". Returns a negative errno. */
int nccl_say(const struct nccl_comm *c, int result, struct err *err);

#endif
