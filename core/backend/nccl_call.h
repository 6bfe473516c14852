/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_call: a call into NCCL that may block, on its communicator's thread, so that the thread that
 * drives the engine never blocks. A call that does not return is abandoned: its thread stays in
 * NCCL and uses only memory of its own. Any thread, but one at a time for each call. mpi_process
 * makes its blocking calls of MPI in this way, too.
 */
#ifndef HVD_BACKEND_NCCL_CALL_H
#define HVD_BACKEND_NCCL_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

struct nccl_call;
struct nccl_thread;

/* Runs on the call's thread; arg is the call's own copy. Returns NCCL's result. */
typedef int nccl_call_f(void *arg);

/* Queues fn on the thread, with a copy of arg (size bytes). -ENOMEM: it will not run. */
int nccl_call_start(struct nccl_thread *thread, nccl_call_f *fn, const void *arg, size_t size,
                    struct nccl_call **ret, struct err *err);

/* If the thread is still in an earlier call, starts this one now on another thread. If no other
 * thread can be created, this call goes on waiting for the earlier one. */
void nccl_call_hasten(struct nccl_call *call);

/* Returns whether the call has returned. */
bool nccl_call_done(const struct nccl_call *call);

/* The result of a call that has returned. */
int nccl_call_result(const struct nccl_call *call);
void *nccl_call_arg(struct nccl_call *call);

/* Frees the call. NULL is fine. false: the call has not returned, and is abandoned. */
bool nccl_call_release(struct nccl_call *call);

#endif
