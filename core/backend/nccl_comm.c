/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm: see nccl_comm.h.
 */
#include "core/backend/nccl_comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/caller.h"
#include "core/backend/nccl_api.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"

/* Before this version of NCCL a group belongs to the calling thread. */
#define GROUPS_ANYWHERE 22700
#define HASTEN_PART     10 /* 1/10 of abort_ms: how long a call in progress may take to return */

/* A communicator that is being aborted. thread NULL: there is none. */
struct burial {
    struct caller *thread; /* the communicator's former thread */
    struct caller *second; /* makes the abort if `kept` does not return; NULL: not needed */
    struct ncclComm *comm; /* to be aborted; NULL: there is none yet, or its abort has begun */
    struct call *abort;    /* NULL: not begun */
    struct call *kept;     /* the call that is still in progress; NULL: none */
    uint64_t hasten;       /* when kept is to be ended by the abort */
    uint64_t deadline;
};

struct nccl_comm {
    const struct nccl_api *api;
    struct nccl_host host;
    struct nccl_limits limits;
    int rank, size;
    enum nccl_phase phase;
    uint64_t deadline;       /* when the current phase times out */
    struct ncclComm *handle; /* NULL: there is none */
    struct caller *thread;   /* makes the communicator's calls; NULL: there were none yet */
    struct call *call;       /* in progress or finished; NULL: none */
    const char *doing;       /* name of the call in progress, for messages */
    struct nccl_abi_id id;
    struct burial burial;
    int abandoned;
    /* arguments of nccl_comm_launch(), while its action runs */
    const struct nccl_steps *steps;
    struct CUstream_st *stream;
    struct err err;
};

/* ---- words ---- */

/* c->err: "NCCL 2.27.7 (file), rank 1 of 4: <doing>: <what NCCL says>". Returns a negative errno.
 */
static int say(struct nccl_comm *c, int result)
{
    bool ours = result == NCCL_ABI_INVALID_ARGUMENT || result == NCCL_ABI_INVALID_USAGE;
    const char *more = c->api->ncclGetLastError(NULL);
    return err_set(&c->err,
                   result == NCCL_ABI_REMOTE_ERROR ? ECONNRESET
                   : ours                          ? EINVAL
                                                   : EIO,
                   "NCCL %s (%s), rank %d of %d: %s: %s%s%s", c->api->text, c->api->path, c->rank,
                   c->size, c->doing, c->api->ncclGetErrorString(result),
                   more && more[0] ? ": " : "", more ? more : "");
}

static int say_late(struct nccl_comm *c)
{
    return err_set(&c->err, ETIMEDOUT,
                   "NCCL %s (%s), rank %d of %d: %s did not end in time: a rank may not have "
                   "come, or cannot be reached (NCCL_DEBUG=INFO says more, NCCL_SOCKET_IFNAME "
                   "chooses the interface)",
                   c->api->text, c->api->path, c->rank, c->size, c->doing);
}

/* ---- calls on the thread ---- */

/* What a call is given and returns: copies, because it may be abandoned. */
struct given {
    const struct nccl_api *api;
    struct nccl_host host;
    int rank, size;
    struct nccl_abi_id id;      /* made by do_id(), used by do_init() */
    struct ncclComm *comm;      /* made by do_init(), used by the other calls */
    struct CUstream_st *stream; /* of a launch */
    struct nccl_steps steps;    /* its list is behind this struct */
    const char *doing;          /* the function of NCCL's that has failed in a launch */
};

static bool bound(const struct nccl_host *host)
{
    return !host->bind || host->bind(host->ctx) == 0;
}

static int do_id(void *arg)
{
    struct given *g = arg;
    return g->api->ncclGetUniqueId(&g->id);
}

static int do_init(void *arg)
{
    struct given *g = arg;
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = 0};
    if (!bound(&g->host))
        return NCCL_ABI_CUDA_ERROR;
    return g->api->ncclCommInitRankConfig(&g->comm, g->size, g->id, g->rank, &config);
}

static int do_abort(void *arg)
{
    struct given *g = arg;
    bound(&g->host); /* on failure the abort is tried all the same */
    return g->api->ncclCommAbort(g->comm);
}

static int do_launch(void *arg)
{
    struct given *g = arg;
    const struct nccl_issue issue = {g->api, &g->host, g->comm, g->stream, &g->steps};
    return bound(&g->host) ? nccl_issue(&issue, &g->doing) : NCCL_ABI_CUDA_ERROR;
}

/* steps: of a launch, else NULL. NULL: no memory. */
static struct call *new_call(const struct nccl_comm *c, call_f *fn, struct ncclComm *comm,
                             const struct nccl_steps *steps, struct err *err)
{
    size_t bytes = steps ? steps->n * sizeof(*steps->v) : 0;
    struct call *call = call_create(fn, sizeof(struct given) + bytes, err);
    if (!call)
        return NULL;
    struct given *g = (void *)call->arg;
    *g = (struct given){.api = c->api,
                        .host = c->host,
                        .rank = c->rank,
                        .size = c->size,
                        .id = c->id,
                        .comm = comm,
                        .stream = c->stream,
                        .doing = c->doing};
    if (steps) {
        g->steps = *steps;
        g->steps.v = memcpy(g + 1, steps->v, bytes);
    }
    return call;
}

static int begin_call(struct nccl_comm *c, call_f *fn, struct err *err)
{
    int rc = c->thread ? 0 : caller_create(&c->thread, err);
    c->call = rc == 0 ? new_call(c, fn, c->handle, c->steps, err) : NULL;
    if (!c->call)
        return rc < 0 ? rc : -ENOMEM;
    caller_give(c->thread, c->call);
    return 0;
}

/* ---- actions ---- */

static void expect(struct nccl_comm *c, const char *doing, uint32_t ms)
{
    c->doing = doing;
    c->deadline = deadline_in_ms(ms);
}

static int begin_id(struct nccl_comm *c, struct err *err)
{
    expect(c, "ncclGetUniqueId", c->limits.init_ms);
    return begin_call(c, do_id, err);
}

/* The communicator gets a thread of its own. */
static int take_id(struct nccl_comm *c, struct err *err)
{
    caller_end(TAKE(c->thread));
    return 0;
}

static int begin_init(struct nccl_comm *c, struct err *err)
{
    expect(c, "ncclCommInitRankConfig", c->limits.init_ms);
    return begin_call(c, do_init, err);
}

static int become_ready(struct nccl_comm *c, struct err *err)
{
    c->doing = "what was launched";
    return 0;
}

static int begin_launch(struct nccl_comm *c, struct err *err)
{
    const struct nccl_issue issue = {c->api, &c->host, c->handle, c->stream, c->steps};
    expect(c, "a launch", c->limits.launch_ms);
    if (c->api->version < GROUPS_ANYWHERE)
        return begin_call(c, do_launch, err);
    int result = nccl_issue(&issue, &c->doing);
    return nccl_failed(result) ? say(c, result) : 0;
}

/* ---- abort ---- */

/* Begins the abort on the communicator's thread. If that thread is still in an earlier call, uses a
 * second thread. Without a thread or memory bury_on() tries again later. */
static void begin_burial(struct nccl_comm *c, struct burial *b)
{
    if (b->kept && !b->second && caller_create(&b->second, NULL) < 0)
        return;
    b->abort = new_call(c, do_abort, b->comm, NULL, NULL);
    if (!b->abort)
        return;
    b->comm = NULL;
    caller_give(b->kept ? b->second : b->thread, b->abort);
    if (deadline_passed(b->deadline)) /* this was not called for so long */
        b->deadline = deadline_in_ms(c->limits.abort_ms);
}

/* The call that was in progress has returned. An init may have created a communicator. */
static void take_kept(struct nccl_comm *c, struct burial *b)
{
    if (b->kept->fn == do_init) {
        b->comm = ((struct given *)(void *)b->kept->arg)->comm;
        b->deadline = deadline_in_ms(c->limits.abort_ms);
    }
    call_release(TAKE(b->kept));
}

/* Goes on with the abort of the old communicator. Returns whether it is in progress. A call that
 * does not return in time is left as it is, with its thread. */
static bool bury_on(struct nccl_comm *c)
{
    struct burial *b = &c->burial;
    if (!b->thread)
        return false;
    if (b->kept && call_done(b->kept))
        take_kept(c, b);
    if (b->comm && (!b->kept || deadline_passed(b->hasten)))
        begin_burial(c, b);
    bool done = !b->comm && !b->kept && call_done(b->abort);
    if (!done && !deadline_passed(b->deadline))
        return true;
    c->abandoned += (b->comm != NULL) + !call_done(b->abort) + (b->kept != NULL);
    call_release(b->abort);
    call_release(b->kept);
    caller_end(b->second);
    caller_end(b->thread);
    *b = (struct burial){.thread = NULL};
    return false;
}

static int begin_abort(struct nccl_comm *c, struct err *err)
{
    c->deadline = UINT64_MAX; /* the burial has its own */
    c->doing = "ncclCommAbort";
    c->burial = (struct burial){.thread = TAKE(c->thread),
                                .comm = TAKE(c->handle),
                                .kept = TAKE(c->call),
                                .hasten = deadline_in_ms(c->limits.abort_ms / HASTEN_PART),
                                .deadline = deadline_in_ms(c->limits.abort_ms)};
    bury_on(c);
    return 0;
}

/* ---- polling a phase ---- */

/* Asks NCCL for the communicator's asynchronous error. 1: still in progress, 0: fine, -errno with
 * c->err. */
static int ask(struct nccl_comm *c)
{
    int state = NCCL_ABI_SUCCESS;
    int result = c->api->ncclCommGetAsyncError(c->handle, &state);
    if (nccl_failed(result)) {
        c->doing = "ncclCommGetAsyncError";
        return say(c, result);
    }
    return nccl_failed(state) ? say(c, state) : state == NCCL_ABI_IN_PROGRESS;
}

/* Takes the result of the call, which has returned. 0 or -errno with c->err. */
static int take_result(struct nccl_comm *c)
{
    const struct given *g = (void *)c->call->arg;
    int result = c->call->result;
    c->id = g->id;
    c->handle = g->comm;
    c->doing = g->doing;
    call_release(TAKE(c->call));
    if (c->phase == NCCL_INIT && !nccl_failed(result) && !c->handle)
        result = NCCL_ABI_INTERNAL_ERROR;
    if (nccl_failed(result))
        return say(c, result);
    return c->phase == NCCL_INIT ? nccl_api_refuse_blocking(c->api, &c->err) : 0;
}

/* 1: the current phase is in progress, 0: done, -errno with c->err. */
static int look(struct nccl_comm *c)
{
    int rc = 0;
    if (c->phase == NCCL_ABORT)
        return bury_on(c);
    if (!call_done(c->call))
        return 1;
    if (c->call)
        rc = take_result(c);
    return rc < 0 || c->phase == NCCL_ID ? rc : ask(c);
}

/* ---- the machine ---- */

static const struct nccl_row rows[] = {
    {NCCL_NONE, NCCL_ON_ID, NCCL_ID, begin_id},
    {NCCL_ID, NCCL_ON_DONE, NCCL_NONE, take_id},
    {NCCL_ID, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_NONE, NCCL_ON_START, NCCL_INIT, begin_init},
    {NCCL_INIT, NCCL_ON_DONE, NCCL_READY, become_ready},
    {NCCL_INIT, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_READY, NCCL_ON_OP, NCCL_LAUNCH, begin_launch},
    {NCCL_READY, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_LAUNCH, NCCL_ON_DONE, NCCL_READY, NULL},
    {NCCL_LAUNCH, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_ID, NCCL_ON_STOP, NCCL_ABORT, begin_abort},
    {NCCL_INIT, NCCL_ON_STOP, NCCL_ABORT, begin_abort},
    {NCCL_READY, NCCL_ON_STOP, NCCL_ABORT, begin_abort},
    {NCCL_LAUNCH, NCCL_ON_STOP, NCCL_ABORT, begin_abort},
    {NCCL_FAILED, NCCL_ON_STOP, NCCL_ABORT, begin_abort},
    {NCCL_ABORT, NCCL_ON_DONE, NCCL_NONE, NULL},
};

static const char *const phase_names[NCCL_PHASES] = {
    [NCCL_NONE] = "none",   [NCCL_ID] = "id",         [NCCL_INIT] = "init",
    [NCCL_READY] = "ready", [NCCL_LAUNCH] = "launch", [NCCL_FAILED] = "failed",
    [NCCL_ABORT] = "abort",
};

const struct nccl_row *nccl_comm_rows(size_t *ret_n)
{
    *ret_n = sizeof(rows) / sizeof(*rows);
    return rows;
}

enum nccl_phase nccl_comm_phase(const struct nccl_comm *comm)
{
    return comm->phase;
}

static const struct nccl_row *row_of(const struct nccl_comm *c, enum nccl_event event)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].phase == c->phase && rows[i].event == event)
            return &rows[i];
    return NULL;
}

/* An action that fails is an error of the phase that it would have led to. */
static void happen(struct nccl_comm *c, enum nccl_event event)
{
    const struct nccl_row *row = row_of(c, event);
    int rc = row->action ? row->action(c, &c->err) : 0;
    c->phase = row->next;
    if (rc < 0)
        happen(c, NCCL_ON_ERROR);
}

/* Polls the current phase once, which is not none or failed. 1: nothing has happened. */
static int step(struct nccl_comm *c)
{
    enum nccl_phase before = c->phase;
    int rc = look(c);
    if (rc == 1 && before != NCCL_READY && deadline_passed(c->deadline))
        rc = say_late(c);
    if (rc < 0)
        happen(c, NCCL_ON_ERROR);
    else if (rc == 0 && before != NCCL_READY)
        happen(c, NCCL_ON_DONE);
    return c->phase == before;
}

/* ---- life ---- */

int nccl_comm_create(const struct nccl_api *api, const struct nccl_host *host,
                     const struct nccl_limits *limits, struct nccl_comm **ret, struct err *err)
{
    int rc = nccl_api_refuse_blocking(api, err);
    if (rc < 0)
        return rc;
    struct nccl_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for a communicator");
    *c = (struct nccl_comm){.api = api, .host = *host, .limits = *limits, .doing = "nothing"};
    *ret = c;
    return 0;
}

bool nccl_comm_destroy(struct nccl_comm *comm)
{
    const struct timespec nap = {.tv_nsec = 500000};
    if (!comm)
        return true;
    nccl_comm_abort(comm);
    while (bury_on(comm)) /* terminates: each burial has a deadline */
        nanosleep(&nap, NULL);
    bool clean = comm->abandoned == 0;
    free(comm);
    return clean;
}

static int failed(const struct nccl_comm *c, struct err *err)
{
    return err_set(err, -c->err.code, "%s", c->err.msg);
}

/* Begins the creation, or an id for it, as this rank. */
static int begin(struct nccl_comm *c, enum nccl_event event, int rank, int size, struct err *err)
{
    if (c->phase != NCCL_NONE)
        return err_set(err, EBUSY, "cannot create a communicator: one exists already, in phase %s",
                       phase_names[c->phase]);
    c->rank = rank;
    c->size = size;
    c->err = (struct err){0};
    happen(c, event);
    return 0;
}

int nccl_comm_id(struct nccl_comm *comm, int size, struct nccl_abi_id *ret, struct err *err)
{
    int rc = comm->phase == NCCL_ID || comm->phase == NCCL_FAILED
                 ? 0
                 : begin(comm, NCCL_ON_ID, 0, size, err);
    while (rc == 0 && comm->phase == NCCL_ID)
        rc = step(comm);
    if (rc == 0 && comm->phase == NCCL_FAILED)
        return failed(comm, err);
    *ret = comm->id;
    return rc;
}

int nccl_comm_start(struct nccl_comm *comm, int rank, int size, const struct nccl_abi_id *id,
                    struct err *err)
{
    comm->id = *id;
    return begin(comm, NCCL_ON_START, rank, size, err);
}

int nccl_comm_progress(struct nccl_comm *comm, struct err *err)
{
    for (;;) {
        if (comm->phase == NCCL_FAILED)
            return failed(comm, err);
        if (comm->phase == NCCL_NONE)
            return err_set(err, ENOTCONN, "there is no communicator");
        if (step(comm))
            return comm->phase == NCCL_READY ? 0 : 1;
    }
}

int nccl_comm_launch(struct nccl_comm *comm, const struct nccl_steps *steps,
                     struct CUstream_st *stream, struct err *err)
{
    if (comm->phase != NCCL_READY)
        return err_set(err, EBUSY, "the communicator is not ready (%s)", phase_names[comm->phase]);
    if (steps->n == 0)
        return 0;
    comm->steps = steps;
    comm->stream = stream;
    happen(comm, NCCL_ON_OP);
    comm->steps = NULL;
    return comm->phase == NCCL_FAILED ? failed(comm, err) : 0;
}

void nccl_comm_hold(struct nccl_comm *comm)
{
    comm->burial.deadline = deadline_in_ms(comm->limits.abort_ms);
}

void nccl_comm_abort(struct nccl_comm *comm)
{
    if (row_of(comm, NCCL_ON_STOP))
        happen(comm, NCCL_ON_STOP);
}

int nccl_comm_abandoned(const struct nccl_comm *comm)
{
    return comm->abandoned;
}
