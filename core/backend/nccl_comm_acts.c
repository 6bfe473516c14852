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
#include "core/base/hash.h"

#define SHRINK_RANK_MS 20
#define HASTEN_PART    10 /* 1/10 of abort_ms: how long a call in progress may take to return */

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
    const char *more = c->api->ncclGetLastError ? c->api->ncclGetLastError(NULL) : NULL;
    return err_set(err, code_of(result), "NCCL %s (%s), rank %d of %d: %s: %s%s%s", c->api->text,
                   c->api->path, c->rank, c->size, c->doing, c->api->ncclGetErrorString(result),
                   more && more[0] ? ": " : "", more ? more : "");
}

static uint64_t init_deadline(const struct nccl_comm *c)
{
    return deadline_in_ms(c->limits.init_ms);
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

struct shrink_call {
    const struct nccl_api *api;
    struct nccl_host host;
    struct ncclComm *comm;
    struct ncclComm *child; /* out, perhaps only after the call has returned */
    int n;
    int excluded[];
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
    if (!call->api->ncclCommInitRankConfig)
        return call->api->ncclCommInitRank(&call->comm, call->size, call->id, call->rank);
    return call->api->ncclCommInitRankConfig(&call->comm, call->size, call->id, call->rank,
                                             &config);
}

static int do_shrink(void *arg)
{
    struct shrink_call *call = arg;
    if (!bound(&call->host))
        return NCCL_ABI_CUDA_ERROR;
    return call->api->ncclCommShrink(call->comm, call->excluded, call->n, &call->child, NULL,
                                     NCCL_ABI_SHRINK_ABORT);
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

/* ---- id, exchange, init ---- */

static int begin_call(struct nccl_comm *c, enum nccl_phase phase, nccl_call_f *fn, const void *arg,
                      size_t size, struct err *err)
{
    int rc = c->thread ? 0 : nccl_thread_create(&c->thread, err);
    c->call_of = phase;
    return rc < 0 ? rc : nccl_call_start(c->thread, fn, arg, size, &c->call, err);
}

int nccl_begin_id(struct nccl_comm *c, struct err *err)
{
    struct id_call call = {.api = c->api};
    memset(&c->ticket, 0, sizeof(c->ticket));
    c->mark = 0;
    c->deadline = init_deadline(c);
    c->doing = "ncclGetUniqueId";
    return c->rank == 0 ? begin_call(c, NCCL_ID, do_id, &call, sizeof(call), err) : 0;
}

int nccl_begin_exchange(struct nccl_comm *c, struct err *err)
{
    struct nccl_call *call = TAKE(c->call);
    if (call && nccl_call_done(call)) {
        c->ticket.id = ((struct id_call *)nccl_call_arg(call))->id;
        c->ticket.result = nccl_call_result(call);
    } else if (c->rank == 0) {
        c->ticket.result = NCCL_ABI_SYSTEM_ERROR; /* the call is late, or was not started */
    }
    if (!nccl_call_release(call)) {
        c->abandoned++;
        nccl_thread_abandon(TAKE(c->thread));
    }
    /* Rank 0 may have used all of its time for the id, and then still has to report that there is
     * none. */
    c->deadline = deadline_in_ms((c->rank == 0 ? 1 : 2) * (uint64_t)c->limits.init_ms);
    c->doing = "the exchange of rank 0's id";
    return 0;
}

int nccl_begin_init(struct nccl_comm *c, struct err *err)
{
    struct init_call call = {
        .api = c->api, .host = c->host, .id = c->ticket.id, .rank = c->rank, .size = c->size};
    if (c->ticket.result != NCCL_ABI_SUCCESS) {
        if (c->rank == 0 && c->err.code)
            return c->err.code; /* reported already */
        c->doing = "ncclGetUniqueId on rank 0";
        return nccl_say(c, c->ticket.result, err);
    }
    c->deadline = init_deadline(c);
    c->doing = c->api->ncclCommInitRankConfig ? "ncclCommInitRankConfig" : "ncclCommInitRank";
    return begin_call(c, NCCL_INIT, do_init, &call, sizeof(call), err);
}

int nccl_become_ready(struct nccl_comm *c, struct err *err)
{
    c->mark = hash_bytes(&c->ticket.id, sizeof(c->ticket.id)) | 1;
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
    if (c->apart)
        return launch_apart(c, &issue, err);
    int result = nccl_issue(&issue, &c->doing);
    return nccl_failed(result) ? nccl_say(c, result, err) : 0;
}

/* ---- shrink ---- */

int nccl_begin_shrink(struct nccl_comm *c, struct err *err)
{
    size_t list = (size_t)c->nexcluded * sizeof(int), size = sizeof(struct shrink_call) + list;
    auto_free struct shrink_call *call = calloc(1, size);
    c->deadline = deadline_in_ms(c->limits.shrink_ms + SHRINK_RANK_MS * (uint64_t)c->size);
    c->doing = "ncclCommShrink";
    if (!call)
        return err_set(err, ENOMEM, "no memory to make a communicator smaller");
    call->api = c->api;
    call->host = c->host;
    call->comm = c->handle;
    call->n = c->nexcluded;
    memcpy(call->excluded, c->excluded, list);
    return begin_call(c, NCCL_SHRINK, do_shrink, call, size, err);
}

static void bury(struct nccl_comm *c, struct nccl_thread *thread, struct ncclComm *comm,
                 struct nccl_call *kept);

int nccl_adopt_child(struct nccl_comm *c, struct err *err)
{
    const struct shrink_call *call = nccl_call_arg(c->call);
    struct ncclComm *parent = c->handle;
    c->handle = call->child;
    c->mark = hash_mix(c->mark ^ hash_bytes(c->excluded, (size_t)c->nexcluded * sizeof(int))) | 1;
    nccl_call_release(TAKE(c->call));
    bury(c, TAKE(c->thread), parent, NULL);
    c->doing = "what was launched";
    return 0;
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
static void close_grave(struct nccl_comm *c, struct nccl_burial *b)
{
    bool done = came_back(b->kept) && came_back(b->abort);
    if (b->kept && b->kept_of == NCCL_SHRINK && !nccl_call_done(b->kept)) {
        b->kept = NULL; /* not freed: NCCL may still write the child's address there */
        c->abandoned++;
    }
    leave(c, TAKE(b->abort));
    leave(c, TAKE(b->kept));
    (done ? nccl_thread_end : nccl_thread_abandon)(TAKE(b->thread));
}

static struct nccl_burial *free_grave(struct nccl_comm *c)
{
    struct nccl_burial *oldest = &c->burial[0];
    for (int i = 0; i < NCCL_BURIALS; i++) {
        if (!c->burial[i].thread)
            return &c->burial[i];
        if (c->burial[i].deadline < oldest->deadline)
            oldest = &c->burial[i];
    }
    close_grave(c, oldest);
    return oldest;
}

/* Begins to abort comm on its thread, after the call `kept`, which is in progress there (NULL:
 * none). Takes the thread over; thread NULL: creates one. comm NULL: there is none yet, but kept
 * may create one. */
static void bury(struct nccl_comm *c, struct nccl_thread *thread, struct ncclComm *comm,
                 struct nccl_call *kept)
{
    const struct abort_call call = {.api = c->api, .host = c->host, .comm = comm};
    if (!thread && nccl_thread_create(&thread, NULL) < 0) {
        c->abandoned++; /* the communicator is not aborted: there is no thread for it */
        return;
    }
    struct nccl_burial *b = free_grave(c);
    b->thread = thread;
    if (comm && nccl_call_start(thread, do_abort, &call, sizeof(call), &b->abort, NULL) < 0)
        c->abandoned++; /* the communicator is not aborted: no memory for the call */
    b->kept = kept;
    b->kept_of = c->call_of;
    b->hasten = deadline_in_ms(c->limits.abort_ms / HASTEN_PART);
    b->deadline = deadline_in_ms(c->limits.abort_ms);
}

int nccl_begin_abort(struct nccl_comm *c, struct err *err)
{
    c->deadline = UINT64_MAX; /* the burial has its own */
    c->doing = "ncclCommAbort";
    c->mark = 0;
    if (c->thread || c->handle)
        bury(c, TAKE(c->thread), TAKE(c->handle), TAKE(c->call));
    return 0;
}

/* The communicator that a late call has created. */
static struct ncclComm *made_by(struct nccl_call *call, enum nccl_phase phase)
{
    if (call && phase == NCCL_INIT)
        return ((struct init_call *)nccl_call_arg(call))->comm;
    if (call && phase == NCCL_SHRINK)
        return ((struct shrink_call *)nccl_call_arg(call))->child;
    return NULL;
}

/* Returns whether the abort is over. If a late call has created a communicator, that is aborted
 * next, on the same thread. */
static bool look_after(struct nccl_comm *c, struct nccl_burial *b)
{
    bool kept_back = came_back(b->kept), done = kept_back && came_back(b->abort);
    if (!kept_back && b->abort && deadline_passed(b->hasten)) {
        b->hasten = UINT64_MAX;
        nccl_call_hasten(b->abort);
    }
    if (!done && !deadline_passed(b->deadline))
        return false;
    struct ncclComm *late = done ? made_by(b->kept, b->kept_of) : NULL;
    struct nccl_thread *thread = late ? TAKE(b->thread) : NULL;
    close_grave(c, b);
    if (late)
        bury(c, thread, late, NULL);
    return !late;
}

bool nccl_bury_on(struct nccl_comm *c)
{
    bool some = false;
    for (int i = 0; i < NCCL_BURIALS; i++) {
        if (c->burial[i].thread)
            some = !look_after(c, &c->burial[i]) || some;
    }
    return some;
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
    if (!c->call)
        return 0;
    if (!nccl_call_done(c->call))
        return 1;
    int result = nccl_call_result(c->call);
    return nccl_failed(result) ? nccl_say(c, result, &c->err) : 0;
}

static int look_exchange(struct nccl_comm *c)
{
    int rc = c->host.exchange(c->host.ctx, &c->ticket, sizeof(c->ticket));
    return rc < 0 ? err_sys(&c->err, -rc, "NCCL %s, rank %d of %d: rank 0's id did not come",
                            c->api->text, c->rank, c->size)
                  : rc;
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
        /* The communicator blocks although it was configured not to: NCCL's configuration file may
         * force that. */
        c->apart = c->apart || result == NCCL_ABI_SUCCESS;
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

/* The parent reports "in progress" until the child exists. */
static int look_shrink(struct nccl_comm *c)
{
    if (!nccl_call_done(c->call))
        return 1;
    int result = nccl_call_result(c->call);
    if (nccl_failed(result))
        return nccl_say(c, result, &c->err);
    int rc = ask(c, c->handle);
    if (rc != 0)
        return rc;
    struct ncclComm *child = ((struct shrink_call *)nccl_call_arg(c->call))->child;
    return child ? ask(c, child) : nccl_say(c, NCCL_ABI_INTERNAL_ERROR, &c->err);
}

int nccl_look(struct nccl_comm *c)
{
    switch (c->phase) {
    case NCCL_ID:
        return look_id(c);
    case NCCL_EXCHANGE:
        return look_exchange(c);
    case NCCL_INIT:
        return look_init(c);
    case NCCL_READY:
        return ask(c, c->handle);
    case NCCL_LAUNCH:
        return look_launch(c);
    case NCCL_SHRINK:
        return look_shrink(c);
    case NCCL_ABORT:
        return nccl_bury_on(c) ? 1 : 0;
    case NCCL_NEW:
    case NCCL_FAILED:
    case NCCL_GONE:
    case NCCL_PHASES:
        break;
    }
    return 1;
}
