/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_call: see nccl_call.h.
 */
#include "core/backend/nccl_call.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct nccl_call {
    atomic_int owners; /* the thread and the caller; the last one frees */
    atomic_bool done;
    int result;
    nccl_call_f *fn;
    _Alignas(16) unsigned char arg[];
};

/* True: this was the last one. */
static bool drop(struct nccl_call *call)
{
    if (atomic_fetch_sub(&call->owners, 1) > 1)
        return false;
    free(call);
    return true;
}

static void *run(void *arg)
{
    struct nccl_call *call = arg;
    call->result = call->fn(call->arg);
    atomic_store_explicit(&call->done, true, memory_order_release);
    drop(call);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(struct nccl_call *call)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, run, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int nccl_call_start(nccl_call_f *fn, const void *arg, size_t size, struct nccl_call **ret,
                    struct err *err)
{
    struct nccl_call *call = malloc(sizeof(*call) + size);
    if (!call)
        return err_set(err, ENOMEM, "no memory for a call into NCCL");
    atomic_init(&call->owners, 2);
    atomic_init(&call->done, false);
    call->result = 0;
    call->fn = fn;
    memcpy(call->arg, arg, size);
    int rc = start_thread(call);
    if (rc != 0) {
        free(call);
        return err_sys(err, rc, "no thread for a call into NCCL");
    }
    *ret = call;
    return 0;
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
