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

/* What rank 0 tells the others. */
struct nccl_ticket {
    struct nccl_abi_id id;
    int32_t result; /* of ncclGetUniqueId; nobody begins unless it is 0 */
};

/* An old communicator on its way out, beside whatever phase. Free where thread is NULL. */
struct nccl_burial {
    struct nccl_thread *thread; /* was the communicator's */
    struct nccl_call *abort;    /* NULL: there is nothing to abort yet */
    struct nccl_call *kept;     /* was under way; the abort is behind it on the thread */
    enum nccl_phase kept_of;    /* an init's or a shrink's communicator goes too */
    uint64_t hasten;            /* what is under way is to be ended by the abort */
    uint64_t deadline;
};

#define NCCL_BURIALS 4

struct nccl_comm {
    const struct nccl_api *api;
    struct nccl_host host;
    struct nccl_limits limits;
    int rank, size;
    enum nccl_phase phase;
    bool apart;                 /* launches are for the thread, too */
    uint64_t deadline;          /* of the phase */
    struct ncclComm *handle;    /* NULL: there is none */
    struct nccl_thread *thread; /* of its calls; NULL: there were none yet */
    struct nccl_call *call;     /* under way, or its answer; NULL: none */
    enum nccl_phase call_of;    /* the phase that made it */
    const char *doing;          /* the call that is under way, for words */
    struct nccl_ticket ticket;
    uint64_t mark;
    int *excluded; /* shrink */
    int nexcluded;
    struct nccl_burial burial[NCCL_BURIALS];
    int left;
    /* nccl_comm_launch()'s, while its action runs */
    const struct nccl_steps *steps;
    struct CUstream_st *stream;
    struct err err;
};

/* Actions of the table. */
int nccl_begin_id(struct nccl_comm *c, struct err *err);
int nccl_begin_exchange(struct nccl_comm *c, struct err *err);
int nccl_begin_init(struct nccl_comm *c, struct err *err);
int nccl_begin_launch(struct nccl_comm *c, struct err *err);
int nccl_begin_shrink(struct nccl_comm *c, struct err *err);
int nccl_begin_abort(struct nccl_comm *c, struct err *err);
int nccl_become_ready(struct nccl_comm *c, struct err *err);
int nccl_adopt_child(struct nccl_comm *c, struct err *err);

/* How the phase under way stands: 1 nothing yet, 0 done, -errno with c->err. */
int nccl_look(struct nccl_comm *c);

/* Looks after the burials. Are there any left? */
bool nccl_bury_on(struct nccl_comm *c);

/* err: "NCCL 2.27.7 (file), rank 1 of 4: <doing>: <what NCCL says>". Returns a negative errno. */
int nccl_say(const struct nccl_comm *c, int result, struct err *err);

#endif
