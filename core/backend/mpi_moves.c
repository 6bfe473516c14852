/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_moves: allgather, broadcast, alltoall and reduce-scatter: one collective of MPI each. A
 * reduce-scatter is an alltoall into the work buffer, where each rank adds what it has got, in the
 * order of ranks.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/mpi.h"

struct mpi_moves {
    struct mpi *mpi;
    struct mpi_call call;
    mpi_request request;
    struct mpi_task task;
    bool asked;           /* the request was passed to MPI */
    const void **sources; /* [size] reduce-scatter: what each rank has sent */
    int *numbers;         /* [4 x size] of call, behind sources */
};

static int moves_init(struct coll *coll, void *state, struct err *err)
{
    struct mpi_moves *m = state;
    size_t size = (size_t)coll->mesh->size;
    m->mpi = coll->backend;
    m->sources = calloc(size, sizeof(*m->sources) + 4 * sizeof(*m->numbers));
    m->numbers = m->sources ? (int *)(m->sources + size) : NULL;
    return m->sources ? 0 : err_set(err, ENOMEM, "no memory for collectives");
}

static void moves_fini(void *state)
{
    free(((struct mpi_moves *)state)->sources);
}

/* MPI counts in int. No rank knows all counts of an alltoall: see moves_start(). */
static bool moves_applies(const struct mesh *mesh, const struct coll_op *op)
{
    size_t most = op->kind == HVD_BROADCAST ? op->tensors[0].count : 0, size = (size_t)mesh->size;
    if (op->device >= 0 || size == 1 || op->kind == HVD_ALLREDUCE || coll_is_empty(mesh, op))
        return false;
    if (op->kind == HVD_ALLGATHER || op->kind == HVD_REDUCESCATTER)
        for (size_t r = 0; r < size; r++)
            most = op->recv_counts[r] * size > most ? op->recv_counts[r] * size : most;
    return most <= INT_MAX;
}

/* Fills counts and, behind them, places as MPI wants them. False: a number is too large for MPI. */
static bool fill(const size_t *from, int size, int *counts)
{
    size_t at = 0;
    for (int r = 0; r < size; r++) {
        if (at + from[r] > INT_MAX)
            return false;
        counts[r] = (int)from[r];
        counts[size + r] = (int)at;
        at += from[r];
    }
    return true;
}

static void start_allgather(struct coll *coll, struct mpi_moves *m)
{
    const struct coll_tensor *t = &coll->op->tensors[0];
    size_t at = (size_t)m->call.recv_places[coll->mesh->rank] * m->call.elem;
    if (t->count > 0 && (uint8_t *)t->out + at != t->in)
        memmove((uint8_t *)t->out + at, t->in, t->count * m->call.elem);
}

static int start_reducescatter(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    int size = coll->mesh->size, *counts = m->numbers + 2 * size;
    int own = m->call.send_counts[coll->mesh->rank];
    size_t bytes = (size_t)own * m->call.elem;
    uint8_t *work = coll_work(coll, (size_t)size * bytes + 1);
    if (!work)
        return err_set(err, ENOMEM, "no memory for a reducescatter, %zu bytes a rank", bytes);
    for (int r = 0; r < size; r++) {
        counts[r] = own;
        counts[size + r] = r * own;
        m->sources[r] = work + (size_t)r * bytes;
    }
    m->call.kind = HVD_ALLTOALL;
    m->call.out = work;
    return 0;
}

static void finish_reducescatter(const struct coll *coll, const struct mpi_moves *m)
{
    const struct reduce_plan plan = coll_reduce_plan(coll->op);
    reduce(&plan, coll->op->tensors[0].out, m->sources, coll->mesh->size,
           coll->op->recv_counts[coll->mesh->rank], NULL, true, false);
}

static int step(void *ctx)
{
    struct mpi_moves *m = ctx;
    const struct mpi_plugin *plugin = m->mpi->library.plugin;
    int rc = m->asked ? 0 : plugin->start(m->mpi->world, &m->call, &m->request);
    m->asked = true;
    return rc == 0 ? plugin->test(&m->request) : rc;
}

static int moves_start(struct coll *coll, void *state, struct err *err)
{
    struct mpi_moves *m = state;
    const struct coll_op *op = coll->op;
    const struct coll_tensor *t = &op->tensors[0];
    int size = coll->mesh->size, *to = m->numbers, *from = to + 2 * size, rc = 0;
    m->asked = false;
    m->call = (struct mpi_call){op->kind,
                                hvd_dtype_size(op->dtype),
                                t->in,
                                t->out,
                                (int)t->count,
                                op->root,
                                to,
                                to + size,
                                from,
                                from + size};
    bool sums = op->kind == HVD_REDUCESCATTER;
    const size_t *sent = sums ? op->recv_counts : op->send_counts;
    if ((sent && !fill(sent, size, to)) ||
        (!sums && op->recv_counts && !fill(op->recv_counts, size, from)))
        return err_set(err, EOVERFLOW,
                       "an alltoall of more than %d elements on rank %d: MPI counts in int. Split "
                       "it, or do without HVD_BACKEND=mpi",
                       INT_MAX, coll->mesh->rank);
    if (op->kind == HVD_ALLGATHER)
        start_allgather(coll, m);
    else if (sums)
        rc = start_reducescatter(coll, m, err);
    else if (op->kind == HVD_BROADCAST && coll->mesh->rank == op->root)
        m->call.out = (void *)(uintptr_t)t->in;
    if (rc == 0)
        mpi_task_start(&m->task, step, m);
    return rc;
}

static int moves_progress(struct coll *coll, void *state)
{
    struct mpi_moves *m = state;
    int rc = mpi_task_progress(&m->task);
    if (rc == 1)
        coll->wait = COLL_MOVES;
    if (rc == 0 && coll->op->kind == HVD_REDUCESCATTER)
        finish_reducescatter(coll, m);
    return rc;
}

static void moves_stop(struct coll *coll, void *state)
{
    if (!mpi_task_stop(&((struct mpi_moves *)state)->task))
        coll->abandoned = "MPI";
}

const struct algorithm mpi_moves_algorithm = {
    .name = "mpi_moves",
    .state_size = sizeof(struct mpi_moves),
    .applies = moves_applies,
    .together = true,
    .init = moves_init,
    .fini = moves_fini,
    .start = moves_start,
    .progress = moves_progress,
    .cancel = moves_stop,
    .stop = moves_stop,
};
