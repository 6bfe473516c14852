/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_allreduce: allreduce of more than a little through MPI.
 *
 * Ranks that share their host sum there first, by lanes as in coll/hier_allreduce: the first
 * `lanes` of them own a part of the host's sums each, and copy the results to all. A rank that is
 * alone on its host has all of the tensors as its part: a single tensor in place, several packed.
 *
 * The owners of a lane cut their part into chunks, and a chunk into as many shares as they are.
 * Each gets its share from all others (alltoall), adds, in the order of hosts, and gives the sum to
 * all others (allgather). So the order of summation of an element depends on nothing, and 16-bit
 * floats are rounded once. The alltoalls of the next chunks are in flight while a chunk is added.
 */
#include <stdlib.h>

#include "core/backend/mpi.h"
#include "core/coll/layout.h"
#include "core/coll/shm_pieces.h"

#define SMALL     ((size_t)16 << 10)  /* bytes: hvd's links are as fast, see mpi.h */
#define CHUNK     ((size_t)1 << 20)   /* bytes of a chunk, if that leaves each owner */
#define SHARE_MIN ((size_t)128 << 10) /* this much */
#define AHEAD     4 /* chunks in flight: with 2, a rank without its processor stops the others */
#define NUMBERS   (2 * AHEAD * 4) /* an alltoall and an allgather each, with 4 for each member */
#define PAGE      4096

enum phase { SUM_LOCALLY, EXCHANGE, HAND_OUT };

struct mpi_allreduce {
    struct mpi *mpi;
    struct layout layout;
    struct shm_share share;
    struct reduce_plan plan;
    struct mpi_task task;
    enum phase phase;
    bool shared;          /* the host's shared segment is used */
    bool owner;           /* this rank takes part in the exchange */
    mpi_comm comm;        /* of the owners of this lane */
    int members, place;   /* its size, this rank's index */
    const uint8_t *in;    /* the part before */
    uint8_t *out;         /* and after; may be in */
    uint8_t *scratch;     /* AHEAD x arriving shares */
    size_t arriving;      /* bytes of a chunk that arrive */
    size_t elem, count;   /* of the part */
    size_t chunk, chunks; /* elements of a chunk, the last may be shorter; their number */
    const void **sources; /* [members] */
    bool *prescaled;      /* [members] the sum of several ranks carries the prescale already */
    int *numbers;         /* [4 x members] of each call in flight */
    size_t scattered, summed, gathered; /* chunks: alltoall begun, allgather begun, all done */
    mpi_request scatters[AHEAD], gathers[AHEAD];
};

static int allreduce_init(struct coll *coll, void *state, struct err *err)
{
    struct mpi_allreduce *a = state;
    const struct mesh *mesh = coll->mesh;
    bool flat = mesh->hosts == 1;
    a->mpi = coll->backend;
    a->comm = flat ? a->mpi->world : a->mpi->lane;
    a->members = flat ? mesh->size : mesh->hosts;
    a->place = flat ? mesh->rank : mesh->host;
    a->shared = !flat && mesh->local_size > 1;
    a->owner = flat || mesh->local_rank < mesh->lanes;
    size_t p = (size_t)a->members;
    a->sources = calloc(p, sizeof(*a->sources) + NUMBERS * sizeof(int) + sizeof(bool));
    if (!a->sources)
        return err_set(err, ENOMEM, "no memory for collectives");
    a->numbers = (int *)(a->sources + p);
    a->prescaled = (bool *)(a->numbers + NUMBERS * p);
    for (int k = 0; k < a->members; k++)
        a->prescaled[k] = !flat && mesh->local_size_of[k] > 1;
    return 0;
}

static void allreduce_fini(void *state)
{
    free(((struct mpi_allreduce *)state)->sources);
}

static bool allreduce_applies(const struct mesh *mesh, const struct coll_op *op)
{
    size_t fair = ((size_t)1 << 20) / (size_t)mesh->hosts;
    return op->kind == HVD_ALLREDUCE && op->device < 0 && mesh->size > 1 &&
           coll_count(op) * hvd_dtype_size(op->dtype) > (fair < SMALL ? fair : SMALL);
}

/* ---- between the owners of a lane ----------------------------------------------------------- */

/* Elements of a chunk before member r's share. */
static size_t share_begin(const struct mpi_allreduce *a, size_t chunk, int r)
{
    size_t left = a->count - chunk * a->chunk;
    return layout_begin(left < a->chunk ? left : a->chunk, (size_t)a->members, (size_t)r);
}

static int begin(struct mpi_allreduce *a, size_t chunk, enum hvd_kind kind)
{
    int p = a->members, me = a->place, slot = (int)(chunk % AHEAD);
    bool sums = kind == HVD_ALLTOALL;
    size_t at = chunk * a->chunk * a->elem;
    int *n = a->numbers + (size_t)(2 * slot + sums) * 4 * (size_t)p;
    int own = (int)(share_begin(a, chunk, me + 1) - share_begin(a, chunk, me));
    for (int r = 0; r < p; r++) {
        n[p + r] = (int)share_begin(a, chunk, r);
        n[r] = (int)share_begin(a, chunk, r + 1) - n[p + r];
        n[2 * p + r] = r == me ? 0 : own;
        n[3 * p + r] = (r - (r > me)) * own;
    }
    if (sums) /* the own share is added where it is */
        n[me] = 0;
    const struct mpi_call call = {
        .kind = kind,
        .elem = a->elem,
        .in = a->in + at,
        .out = sums ? a->scratch + (size_t)slot * a->arriving : a->out + at,
        .send_counts = n,
        .send_places = n + p,
        .recv_counts = sums ? n + 2 * p : n,
        .recv_places = sums ? n + 3 * p : n + p,
    };
    return a->mpi->library.plugin->start(a->comm, &call, &(sums ? a->scatters : a->gathers)[slot]);
}

static void sum(struct mpi_allreduce *a, size_t chunk)
{
    const uint8_t *arrived = a->scratch + chunk % AHEAD * a->arriving;
    size_t first = share_begin(a, chunk, a->place);
    size_t count = share_begin(a, chunk, a->place + 1) - first;
    size_t own = (chunk * a->chunk + first) * a->elem;
    for (int r = 0; r < a->members; r++) {
        a->sources[r] = r == a->place ? a->in + own : arrived;
        arrived += r == a->place ? 0 : count * a->elem;
    }
    reduce(&a->plan, a->out + own, a->sources, a->members, count, a->prescaled, true, false);
}

/* All members begin the same collectives in the same order: MPI requires that. */
static int exchange_step(void *ctx)
{
    struct mpi_allreduce *a = ctx;
    int (*test)(mpi_request *) = a->mpi->library.plugin->test;
    int rc = 0;
    while (rc == 0 && a->gathered < a->chunks) {
        if (a->scattered < a->chunks && a->scattered < a->summed + AHEAD) {
            rc = begin(a, a->scattered++, HVD_ALLTOALL);
        } else if (a->summed == a->chunks || a->summed == a->gathered + AHEAD) {
            rc = test(&a->gathers[a->gathered % AHEAD]);
            a->gathered += rc == 0;
        } else if ((rc = test(&a->scatters[a->summed % AHEAD])) == 0) {
            sum(a, a->summed);
            rc = begin(a, a->summed++, HVD_ALLGATHER);
        }
    }
    return rc;
}

/* ---- on the host ---------------------------------------------------------------------------- */

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Finds room for the part, unless it is the tensor itself, and cuts it into chunks. */
static int prepare(struct coll *coll, struct mpi_allreduce *a, struct err *err)
{
    const struct coll_op *op = coll->op;
    size_t p = (size_t)a->members, lane = a->shared ? (size_t)coll->mesh->local_rank : 0;
    size_t bytes = layout_piece_bytes(&a->layout, lane), most = p * SHARE_MIN;
    bool copied = a->shared || op->n > 1;
    a->count = bytes / a->elem;
    a->chunk = (most > CHUNK ? most : CHUNK) / a->elem;
    a->chunk = a->count < a->chunk ? a->count : a->chunk;
    a->chunks = a->count ? (a->count + a->chunk - 1) / a->chunk : 0;
    a->arriving = pages((a->chunk / p + 1) * (p - 1) * a->elem);
    size_t part = copied ? pages(bytes) : 0;
    uint8_t *memory = coll_work(coll, part + AHEAD * a->arriving + PAGE);
    if (!memory)
        return err_set(err, ENOMEM, "no memory for an allreduce of %zu bytes", bytes);
    a->in = copied ? memory : op->tensors[0].in;
    a->out = copied ? memory : op->tensors[0].out;
    /* At the offset in a page that the sums will have. Otherwise sums wait for writes to other
     * addresses with the same lower 12 bits (4K aliasing). */
    uintptr_t sums = (uintptr_t)a->out + share_begin(a, 0, a->place) * a->elem;
    a->scratch = memory + part + (sums - (uintptr_t)memory) % PAGE;
    a->scattered = a->summed = a->gathered = 0;
    return 0;
}

/* Copies several tensors of a rank that is alone on its host to or from the part. */
static void pack(struct mpi_allreduce *a, bool out)
{
    struct layout_walk w = layout_walk(0);
    struct layout_run run;
    uint8_t *at = a->out;
    if (a->shared || a->layout.n == 1)
        return;
    for (; layout_next(&a->layout, &w, SIZE_MAX, &run); at += run.count * a->elem)
        reduce_copy(out ? run.out : at, out ? at : run.in, run.count * a->elem, false);
}

static void begin_exchange(struct mpi_allreduce *a)
{
    a->phase = EXCHANGE;
    if (!a->owner)
        return;
    pack(a, false);
    mpi_task_start(&a->task, exchange_step, a);
}

static int allreduce_start(struct coll *coll, void *state, struct err *err)
{
    struct mpi_allreduce *a = state;
    const struct coll_op *op = coll->op;
    size_t lanes = a->shared ? (size_t)coll->mesh->lanes : 1;
    a->elem = hvd_dtype_size(op->dtype);
    a->plan = coll_reduce_plan(op);
    a->layout = (struct layout){op->tensors, op->n, a->elem, lanes};
    a->share = (struct shm_share){.layout = &a->layout, .stride = 1, .owners = (int)lanes};
    a->out = NULL;
    int rc = a->owner ? prepare(coll, a, err) : 0;
    if (rc < 0)
        return rc;
    a->phase = SUM_LOCALLY;
    if (a->shared)
        shm_pieces_reduce_scatter(coll->pieces, &a->share, &a->plan, false, a->out);
    else
        begin_exchange(a);
    return 0;
}

static int progress_exchange(struct coll *coll, struct mpi_allreduce *a)
{
    int rc = a->owner ? mpi_task_progress(&a->task) : 0;
    if (rc == 1)
        coll->wait = COLL_MOVES;
    if (rc != 0)
        return rc;
    pack(a, true);
    if (!a->shared)
        return 0;
    a->phase = HAND_OUT;
    shm_pieces_allgather(coll->pieces, &a->share, a->out);
    if (a->owner)
        shm_pieces_set_ready(coll->pieces, a->count * a->elem);
    return shm_pieces_progress(coll->pieces);
}

static int allreduce_progress(struct coll *coll, void *state)
{
    struct mpi_allreduce *a = state;
    if (a->phase != EXCHANGE) {
        int rc = shm_pieces_progress(coll->pieces);
        if (rc != 0 || a->phase == HAND_OUT)
            return rc;
        begin_exchange(a);
    }
    return progress_exchange(coll, a);
}

/* In the other phases only allreduce_progress() touches memory. */
static void allreduce_stop(struct coll *coll, void *state)
{
    struct mpi_allreduce *a = state;
    if (a->phase == EXCHANGE && a->owner && !mpi_task_stop(&a->task))
        coll->abandoned = "MPI";
}

static void allreduce_cancel(struct coll *coll, void *state)
{
    allreduce_stop(coll, state);
    if (((struct mpi_allreduce *)state)->phase != EXCHANGE)
        shm_pieces_cancel(coll->pieces);
}

const struct algorithm mpi_allreduce_algorithm = {
    .name = "mpi_allreduce",
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
