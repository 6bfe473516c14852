/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_moves: allgather, broadcast, alltoall and reduce-scatter: one collective of MPI each.
 *
 * A reduce-scatter whose input cannot be summed as it lies (16-bit floats, a prescale, an output
 * inside the input) goes through the work buffer.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/mpi.h"
#include "core/backend/wide.h"
#include "core/coll/layout.h"
#include "core/coll/reduce.h"

struct mpi_moves {
    struct mpi *mpi;
    struct mpi_call call;
    struct mpi_request request;
    struct mpi_task task;
    struct reduce_plan plan; /* scaling and division, which hvd does itself */
    int *counts;             /* [4 x size]: send counts and places, receive counts and places */
    bool asked;              /* the request was passed to MPI */
    size_t own;              /* reduce-scatter: elements of this rank */
    void *out;               /* where the sums are copied from call.out; NULL: they stay there */
};

static int moves_init(struct coll *coll, void *state, struct err *err)
{
    struct mpi_moves *m = state;
    m->mpi = coll->backend;
    m->counts = calloc(4 * (size_t)coll->mesh->size, sizeof(*m->counts));
    return m->counts ? 0 : err_set(err, ENOMEM, "no memory for collectives");
}

static void moves_fini(void *state)
{
    free(((struct mpi_moves *)state)->counts);
}

/* MPI counts in int. No rank knows all counts of an alltoall: see start_alltoall(). */
static bool moves_applies(const struct mesh *mesh, const struct coll_op *op)
{
    size_t count = op->n ? op->tensors[0].count : 0;
    if (op->device >= 0 || mesh->size == 1 || op->kind == HVD_ALLREDUCE || coll_is_empty(mesh, op))
        return false;
    if (op->kind != HVD_ALLGATHER)
        return count <= INT_MAX || op->kind == HVD_ALLTOALL;
    count = 0;
    for (int r = 0; r < mesh->size; r++)
        count += op->recv_counts[r];
    return count <= INT_MAX;
}

/* Fills counts and places as MPI wants them; false: a number is too large for MPI. */
static bool fill_counts(const size_t *from, int size, int *counts, int *places)
{
    size_t at = 0;
    for (int r = 0; r < size; r++) {
        if (at + from[r] > INT_MAX)
            return false;
        counts[r] = (int)from[r];
        places[r] = (int)at;
        at += from[r];
    }
    return true;
}

static int start_allgather(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    const struct coll_tensor *t = &coll->op->tensors[0];
    int me = coll->mesh->rank, size = coll->mesh->size;
    size_t elem = hvd_dtype_size(coll->op->dtype), bytes = t->count * elem;
    int *counts = m->counts + 2 * size, *places = m->counts + 3 * size;
    fill_counts(coll->op->recv_counts, size, counts, places);
    m->call.recv_counts = counts;
    m->call.recv_at = places;
    m->call.count = (int)t->count;
    /* The input of this rank may already lie in its place in the output, which MPI does not allow.
     */
    if (bytes > 0 && (const uint8_t *)t->in == (uint8_t *)t->out + (size_t)places[me] * elem) {
        uint8_t *copy = coll_work(coll, bytes);
        if (!copy)
            return err_set(err, ENOMEM, "no memory for an allgather of %zu bytes", bytes);
        m->call.in = memcpy(copy, t->in, bytes);
    }
    return 0;
}

static int start_alltoall(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    int size = coll->mesh->size, *at = m->counts;
    const struct coll_op *op = coll->op;
    if (!fill_counts(op->send_counts, size, at, at + size) ||
        !fill_counts(op->recv_counts, size, at + 2 * size, at + 3 * size))
        return err_set(err, EOVERFLOW,
                       "an alltoall of more than %d elements on rank %d: MPI counts in int. Split "
                       "it, or do without HVD_BACKEND=mpi",
                       INT_MAX, coll->mesh->rank);
    m->call.send_counts = at;
    m->call.send_at = at + size;
    m->call.recv_counts = at + 2 * size;
    m->call.recv_at = at + 3 * size;
    return 0;
}

static void start_broadcast(struct coll *coll, struct mpi_moves *m)
{
    const struct coll_tensor *t = &coll->op->tensors[0];
    void *data = coll->mesh->rank == coll->op->root ? (void *)(uintptr_t)t->in : t->out;
    m->call.in = m->call.out = data;
    m->call.count = (int)t->count;
    m->call.root = coll->op->root;
}

/* ---- reduce-scatter ------------------------------------------------------------------------- */

/* Copies the input, converted as MPI sums it, to the work buffer, with room for the own sums after
 * it. */
static int prepare_sums(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    const struct coll_tensor *t = &coll->op->tensors[0];
    enum hvd_dtype dtype = wide_type(coll->op->dtype);
    size_t elem = hvd_dtype_size(dtype), in = (t->count * elem / 64 + 1) * 64;
    uint8_t *work = coll_work(coll, in + m->own * elem);
    if (!work)
        return err_set(err, ENOMEM, "no memory for a reducescatter of %zu bytes", in);
    struct reduce_plan once = m->plan;
    const void *src[] = {t->in};
    once.divisor = 1;
    once.postscale = 1.0;
    if (wide_needed(coll->op->dtype))
        wide_from(coll->op->dtype, t->in, work, t->count, once.prescale);
    else
        reduce(&once, work, src, 1, t->count, NULL, false, false);
    m->call.in = work;
    m->call.out = work + in;
    m->call.dtype = m->plan.dtype = dtype;
    m->out = t->out;
    return 0;
}

static int start_reducescatter(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    const struct coll_op *op = coll->op;
    const struct coll_tensor *t = &op->tensors[0];
    int size = coll->mesh->size, *counts = m->counts + 2 * size;
    size_t elem = hvd_dtype_size(op->dtype);
    fill_counts(op->recv_counts, size, counts, counts + size);
    m->call.recv_counts = counts;
    m->plan = coll_reduce_plan(op);
    m->call.op = m->plan.op;
    m->own = op->recv_counts[coll->mesh->rank];
    m->out = NULL;
    /* MPI refuses the same address for input and output, even without elements. */
    if (wide_needed(op->dtype) || m->plan.prescale != 1.0 || t->in == t->out ||
        coll_overlaps(t, t->count * elem, m->own * elem))
        return prepare_sums(coll, m, err);
    return 0;
}

/* Applies average and postscale, and copies the sums from the work buffer to the output. */
static void finish_reducescatter(const struct coll *coll, const struct mpi_moves *m)
{
    static const bool prescaled[] = {true};
    const void *src[] = {m->call.out};
    uint8_t *dst = m->out;
    if (m->own == 0)
        return;
    if (m->plan.divisor > 1 || m->plan.postscale != 1.0)
        reduce(&m->plan, m->call.out, src, 1, m->own, prescaled, true, false);
    if (dst && wide_needed(coll->op->dtype))
        wide_to(coll->op->dtype, m->call.out, dst, m->own);
    else if (dst)
        memcpy(dst, m->call.out, m->own * hvd_dtype_size(coll->op->dtype));
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int step(void *ctx)
{
    struct mpi_moves *m = ctx;
    const struct mpi_plugin *plugin = m->mpi->here.plugin;
    int rc = m->asked ? 0 : plugin->start(m->mpi->world, &m->call, &m->request);
    m->asked = true;
    return rc == 0 ? plugin->test(&m->request) : rc;
}

static int prepare(struct coll *coll, struct mpi_moves *m, struct err *err)
{
    switch (coll->op->kind) {
    case HVD_ALLGATHER:
        return start_allgather(coll, m, err);
    case HVD_ALLTOALL:
        return start_alltoall(coll, m, err);
    case HVD_REDUCESCATTER:
        return start_reducescatter(coll, m, err);
    case HVD_BROADCAST:
        start_broadcast(coll, m);
        return 0;
    case HVD_ALLREDUCE:
    case HVD_BARRIER:
    case HVD_KINDS:
        break;
    }
    return err_set(err, EINVAL, "not one of MPI's");
}

static int moves_start(struct coll *coll, void *state, struct err *err)
{
    struct mpi_moves *m = state;
    const struct coll_tensor *t = &coll->op->tensors[0];
    m->call = (struct mpi_call){
        .kind = coll->op->kind, .dtype = coll->op->dtype, .in = t->in, .out = t->out};
    m->asked = false;
    int rc = prepare(coll, m, err);
    if (rc == 0)
        mpi_task_start(&m->mpi->here, &m->task, step, m);
    return rc;
}

static int moves_progress(struct coll *coll, void *state)
{
    struct mpi_moves *m = state;
    int rc = mpi_task_progress(&m->mpi->here, &m->task);
    coll->wait = rc == 1 ? m->mpi->wait : COLL_WAKES;
    if (rc == 0 && coll->op->kind == HVD_REDUCESCATTER)
        finish_reducescatter(coll, m);
    return rc;
}

static void moves_stop(struct coll *coll, void *state)
{
    struct mpi_moves *m = state;
    if (!mpi_task_stop(&m->mpi->here, &m->task))
        coll->abandoned = "MPI";
}

static const char *moves_name(const void *state)
{
    static const char *const names[HVD_KINDS] = {[HVD_ALLGATHER] = "mpi_allgather",
                                                 [HVD_BROADCAST] = "mpi_broadcast",
                                                 [HVD_ALLTOALL] = "mpi_alltoall",
                                                 [HVD_REDUCESCATTER] = "mpi_reducescatter"};
    const char *name = names[((const struct mpi_moves *)state)->call.kind];
    return name ? name : "mpi";
}

const struct algorithm mpi_moves_algorithm = {
    .name = "mpi",
    .name_of = moves_name,
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
