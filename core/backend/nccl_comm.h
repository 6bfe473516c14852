/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm: a communicator of NCCL's through its life: from rank 0's id to a ready one, one
 * launch after the other, asynchronous errors, abort, and a smaller or a new one when the ranks
 * have changed.
 *
 * A state machine; nccl_comm_progress() drives it and never sleeps. Everything runs under the
 * engine's progress lock, on whatever thread drives; what may sleep inside NCCL is on the
 * communicator's own thread (nccl_call.h, nccl_thread.h), and so is every launch before NCCL 2.27
 * and where communicators block (NCCL_COMM_BLOCKING=1). Every phase has an end in time. A
 * communicator is aborted, never destroyed: destroying one waits for ranks that may be gone. The
 * abort begins when the call that is inside it has come back, or has had its time to. An abort that
 * does not come back either (known before 2.26.2) is left behind with its thread, and so is an init
 * of NCCL before 2.14, which nothing can interrupt.
 *
 * The states are a table (nccl_comm_rows()):
 *
 *   new -> id -> exchange -> init -> ready <-> launch
 *   ready -> shrink -> ready             the survivors of a loss, from 2.27 on
 *   any -> abort -> gone -> id ...       anew, with other ranks
 */
#ifndef HVD_BACKEND_NCCL_COMM_H
#define HVD_BACKEND_NCCL_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/nccl_abi.h"
#include "core/backend/nccl_steps.h"
#include "core/base/err.h"

struct nccl_api;
struct nccl_comm;

/* What a communicator asks of whoever made it. ctx must stay valid as long as calls may be left
 * behind, see nccl_comm_destroy(). */
struct nccl_host {
    void *ctx;
    /* Makes the GPU current on the calling thread, which is one of nccl_thread.h; before each call.
     * 0 or -errno; NULL: there is nothing to do. */
    int (*bind)(void *ctx);
    /* Brings rank 0's n bytes to everybody; called until it does not answer 1. The bytes stay where
     * they are meanwhile. */
    int (*exchange)(void *ctx, void *data, size_t n);
    /* On the stream, device to device; on the thread that launches, which may be one of
     * nccl_thread.h. 0 or -errno; NULL: NCCL sends to itself. */
    int (*copy)(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream);
};

struct nccl_limits {
    uint32_t init_ms;   /* id, exchange, init: until all ranks are there */
    uint32_t shrink_ms; /* all of them are; and 20 ms a rank. One whose shrink fails lets the others
                         * wait in theirs that long, before all start anew */
    uint32_t launch_ms; /* until a launch is on its stream; the first one connects the ranks */
    uint32_t abort_ms;
};

#define NCCL_LIMITS_DEFAULT                                                                        \
    {                                                                                              \
        .init_ms = 60000, .shrink_ms = 10000, .launch_ms = 60000, .abort_ms = 10000                \
    }

int nccl_comm_create(const struct nccl_api *api, const struct nccl_host *host,
                     const struct nccl_limits *limits, struct nccl_comm **ret, struct err *err);

/* Aborts what there is and waits for that, abort_ms at most. False: something was left behind in
 * NCCL, with its thread; the process should end soon. NULL is fine. */
bool nccl_comm_destroy(struct nccl_comm *comm);

/* From new or gone: becomes rank of size ranks, all of which do the same. -EBUSY elsewhere. */
int nccl_comm_start(struct nccl_comm *comm, int rank, int size, struct err *err);

/* 1: on its way. 0: ready, and what was launched is on its stream (its result is not there yet: ask
 * the stream, and call this meanwhile: errors show here). -errno: failed, and stays so until abort.
 * -ENOTCONN: new or gone. */
int nccl_comm_progress(struct nccl_comm *comm, struct err *err);

/* In ready: one operation. steps are read here and not kept. The GPU is current on this thread.
 * Follow with nccl_comm_progress() until it answers 0. -EBUSY when it is not ready. */
int nccl_comm_launch(struct nccl_comm *comm, const struct nccl_steps *steps,
                     struct CUstream_st *stream, struct err *err);

/* Begins to end all of it; what is on streams ends, undefined. An exchange that is under way is the
 * host's to cancel. In new and gone: nothing. */
void nccl_comm_abort(struct nccl_comm *comm);

/* The ranks in excluded (of the present communicator) are gone: the others, all of which call this
 * with the same, go on as a smaller one, in the same order. What is on streams ends, undefined.
 * Progress says when it is ready; when that fails anywhere, all abort and start anew. -ENOTSUP:
 * see nccl_comm_can_shrink(). */
int nccl_comm_shrink(struct nccl_comm *comm, const int *excluded, int n, struct err *err);

/* This NCCL can, and this communicator is ready: operations may hang on its streams, but NCCL has
 * seen no error, after which it refuses. What all survivors say together decides:
 * nccl_reform_choose(). */
bool nccl_comm_can_shrink(const struct nccl_comm *comm);

/* What to plan operations with (nccl_steps.h); the caller adds its kernels. */
struct nccl_means nccl_comm_means(const struct nccl_comm *comm);

/* A number that the ranks of one communicator share and no other has; 0: it was never ready. */
uint64_t nccl_comm_mark(const struct nccl_comm *comm);

/* Calls that were left behind in NCCL since it was made. */
int nccl_comm_left(const struct nccl_comm *comm);

/* ---- the table, for tests and for documentation ----------------------------------------- */

enum nccl_phase {
    NCCL_NEW,
    NCCL_ID,
    NCCL_EXCHANGE,
    NCCL_INIT,
    NCCL_READY,
    NCCL_LAUNCH,
    NCCL_SHRINK,
    NCCL_FAILED,
    NCCL_ABORT,
    NCCL_GONE,
    NCCL_PHASES,
};

enum nccl_event {
    NCCL_ON_START,
    NCCL_ON_DONE,
    NCCL_ON_ERROR,
    NCCL_ON_LATE,
    NCCL_ON_OP,
    NCCL_ON_LOSS,
    NCCL_ON_STOP,
    NCCL_EVENTS,
};

struct nccl_row {
    enum nccl_phase phase;
    enum nccl_event event;
    enum nccl_phase next;
    int (*action)(struct nccl_comm *comm, struct err *err); /* before the phase changes; may fail */
};

const struct nccl_row *nccl_comm_rows(size_t *ret_n);
const char *nccl_phase_name(enum nccl_phase phase);
const char *nccl_event_name(enum nccl_event event);
enum nccl_phase nccl_comm_phase(const struct nccl_comm *comm);

#endif
