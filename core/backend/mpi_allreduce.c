/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_allreduce: allreduce through MPI. The tensors are one vector of pieces (coll/layout.h): piece
 * k of every tensor is segment k of the ring, so that the order of summation of large ones does not
 * depend on what was fused.
 *
 * Ranks that share their host sum there first, by lanes as in coll/hier_allreduce; the first
 * `lanes` of them own a part of the host's sums, sum it through MPI, and copy the results to all.
 * A rank that is alone on its host, and every rank with HVD_MPI_FLAT=1, passes its tensors to MPI:
 * a single tensor in place, several packed. 16-bit floats travel as float32 and are rounded once.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/mpi.h"
#include "core/backend/mpi_sum.h"
#include "core/backend/wide.h"
#include "core/coll/layout.h"
#include "core/coll/shm_pieces.h"

enum phase { SUM_LOCALLY, EXCHANGE, HAND_OUT };

struct mpi_allreduce {
    struct mpi *mpi;
    struct layout layout;
    struct reduce_plan plan;
    struct shm_share share;
    struct mpi_sum sum;
    size_t *offsets; /* [size + 1] bytes of the segments in the vector */
    size_t *local;   /* [size + 1] bytes of the segments in the tensors' own type */
    enum phase phase;
    int run;     /* number of the current run on the host: runs that sum, then as many runs that
                    distribute */
    bool shared; /* the host's shared segment is used */
    bool owner;  /* this rank takes part in MPI's allreduce */
    bool packed; /* the vector is not the tensor itself */
    size_t lane;
    uint8_t *work;   /* on owners that use the segment: their part of the host's sums */
    uint8_t *vector; /* the vector for MPI, if that is not the tensor itself */
};

static int allreduce_init(struct coll *coll, void *state, struct err *err)
{
    struct mpi_allreduce *a = state;
    size_t n = (size_t)coll->mesh->size + 1;
    a->mpi = coll->backend;
    a->offsets = calloc(2 * n, sizeof(*a->offsets));
    if (!a->offsets)
        return err_set(err, ENOMEM, "no memory for collectives");
    a->local = a->offsets + n;
    return 0;
}

static void allreduce_fini(void *state)
{
    free(((struct mpi_allreduce *)state)->offsets);
}

static bool allreduce_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLREDUCE && op->device < 0 && mesh->size > 1 &&
           !coll_is_empty(mesh, op);
}

/* ---- the vector ----------------------------------------------------------------------------- */

/* Copies n elements of the tensors' type into the vector; prescale: the factor must still be
 * applied. */
static void put(const struct mpi_allreduce *a, uint8_t *dst, const uint8_t *src, size_t n,
                bool prescale)
{
    double scale = prescale ? a->plan.prescale : 1.0;
    const struct reduce_plan once = {.dtype = a->plan.dtype,
                                     .op = a->plan.op,
                                     .prescale = scale,
                                     .divisor = 1,
                                     .postscale = 1.0};
    const void *srcs[] = {src};
    if (wide_needed(a->plan.dtype))
        wide_from(a->plan.dtype, src, dst, n, scale);
    else if (scale == 1.0)
        reduce_copy(dst, src, n * a->layout.elem, false);
    else
        reduce(&once, dst, srcs, 1, n, NULL, false, false);
}

static void get(const struct mpi_allreduce *a, uint8_t *dst, const uint8_t *src, size_t n)
{
    if (wide_needed(a->plan.dtype))
        wide_to(a->plan.dtype, src, dst, n);
    else
        reduce_copy(dst, src, n * a->layout.elem, false);
}

/* Copies tensors to or from the vector, piece after piece. */
static void walk_pieces(struct mpi_allreduce *a, bool out)
{
    size_t at = 0, wide = a->sum.elem;
    for (size_t k = 0; k < a->layout.pieces; k++) {
        struct layout_walk w = layout_walk(k);
        struct layout_run run;
        while (layout_next(&a->layout, &w, SIZE_MAX, &run)) {
            if (out)
                get(a, run.out, a->vector + at, run.count);
            else
                put(a, a->vector + at, run.in, run.count, true);
            at += run.count * wide;
        }
    }
}

static void fill_vector(struct mpi_allreduce *a)
{
    if (!a->shared && a->packed)
        walk_pieces(a, false);
    else if (a->shared && a->vector != a->work)
        put(a, a->vector, a->work, a->local[a->sum.members] / a->layout.elem, false);
}

static void empty_vector(struct mpi_allreduce *a)
{
    if (!a->shared && a->packed)
        walk_pieces(a, true);
    else if (a->shared && a->vector != a->work)
        get(a, a->work, a->vector, a->local[a->sum.members] / a->layout.elem);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Fills local and offsets with the places of this lane's segments. Returns the longest segment, in
 * bytes of the vector. */
static size_t measure(struct mpi_allreduce *a)
{
    size_t elem = a->layout.elem, most = 0;
    a->offsets[0] = a->local[0] = 0;
    for (int k = 0; k < a->sum.members; k++) {
        size_t piece = a->lane * (size_t)a->sum.members + (size_t)k;
        size_t bytes = layout_piece_bytes(&a->layout, piece), wide = bytes / elem * a->sum.elem;
        a->local[k + 1] = a->local[k] + bytes;
        a->offsets[k + 1] = a->offsets[k] + wide;
        most = wide > most ? wide : most;
    }
    return most;
}

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int make_room(struct coll *coll, struct mpi_allreduce *a, size_t longest, struct err *err)
{
    const struct coll_tensor *t = &coll->op->tensors[0];
    size_t all = a->offsets[a->sum.members];
    size_t work = a->shared ? lines(a->local[a->sum.members]) : 0;
    bool half = wide_needed(a->plan.dtype);
    a->packed = a->shared || coll->op->n > 1 || half || a->plan.prescale != 1.0;
    size_t vector = half || (a->packed && !a->shared) ? lines(all) : 0;
    uint8_t *memory =
        coll_work(coll, work + vector + mpi_sum_scratch(longest, a->sum.members, a->sum.near));
    if (!memory)
        return err_set(err, ENOMEM, "no memory for an allreduce of %zu bytes", all);
    a->work = memory;
    a->vector = vector ? memory + work : a->work;
    a->sum.in = a->packed ? a->vector : t->in;
    a->sum.out = a->packed ? a->vector : t->out;
    a->sum.scratch = memory + work + vector;
    return 0;
}

static void fill_sum(struct mpi_allreduce *a, const struct mesh *mesh)
{
    const struct mpi *mpi = a->mpi;
    a->sum.here = &mpi->here;
    a->sum.comm = mpi->flat ? mpi->world : mpi->lane;
    a->sum.members = mpi->flat ? mesh->size : mesh->hosts;
    a->sum.place = mpi->flat ? mesh->rank : mesh->host;
    a->sum.near = mesh->hosts == 1;
    a->sum.plan = a->plan;
    a->sum.plan.prescale = 1.0;
    a->sum.plan.dtype = wide_type(a->plan.dtype);
    a->sum.elem = hvd_dtype_size(a->sum.plan.dtype);
    a->sum.offsets = a->offsets;
}

static void begin_run(struct coll *coll, struct mpi_allreduce *a)
{
    const struct mesh *mesh = coll->mesh;
    uint8_t *at = a->owner ? a->work + a->local[a->run] : NULL;
    a->share = (struct shm_share){.layout = &a->layout,
                                  .first = (size_t)a->run,
                                  .stride = (size_t)mesh->hosts,
                                  .owners = mesh->lanes};
    if (a->phase == SUM_LOCALLY) {
        shm_pieces_reduce_scatter(coll->pieces, &a->share, &a->plan, false, at);
        return;
    }
    shm_pieces_allgather(coll->pieces, &a->share, at);
    if (a->owner)
        shm_pieces_set_ready(coll->pieces, a->local[a->run + 1] - a->local[a->run]);
}

static void begin_exchange(struct mpi_allreduce *a)
{
    a->phase = EXCHANGE;
    if (!a->owner)
        return;
    fill_vector(a);
    mpi_sum_start(&a->sum);
}

static int allreduce_start(struct coll *coll, void *state, struct err *err)
{
    struct mpi_allreduce *a = state;
    const struct mesh *mesh = coll->mesh;
    const struct coll_op *op = coll->op;
    bool flat = a->mpi->flat;
    size_t lanes = flat ? 1 : (size_t)mesh->lanes;
    a->shared = !flat && mesh->local_size > 1;
    a->owner = flat || mesh->local_rank < mesh->lanes;
    a->lane = flat ? 0 : (size_t)mesh->local_rank;
    a->plan = coll_reduce_plan(op);
    fill_sum(a, mesh);
    a->layout = (struct layout){op->tensors, op->n, hvd_dtype_size(op->dtype),
                                lanes * (size_t)a->sum.members};
    int rc = a->owner ? make_room(coll, a, measure(a), err) : 0;
    if (rc < 0)
        return rc;
    a->run = 0;
    a->phase = SUM_LOCALLY;
    if (a->shared)
        begin_run(coll, a);
    else
        begin_exchange(a);
    return 0;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Makes progress on the runs of one phase on the host. Returns as coll_progress() does; 0: all runs
 * are done. */
static int progress_runs(struct coll *coll, struct mpi_allreduce *a)
{
    for (;;) {
        int rc = shm_pieces_progress(coll->pieces);
        if (rc != 0)
            return rc;
        if (++a->run == coll->mesh->hosts)
            return 0;
        begin_run(coll, a);
    }
}

static int progress_exchange(struct coll *coll, struct mpi_allreduce *a)
{
    int rc = a->owner ? mpi_sum_progress(&a->sum) : 0;
    if (rc == 1)
        coll->wait = a->mpi->wait;
    if (rc == 0 && a->owner)
        empty_vector(a);
    return rc;
}

static int allreduce_progress(struct coll *coll, void *state)
{
    struct mpi_allreduce *a = state;
    int rc = 0;
    if (a->phase == SUM_LOCALLY) {
        rc = progress_runs(coll, a);
        if (rc != 0)
            return rc;
        begin_exchange(a);
    }
    if (a->phase == EXCHANGE) {
        rc = progress_exchange(coll, a);
        if (rc != 0 || !a->shared)
            return rc;
        a->phase = HAND_OUT;
        a->run = 0;
        begin_run(coll, a);
    }
    return progress_runs(coll, a);
}

/* In the other phases only allreduce_progress() touches memory. */
static void allreduce_stop(struct coll *coll, void *state)
{
    struct mpi_allreduce *a = state;
    if (a->phase == EXCHANGE && a->owner && !mpi_sum_stop(&a->sum))
        coll->abandoned = "MPI";
}

static void allreduce_cancel(struct coll *coll, void *state)
{
    struct mpi_allreduce *a = state;
    allreduce_stop(coll, state);
    if (a->phase != EXCHANGE && a->shared)
        shm_pieces_cancel(coll->pieces);
}

static const char *allreduce_name(const void *state)
{
    const struct mpi_allreduce *a = state;
    return a->mpi->flat ? "mpi_flat" : a->shared ? "mpi_hierarchical" : "mpi_allreduce";
}

const struct algorithm mpi_allreduce_algorithm = {
    .name = "mpi_allreduce",
    .name_of = allreduce_name,
    .state_size = sizeof(struct mpi_allreduce),
    .applies = allreduce_applies,
    .together = true,
    .init = allreduce_init,
    .fini = allreduce_fini,
    .start = allreduce_start,
    .progress = allreduce_progress,
    .cancel = allreduce_cancel,
    .stop = allreduce_stop,
};
