/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_thread: a thread that does what it is given, one after the other. A communicator has one for
 * its calls into NCCL, for two reasons. NCCL before 2.27 keeps what a group has begun in memory of
 * the thread that began it, its own threads work through that memory, and a later call or an abort
 * looks for it there: so the thread must live as long as the communicator, and must not serve two.
 * And a communicator is not aborted while another call is inside it.
 */
#ifndef HVD_BACKEND_NCCL_THREAD_H
#define HVD_BACKEND_NCCL_THREAD_H

#include "core/base/err.h"

struct nccl_thread;

/* All signals are blocked there: they are for the program's own threads. */
int nccl_thread_create(struct nccl_thread **ret, struct err *err);

/* fn(arg), after all that was given before. -ENOMEM: it will not run. */
int nccl_thread_give(struct nccl_thread *thread, void (*fn)(void *arg), void *arg, struct err *err);

/* All that it was given has come back: ends it, and waits for that, which takes no time. NULL is
 * fine. */
void nccl_thread_end(struct nccl_thread *thread);

/* The thread does what it was given and ends; what does not come back keeps it, and harms nobody.
 * NULL is fine. */
void nccl_thread_leave(struct nccl_thread *thread);

#endif
