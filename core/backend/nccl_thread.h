/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_thread: a thread that runs functions in the order given. A communicator has one for its
 * calls into NCCL, for two reasons. NCCL before 2.27 keeps the state of a group in thread-local
 * memory of the thread that began the group; NCCL's own threads, later calls and an abort use that
 * state. So the thread must live as long as the communicator, and must not serve
 * two of them. Also, a communicator must not be aborted while another call on it is in progress.
 */
#ifndef HVD_BACKEND_NCCL_THREAD_H
#define HVD_BACKEND_NCCL_THREAD_H

#include "core/base/err.h"

struct nccl_thread;

/* Blocks all signals in the thread: the program's own threads handle them. */
int nccl_thread_create(struct nccl_thread **ret, struct err *err);

/* Queues fn(arg). -ENOMEM: it will not run. */
int nccl_thread_give(struct nccl_thread *thread, void (*fn)(void *arg), void *arg, struct err *err);

/* Ends a thread whose functions have all returned, and joins it, which takes no time. NULL is
 * allowed. */
void nccl_thread_end(struct nccl_thread *thread);

/* Detaches the thread: it runs the queued functions and ends. If one of them does not return the
 * thread stays. NULL is allowed. */
void nccl_thread_abandon(struct nccl_thread *thread);

#endif
