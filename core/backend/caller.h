/* SPDX-License-Identifier: Apache-2.0
 *
 * caller: a thread that makes calls of a library which may block (NCCL, MPI), in the order given,
 * so that the thread that drives the engine never blocks. A call that does not return is abandoned:
 * its thread stays in the library and uses only memory of its own.
 */
#ifndef HVD_BACKEND_CALLER_H
#define HVD_BACKEND_CALLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

struct caller;

/* arg is the call's own. The result is for the owner of the call. */
typedef int call_f(void *arg);

struct call {
    struct call *next;  /* in the queue of its caller */
    atomic_int holders; /* its owner and the thread; the last one frees it */
    atomic_bool done;
    int result; /* what fn has returned; valid when the call is done */
    call_f *fn;
    _Alignas(16) unsigned char arg[];
};

/* Blocks all signals in the thread: the program's own threads handle them. */
int caller_create(struct caller **ret, struct err *err);

/* Ends the thread: joins it if its calls have returned, which takes no time. Otherwise detaches it:
 * it makes the calls that it was given, and ends. NULL is allowed. */
void caller_end(struct caller *caller);

/* A call of fn with size bytes of arg, which the caller of this function fills. NULL: no memory. */
struct call *call_create(call_f *fn, size_t size, struct err *err);

/* Queues the call. */
void caller_give(struct caller *caller, struct call *call);

/* Whether the call has returned. NULL is allowed: true. */
static inline bool call_done(const struct call *call)
{
    return !call || atomic_load_explicit(&call->done, memory_order_acquire);
}

/* Frees a call that was given, when it has returned. NULL is allowed. */
void call_release(struct call *call);

#endif
