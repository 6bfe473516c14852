/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm: see nccl_comm.h. The machine; what each phase does is in nccl_comm_acts.c.
 */
#include "core/backend/nccl_comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/nccl_comm_private.h"
#include "core/base/clock.h"

static const struct nccl_row rows[] = {
    {NCCL_NONE, NCCL_ON_ID, NCCL_ID, nccl_begin_id},
    {NCCL_ID, NCCL_ON_DONE, NCCL_NONE, nccl_take_id},
    {NCCL_ID, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_ID, NCCL_ON_LATE, NCCL_FAILED, NULL},
    {NCCL_NONE, NCCL_ON_START, NCCL_INIT, nccl_begin_init},
    {NCCL_INIT, NCCL_ON_DONE, NCCL_READY, nccl_become_ready},
    {NCCL_INIT, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_INIT, NCCL_ON_LATE, NCCL_FAILED, NULL},
    {NCCL_READY, NCCL_ON_OP, NCCL_LAUNCH, nccl_begin_launch},
    {NCCL_READY, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_LAUNCH, NCCL_ON_DONE, NCCL_READY, NULL},
    {NCCL_LAUNCH, NCCL_ON_ERROR, NCCL_FAILED, NULL},
    {NCCL_LAUNCH, NCCL_ON_LATE, NCCL_FAILED, NULL},
    {NCCL_ID, NCCL_ON_STOP, NCCL_ABORT, nccl_begin_abort},
    {NCCL_INIT, NCCL_ON_STOP, NCCL_ABORT, nccl_begin_abort},
    {NCCL_READY, NCCL_ON_STOP, NCCL_ABORT, nccl_begin_abort},
    {NCCL_LAUNCH, NCCL_ON_STOP, NCCL_ABORT, nccl_begin_abort},
    {NCCL_FAILED, NCCL_ON_STOP, NCCL_ABORT, nccl_begin_abort},
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
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].phase == c->phase && rows[i].event == event)
            return &rows[i];
    }
    return NULL;
}

/* An action that fails is an error of the phase that it would have led to. */
static int happen(struct nccl_comm *c, enum nccl_event event)
{
    const struct nccl_row *row = row_of(c, event);
    if (!row)
        return -EBUSY;
    int rc = row->action ? row->action(c, &c->err) : 0;
    c->phase = row->next;
    if (rc < 0)
        happen(c, NCCL_ON_ERROR);
    return rc;
}

/* ---- life ---- */

int nccl_refuse_blocking(const struct nccl_api *api, struct err *err)
{
    const char *blocks = getenv("NCCL_COMM_BLOCKING");
    if (!blocks || !blocks[0] || strcmp(blocks, "0") == 0)
        return 0;
    return err_set(err, ENOTSUP,
                   "NCCL_COMM_BLOCKING=%s makes calls of NCCL %s (%s) wait for other ranks, which "
                   "hvd cannot use: unset it, also in NCCL's configuration file",
                   blocks, api->text, api->path);
}

int nccl_comm_create(const struct nccl_api *api, const struct nccl_host *host,
                     const struct nccl_limits *limits, struct nccl_comm **ret, struct err *err)
{
    int rc = nccl_refuse_blocking(api, err);
    if (rc < 0)
        return rc;
    struct nccl_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for a communicator");
    c->api = api;
    c->host = *host;
    c->limits = *limits;
    c->doing = "nothing";
    *ret = c;
    return 0;
}

bool nccl_comm_destroy(struct nccl_comm *comm)
{
    const struct timespec nap = {.tv_nsec = 500000};
    if (!comm)
        return true;
    nccl_comm_abort(comm);
    while (nccl_bury_on(comm)) /* terminates: each burial has a deadline */
        nanosleep(&nap, NULL);
    bool clean = comm->abandoned == 0;
    free(comm);
    return clean;
}

static int failed(const struct nccl_comm *c, struct err *err)
{
    return err_set(err, -c->err.code, "%s", c->err.msg);
}

static int late(struct nccl_comm *c)
{
    return err_set(&c->err, ETIMEDOUT,
                   "NCCL %s (%s), rank %d of %d: %s did not end in time: a rank may not have "
                   "come, or cannot be reached (NCCL_DEBUG=INFO says more, NCCL_SOCKET_IFNAME "
                   "chooses the interface)",
                   c->api->text, c->api->path, c->rank, c->size, c->doing);
}

/* Polls the current phase once. 1: nothing has happened. */
static int step(struct nccl_comm *c)
{
    enum nccl_phase before = c->phase;
    int rc = nccl_look(c);
    if (rc == 1 && before != NCCL_READY && deadline_passed(c->deadline)) {
        late(c);
        happen(c, NCCL_ON_LATE);
    } else if (rc < 0) {
        happen(c, NCCL_ON_ERROR);
    } else if (rc == 0 && before != NCCL_READY) {
        happen(c, NCCL_ON_DONE);
    }
    return c->phase == before;
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
    nccl_bury_on(comm);
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
    nccl_bury_on(comm);
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
    int rc = happen(comm, NCCL_ON_OP);
    comm->steps = NULL;
    return rc < 0 ? failed(comm, err) : 0;
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

/* ---- what it is ---- */

int nccl_comm_abandoned(const struct nccl_comm *comm)
{
    return comm->abandoned;
}
