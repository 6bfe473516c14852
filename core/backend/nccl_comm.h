/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm: the life of an NCCL communicator: rank 0's id, creation, launches, asynchronous
 * errors, abort, and another creation when the ranks have changed. A state machine;
 * nccl_comm_progress() drives it and never blocks. Everything runs under the engine's progress
 * lock, on the thread that drives; calls that may sleep inside NCCL run on a thread of the
 * communicator's own (caller.h), and so does every launch before NCCL 2.27: it keeps the state of a
 * group in thread-local memory of the thread that began the group, and its own threads, later calls
 * and an abort use that state. So the thread lives as long as the communicator, and serves no
 * other.
 *
 * Every phase has a time limit. A communicator is aborted, never destroyed: destroying one waits
 * for ranks that may be lost. The abort begins when a call that is in progress has returned, or
 * after a tenth of abort_ms, then on another thread. An abort that does not return (a known fault
 * before 2.26.2) is abandoned with its thread.
 *
 * The states are a table (nccl_comm_rows()):
 *
 *   none -> id -> none                       rank 0
 *   none -> init -> ready <-> launch
 *   any -> abort -> none                     then anew, with other ranks
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

struct nccl_limits {
    uint32_t init_ms;   /* limit for the id; and for the creation, in which all ranks take part */
    uint32_t launch_ms; /* limit for a launch to be on its stream; the first connects the ranks */
    uint32_t abort_ms;
    uint32_t program_ms; /* nccl_run: limit for the program's own work before what was aborted */
};

#define NCCL_LIMITS_DEFAULT                                                                        \
    {                                                                                              \
        .init_ms = 60000, .launch_ms = 60000, .abort_ms = 10000, .program_ms = 600000              \
    }

/* -ENOTSUP: NCCL_COMM_BLOCKING is set. */
int nccl_comm_create(const struct nccl_api *api, const struct nccl_host *host,
                     const struct nccl_limits *limits, struct nccl_comm **ret, struct err *err);

/* Aborts the communicators and waits for that: at most abort_ms, or twice as long if a late call
 * creates one more. False: a call was abandoned in NCCL, with its thread; the process should end
 * soon. NULL is allowed. */
bool nccl_comm_destroy(struct nccl_comm *comm);

/* On rank 0 of `size` ranks, without a communicator: gets the id for a new one. 1: in progress,
 * call it again; 0: *ret is set. -errno: failed, until nccl_comm_abort(). -EBUSY: there is a
 * communicator. */
int nccl_comm_id(struct nccl_comm *comm, int size, struct nccl_abi_id *ret, struct err *err);

/* Without a communicator: becomes `rank` of `size` ranks, all of which do the same, with an id that
 * was not used before. -EBUSY: there is a communicator. */
int nccl_comm_start(struct nccl_comm *comm, int rank, int size, const struct nccl_abi_id *id,
                    struct err *err);

/* 1: in progress. 0: ready, and the launched operation is on its stream. It may not be finished:
 * query the stream, and call this meanwhile, because it reports asynchronous errors. -errno:
 * failed, until nccl_comm_abort(). -ENOTCONN: there is no communicator. */
int nccl_comm_progress(struct nccl_comm *comm, struct err *err);

/* In the phase ready: launches one operation. steps are copied. The GPU's context must be current
 * on this thread. Then call nccl_comm_progress() until it returns 0. -EBUSY if not ready. */
int nccl_comm_launch(struct nccl_comm *comm, const struct nccl_steps *steps,
                     struct CUstream_st *stream, struct err *err);

/* Starts the abort of the communicator, if there is one. Its work on streams ends with undefined
 * results. */
void nccl_comm_abort(struct nccl_comm *comm);

/* An abort in progress has its whole time again. */
void nccl_comm_hold(struct nccl_comm *comm);

/* Number of calls that were abandoned in NCCL since it was created. */
int nccl_comm_abandoned(const struct nccl_comm *comm);

/* ---- the table, for tests and for documentation ----------------------------------------- */

enum nccl_phase {
    NCCL_NONE, /* there is no communicator */
    NCCL_ID,
    NCCL_INIT,
    NCCL_READY,
    NCCL_LAUNCH,
    NCCL_FAILED,
    NCCL_ABORT,
    NCCL_PHASES,
};

enum nccl_event {
    NCCL_ON_ID,
    NCCL_ON_START,
    NCCL_ON_DONE,
    NCCL_ON_ERROR,
    NCCL_ON_OP,
    NCCL_ON_STOP,
    NCCL_EVENTS,
};

struct nccl_row {
    enum nccl_phase phase;
    enum nccl_event event;
    enum nccl_phase next;
    /* Runs before the phase changes; may fail. */
    int (*action)(struct nccl_comm *comm, struct err *err);
};

const struct nccl_row *nccl_comm_rows(size_t *ret_n);
enum nccl_phase nccl_comm_phase(const struct nccl_comm *comm);

#endif
