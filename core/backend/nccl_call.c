/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_call: see nccl_call.h.
 */
#include "core/backend/nccl_call.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/nccl_thread.h"

struct nccl_call {
    atomic_int owners; /* the caller and the threads that were given it; the last one frees */
    atomic_bool begun, done;
    int result;
    nccl_call_f *fn;
    _Alignas(16) unsigned char arg[];
};

static void drop(struct nccl_call *call)
{
    if (atomic_fetch_sub(&call->owners, 1) == 1)
        free(call);
}

/* Runs on each thread that was given the call; only the first one executes it. */
static void run(void *arg)
{
    struct nccl_call *call = arg;
    if (!atomic_exchange(&call->begun, true)) {
        call->result = call->fn(call->arg);
        atomic_store_explicit(&call->done, true, memory_order_release);
    }
    drop(call);
}

static int give(struct nccl_thread *thread, struct nccl_call *call, struct err *err)
{
    atomic_fetch_add(&call->owners, 1);
    int rc = nccl_thread_give(thread, run, call, err);
    if (rc < 0)
        drop(call);
    return rc;
}

int nccl_call_start(struct nccl_thread *thread, nccl_call_f *fn, const void *arg, size_t size,
                    struct nccl_call **ret, struct err *err)
{
    struct nccl_call *call = malloc(sizeof(*call) + size);
    if (!call)
        return err_set(err, ENOMEM, "no memory for a call into a library");
    atomic_init(&call->owners, 1);
    atomic_init(&call->begun, false);
    atomic_init(&call->done, false);
    call->result = 0;
    call->fn = fn;
    memcpy(call->arg, arg, size);
    int rc = give(thread, call, err);
    if (rc < 0) {
        drop(call);
        return rc;
    }
    *ret = call;
    return 0;
}

void nccl_call_hasten(struct nccl_call *call)
{
    struct nccl_thread *thread;
    if (atomic_load(&call->begun) || nccl_thread_create(&thread, NULL) < 0)
        return;
    give(thread, call, NULL);
    nccl_thread_abandon(thread);
}

bool nccl_call_done(const struct nccl_call *call)
{
    return atomic_load_explicit(&call->done, memory_order_acquire);
}

int nccl_call_result(const struct nccl_call *call)
{
    return call->result;
}

void *nccl_call_arg(struct nccl_call *call)
{
    return call->arg;
}

bool nccl_call_release(struct nccl_call *call)
{
    if (!call)
        return true;
    bool done = nccl_call_done(call);
    drop(call);
    return done;
}
