/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm_acts: what each phase of a communicator begins, and how it is seen to end. See
 * nccl_comm.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/nccl_comm_private.h"
#include "core/backend/nccl_issue.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"

/* Before this version of NCCL a group belongs to the calling thread: see nccl_thread.h. */
#define GROUPS_ANYWHERE 22700
#define HASTEN_PART     10 /* 1/10 of abort_ms: how long a call in progress may take to return */

/* ---- words ---- */

static int code_of(int result)
{
    switch (result) {
    case NCCL_ABI_REMOTE_ERROR:
        return ECONNRESET;
    case NCCL_ABI_INVALID_ARGUMENT:
    case NCCL_ABI_INVALID_USAGE:
        return EINVAL;
    default:
        return EIO;
    }
}

int nccl_say(const struct nccl_comm *c, int result, struct err *err)
{
    const char *more = c->api->ncclGetLastError(NULL);
    return err_set(err, code_of(result), "NCCL %s (%s), rank %d of %d: %s: %s%s%s", c->api->text,
                   c->api->path, c->rank, c->size, c->doing, c->api->ncclGetErrorString(result),
                   more && more[0] ? ": " : "", more ? more : "");
}

/* ---- arguments and results of the calls on the thread: copies of their own ---- */

struct id_call {
    const struct nccl_api *api;
    struct nccl_abi_id id;
};

struct init_call {
    const struct nccl_api *api;
    struct nccl_host host;
    struct nccl_abi_id id;
    int rank, size;
    struct ncclComm *comm; /* out */
};

struct abort_call {
    const struct nccl_api *api;
    struct nccl_host host;
    struct ncclComm *comm;
};

struct launch_call {
    struct nccl_host host;
    struct nccl_issue issue;
    struct nccl_form form;
    const char *name; /* out: the NCCL function that failed */
    struct nccl_step steps[];
};

static bool bound(const struct nccl_host *host)
{
    return !host->bind || host->bind(host->ctx) == 0;
}

static int do_id(void *arg)
{
    struct id_call *call = arg;
    return call->api->ncclGetUniqueId(&call->id);
}

static int do_init(void *arg)
{
    struct init_call *call = arg;
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = 0};
    if (!bound(&call->host))
        return NCCL_ABI_CUDA_ERROR;
    return call->api->ncclCommInitRankConfig(&call->comm, call->size, call->id, call->rank,
                                             &config);
}

static int do_abort(void *arg)
{
    struct abort_call *call = arg;
    bound(&call->host); /* on failure the abort is tried all the same */
    return call->api->ncclCommAbort(call->comm);
}

static int do_launch(void *arg)
{
    struct launch_call *call = arg;
    call->issue.host = &call->host;
    call->issue.form = &call->form;
    call->issue.steps = call->steps;
    if (!bound(&call->host))
        return NCCL_ABI_CUDA_ERROR;
    return nccl_issue(&call->issue, &call->name);
}

/* ---- id, init ---- */

static int begin_call(struct nccl_comm *c, enum nccl_phase phase, nccl_call_f *fn, const void *arg,
                      size_t size, struct err *err)
{
    int rc = c->thread ? 0 : nccl_thread_create(&c->thread, err);
    c->call_of = phase;
    return rc < 0 ? rc : nccl_call_start(c->thread, fn, arg, size, &c->call, err);
}

int nccl_begin_id(struct nccl_comm *c, struct err *err)
{
    const struct id_call call = {.api = c->api};
    c->deadline = deadline_in_ms(c->limits.init_ms);
    c->doing = "ncclGetUniqueId";
    return begin_call(c, NCCL_ID, do_id, &call, sizeof(call), err);
}

/* The communicator gets a thread of its own. */
int nccl_take_id(struct nccl_comm *c, struct err *err)
{
    c->id = ((struct id_call *)nccl_call_arg(c->call))->id;
    nccl_call_release(TAKE(c->call));
    nccl_thread_end(TAKE(c->thread));
    return 0;
}

int nccl_begin_init(struct nccl_comm *c, struct err *err)
{
    const struct init_call call = {
        .api = c->api, .host = c->host, .id = c->id, .rank = c->rank, .size = c->size};
    c->deadline = deadline_in_ms(c->limits.init_ms);
    c->doing = "ncclCommInitRankConfig";
    return begin_call(c, NCCL_INIT, do_init, &call, sizeof(call), err);
}

int nccl_become_ready(struct nccl_comm *c, struct err *err)
{
    c->doing = "what was launched";
    return 0;
}

/* ---- launch ---- */

static int launch_apart(struct nccl_comm *c, const struct nccl_issue *issue, struct err *err)
{
    size_t bytes = issue->n * sizeof(struct nccl_step);
    size_t size = sizeof(struct launch_call) + bytes;
    auto_free struct launch_call *call = calloc(1, size);
    if (!call)
        return err_set(err, ENOMEM, "no memory for a launch");
    call->host = c->host;
    call->issue = *issue;
    call->form = *issue->form;
    call->name = "a launch";
    memcpy(call->steps, issue->steps, bytes);
    return begin_call(c, NCCL_LAUNCH, do_launch, call, size, err);
}

int nccl_begin_launch(struct nccl_comm *c, struct err *err)
{
    const struct nccl_issue issue = {.api = c->api,
                                     .comm = c->handle,
                                     .stream = c->stream,
                                     .host = &c->host,
                                     .form = &c->steps->form,
                                     .steps = c->steps->v,
                                     .n = c->steps->n};
    c->deadline = deadline_in_ms(c->limits.launch_ms);
    c->doing = "a launch";
    if (c->api->version < GROUPS_ANYWHERE)
        return launch_apart(c, &issue, err);
    int result = nccl_issue(&issue, &c->doing);
    return nccl_failed(result) ? nccl_say(c, result, err) : 0;
}

/* ---- abort ---- */

static void leave(struct nccl_comm *c, struct nccl_call *call)
{
    if (!nccl_call_release(call))
        c->abandoned++;
}

static bool came_back(const struct nccl_call *call)
{
    return !call || nccl_call_done(call);
}

/* A call that has not returned is left as it is, with its thread. */
static void close_grave(struct nccl_comm *c)
{
    struct nccl_burial *b = &c->burial;
    bool done = came_back(b->kept) && came_back(b->abort);
    leave(c, TAKE(b->abort));
    leave(c, TAKE(b->kept));
    (done ? nccl_thread_end : nccl_thread_abandon)(TAKE(b->thread));
}

/* Begins to abort comm on its thread, after the call `kept`, which is in progress there (NULL:
 * none). Takes the thread over. comm NULL: there is none yet, but kept may create one. */
static void bury(struct nccl_comm *c, struct nccl_thread *thread, struct ncclComm *comm,
                 struct nccl_call *kept)
{
    const struct abort_call call = {.api = c->api, .host = c->host, .comm = comm};
    struct nccl_burial *b = &c->burial;
    b->thread = thread;
    if (comm && nccl_call_start(thread, do_abort, &call, sizeof(call), &b->abort, NULL) < 0)
        c->abandoned++; /* the communicator is not aborted: no memory for the call */
    b->kept = kept;
    b->inits = kept && c->call_of == NCCL_INIT;
    b->hasten = deadline_in_ms(c->limits.abort_ms / HASTEN_PART);
    b->deadline = deadline_in_ms(c->limits.abort_ms);
}

int nccl_begin_abort(struct nccl_comm *c, struct err *err)
{
    c->deadline = UINT64_MAX; /* the burial has its own */
    c->doing = "ncclCommAbort";
    if (c->thread)
        bury(c, TAKE(c->thread), TAKE(c->handle), TAKE(c->call));
    return 0;
}

/* If a late init has created a communicator, that is aborted next, on the same thread. */
bool nccl_bury_on(struct nccl_comm *c)
{
    struct nccl_burial *b = &c->burial;
    if (!b->thread)
        return false;
    bool kept_back = came_back(b->kept), done = kept_back && came_back(b->abort);
    if (!kept_back && b->abort && deadline_passed(b->hasten)) {
        b->hasten = UINT64_MAX;
        nccl_call_hasten(b->abort);
    }
    if (!done && !deadline_passed(b->deadline))
        return true;
    struct ncclComm *late =
        done && b->inits ? ((struct init_call *)nccl_call_arg(b->kept))->comm : NULL;
    struct nccl_thread *thread = late ? TAKE(b->thread) : NULL;
    close_grave(c);
    if (late)
        bury(c, thread, late, NULL);
    return late;
}

/* ---- polling a phase ---- */

/* Asks NCCL for comm's asynchronous error. 1: still in progress, 0: fine, -errno with c->err. */
static int ask(struct nccl_comm *c, struct ncclComm *comm)
{
    int state = NCCL_ABI_SUCCESS;
    int result = c->api->ncclCommGetAsyncError(comm, &state);
    if (nccl_failed(result)) {
        c->doing = "ncclCommGetAsyncError";
        return nccl_say(c, result, &c->err);
    }
    if (nccl_failed(state))
        return nccl_say(c, state, &c->err);
    return state == NCCL_ABI_IN_PROGRESS;
}

static int look_id(struct nccl_comm *c)
{
    if (!nccl_call_done(c->call))
        return 1;
    int result = nccl_call_result(c->call);
    return nccl_failed(result) ? nccl_say(c, result, &c->err) : 0;
}

static int look_init(struct nccl_comm *c)
{
    if (c->call) {
        if (!nccl_call_done(c->call))
            return 1;
        int result = nccl_call_result(c->call);
        c->handle = ((struct init_call *)nccl_call_arg(c->call))->comm;
        nccl_call_release(TAKE(c->call));
        if (nccl_failed(result) || !c->handle)
            return nccl_say(c, nccl_failed(result) ? result : NCCL_ABI_INTERNAL_ERROR, &c->err);
        int rc = nccl_refuse_blocking(c->api, &c->err);
        if (rc < 0)
            return rc;
    }
    return ask(c, c->handle);
}

static int look_launch(struct nccl_comm *c)
{
    if (c->call) {
        if (!nccl_call_done(c->call))
            return 1;
        int result = nccl_call_result(c->call);
        c->doing = ((struct launch_call *)nccl_call_arg(c->call))->name;
        nccl_call_release(TAKE(c->call));
        if (nccl_failed(result))
            return nccl_say(c, result, &c->err);
    }
    return ask(c, c->handle);
}

int nccl_look(struct nccl_comm *c)
{
    switch (c->phase) {
    case NCCL_ID:
        return look_id(c);
    case NCCL_INIT:
        return look_init(c);
    case NCCL_READY:
        return ask(c, c->handle);
    case NCCL_LAUNCH:
        return look_launch(c);
    case NCCL_ABORT:
        return nccl_bury_on(c) ? 1 : 0;
    case NCCL_NONE:
    case NCCL_FAILED:
    case NCCL_PHASES:
        break;
    }
    return 1;
}
