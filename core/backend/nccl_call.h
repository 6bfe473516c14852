/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_call: a call into NCCL that may sleep, on a thread of its communicator's, so that whoever
 * drives is never held up. A call that does not come back is left behind: its thread stays in NCCL,
 * with memory of its own, and harms nobody. Any thread, one at a time for a call.
 */
#ifndef HVD_BACKEND_NCCL_CALL_H
#define HVD_BACKEND_NCCL_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

struct nccl_call;
struct nccl_thread;

/* On the call's thread; arg is the call's own copy. Returns NCCL's result. */
typedef int nccl_call_f(void *arg);

/* Gives the thread fn on a copy of arg (size bytes). -ENOMEM: it will not run. */
int nccl_call_start(struct nccl_thread *thread, nccl_call_f *fn, const void *arg, size_t size,
                    struct nccl_call **ret, struct err *err);

/* Its thread may still be in the call before: then this one begins now, on another thread. Where
 * there is no other thread to be had, nothing changes. */
void nccl_call_hasten(struct nccl_call *call);

/* Has it come back? */
bool nccl_call_done(const struct nccl_call *call);

/* Of one that has come back. */
int nccl_call_result(const struct nccl_call *call);
void *nccl_call_arg(struct nccl_call *call);

/* The caller has no more use for it. NULL is fine. false: it has not come back, and is left behind.
 */
bool nccl_call_release(struct nccl_call *call);

#endif
