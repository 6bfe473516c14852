/* SPDX-License-Identifier: Apache-2.0
 *
 * one_host: the collectives of ranks that all share one memory: allreduce and barrier of
 * shm_allreduce.h, allgather, broadcast and reduce-scatter of shm_pieces.h, alltoall of
 * shm_exchange.h.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"
#include "core/coll/shm_allreduce.h"
#include "core/coll/shm_exchange.h"
#include "core/coll/shm_pieces.h"

static bool one_host(const struct mesh *mesh)
{
    return mesh->hosts == 1 && mesh->shm;
}

struct shm_sums {
    struct shm_allreduce *shm;
};

static int sums_init(struct coll *coll, void *state, struct err *err)
{
    struct shm_sums *s = state;
    return one_host(coll->mesh) ? shm_allreduce_create(coll->mesh, coll->pieces, &s->shm, err) : 0;
}

static void sums_fini(void *state)
{
    shm_allreduce_destroy(((struct shm_sums *)state)->shm);
}

static bool sums_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return one_host(mesh) && (op->kind == HVD_ALLREDUCE || coll_is_empty(mesh, op));
}

static int sums_start(struct coll *coll, void *state, struct err *err)
{
    struct shm_sums *s = state;
    const struct coll_op *op = coll->op;
    shm_allreduce_start(s->shm, coll_is_empty(coll->mesh, op) ? &coll_barrier : op);
    return 0;
}

static int sums_progress(struct coll *coll, void *state)
{
    return shm_allreduce_progress(((struct shm_sums *)state)->shm);
}

static void sums_cancel(struct coll *coll, void *state)
{
    shm_allreduce_cancel(((struct shm_sums *)state)->shm);
}

static void sums_standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    ret->pieces = shm_allreduce_final(((struct shm_sums *)state)->shm, coll->final);
    ret->final = coll->final;
}

static int sums_settle(struct coll *coll, void *state, const uint32_t *final,
                       struct coll_rest *rest)
{
    return shm_allreduce_settle(((struct shm_sums *)state)->shm, final, rest);
}

static const char *sums_name(const void *state)
{
    return shm_allreduce_name(((const struct shm_sums *)state)->shm);
}

const struct algorithm shm_sums_algorithm = {
    .name = "shm",
    .name_of = sums_name,
    .state_size = sizeof(struct shm_sums),
    .applies = sums_applies,
    .init = sums_init,
    .fini = sums_fini,
    .start = sums_start,
    .progress = sums_progress,
    .cancel = sums_cancel,
    .standing = sums_standing,
    .settle = sums_settle,
};

/* Where each seat's bytes go and how many there are. */
struct shm_gather {
    uint8_t **out;
    size_t *bytes;
};

static void gather_fini(void *state)
{
    struct shm_gather *g = state;
    free(g->out);
    free(g->bytes);
}

static int gather_init(struct coll *coll, void *state, struct err *err)
{
    struct shm_gather *g = state;
    g->out = calloc((size_t)coll->mesh->size, sizeof(*g->out));
    g->bytes = calloc((size_t)coll->mesh->size, sizeof(*g->bytes));
    if (g->out && g->bytes)
        return 0;
    gather_fini(g);
    return err_set(err, ENOMEM, "no memory for collectives");
}

static bool gather_applies(const struct mesh *mesh, const struct coll_op *op)
{
    if (!one_host(mesh))
        return false;
    return op->kind == HVD_ALLGATHER || op->kind == HVD_BROADCAST;
}

static int gather_start(struct coll *coll, void *state, struct err *err)
{
    struct shm_gather *g = state;
    const struct coll_op *op = coll->op;
    const struct coll_tensor *t = &op->tensors[0];
    int me = coll->mesh->rank, size = coll->mesh->size;
    size_t elem = hvd_dtype_size(op->dtype), at = 0;
    for (int r = 0; r < size; r++) {
        bool gives = op->kind == HVD_ALLGATHER || r == op->root;
        g->bytes[r] =
            !gives ? 0 : (op->kind == HVD_ALLGATHER ? op->recv_counts[r] : t->count) * elem;
        g->out[r] = t->out ? (uint8_t *)t->out + at : NULL;
        at += op->kind == HVD_ALLGATHER ? g->bytes[r] : 0;
    }
    shm_pieces_gather(coll->pieces, g->bytes[me] ? t->in : NULL, g->out, g->bytes);
    return 0;
}

static int gather_progress(struct coll *coll, void *state)
{
    return shm_pieces_progress(coll->pieces);
}

static void gather_cancel(struct coll *coll, void *state)
{
    shm_pieces_cancel(coll->pieces);
}

static void gather_standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    ret->pieces = shm_pieces_final(coll->pieces, coll->final);
    ret->final = coll->final;
}

static int gather_settle(struct coll *coll, void *state, const uint32_t *final,
                         struct coll_rest *rest)
{
    return shm_pieces_settle(coll->pieces, final, rest);
}

const struct algorithm shm_gather_algorithm = {
    .name = "shm_gather",
    .state_size = sizeof(struct shm_gather),
    .applies = gather_applies,
    .init = gather_init,
    .fini = gather_fini,
    .start = gather_start,
    .progress = gather_progress,
    .cancel = gather_cancel,
    .standing = gather_standing,
    .settle = gather_settle,
};

/* Bytes to and from each seat. */
struct shm_alltoall {
    struct shm_exchange *exchange;
    size_t *to, *from;
};

static void alltoall_fini(void *state)
{
    struct shm_alltoall *a = state;
    shm_exchange_destroy(a->exchange);
    free(a->to);
}

static int alltoall_init(struct coll *coll, void *state, struct err *err)
{
    struct shm_alltoall *a = state;
    size_t size = (size_t)coll->mesh->size;
    if (!one_host(coll->mesh))
        return 0;
    a->to = calloc(2 * size, sizeof(*a->to));
    if (!a->to)
        return err_set(err, ENOMEM, "no memory for collectives");
    a->from = a->to + size;
    int rc = shm_exchange_create(shm_pieces_steps(coll->pieces), &a->exchange, err);
    if (rc < 0)
        alltoall_fini(a);
    return rc;
}

static bool alltoall_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return one_host(mesh) && op->kind == HVD_ALLTOALL;
}

static int alltoall_start(struct coll *coll, void *state, struct err *err)
{
    struct shm_alltoall *a = state;
    const struct coll_op *op = coll->op;
    size_t elem = hvd_dtype_size(op->dtype);
    for (int r = 0; r < coll->mesh->size; r++) {
        a->to[r] = op->send_counts[r] * elem;
        a->from[r] = op->recv_counts[r] * elem;
    }
    shm_exchange_start(a->exchange, op->tensors[0].in, a->to, op->tensors[0].out, a->from);
    return 0;
}

static int alltoall_progress(struct coll *coll, void *state)
{
    return shm_exchange_progress(((struct shm_alltoall *)state)->exchange);
}

static void alltoall_cancel(struct coll *coll, void *state)
{
    shm_exchange_cancel(((struct shm_alltoall *)state)->exchange);
}

static void alltoall_standing(struct coll *coll, void *state, struct coll_standing *ret)
{
    coll->final[0] = shm_exchange_final(((struct shm_alltoall *)state)->exchange);
    ret->pieces = 1;
    ret->final = coll->final;
}

static int alltoall_settle(struct coll *coll, void *state, const uint32_t *final,
                           struct coll_rest *rest)
{
    if (final && !final[0])
        return 0;
    return shm_exchange_settle(((struct shm_alltoall *)state)->exchange);
}

const struct algorithm shm_alltoall_algorithm = {
    .name = "shm_alltoall",
    .state_size = sizeof(struct shm_alltoall),
    .applies = alltoall_applies,
    .init = alltoall_init,
    .fini = alltoall_fini,
    .start = alltoall_start,
    .progress = alltoall_progress,
    .cancel = alltoall_cancel,
    .standing = alltoall_standing,
    .settle = alltoall_settle,
};

/* Where each local rank's part of the sums begins. */
struct shm_scatter {
    size_t *begins; /* [size + 1] elements */
    struct layout layout;
    uint8_t *sums; /* the own part, if it cannot be written to the output at once; else NULL */
    size_t bytes;  /* bytes of the own part */
};

static void scatter_fini(void *state)
{
    free(((struct shm_scatter *)state)->begins);
}

static int scatter_init(struct coll *coll, void *state, struct err *err)
{
    struct shm_scatter *s = state;
    s->begins = calloc((size_t)coll->mesh->size + 1, sizeof(*s->begins));
    return s->begins ? 0 : err_set(err, ENOMEM, "no memory for collectives");
}

static bool scatter_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return one_host(mesh) && op->kind == HVD_REDUCESCATTER;
}

static int scatter_start(struct coll *coll, void *state, struct err *err)
{
    struct shm_scatter *s = state;
    const struct coll_op *op = coll->op;
    const struct coll_tensor *t = &op->tensors[0];
    int me = coll->mesh->rank, size = coll->mesh->size;
    size_t elem = hvd_dtype_size(op->dtype);
    for (int r = 0; r < size; r++)
        s->begins[r + 1] = s->begins[r] + op->recv_counts[r];
    s->bytes = op->recv_counts[me] * elem;
    s->layout = (struct layout){.tensors = t, .n = 1, .elem = elem, .pieces = 1};
    s->sums = NULL;
    if (s->bytes > 0 && coll_overlaps(t, t->count * elem, s->bytes)) {
        s->sums = coll_work(coll, s->bytes);
        if (!s->sums)
            return err_set(err, ENOMEM, "no memory for a reducescatter of %zu bytes", s->bytes);
    }
    const struct reduce_plan plan = coll_reduce_plan(op);
    shm_pieces_scatter_sums(coll->pieces, &s->layout, s->begins, &plan,
                            s->bytes == 0 ? NULL
                            : s->sums     ? s->sums
                                          : t->out);
    return 0;
}

static void place_sums(struct coll *coll, struct shm_scatter *s)
{
    if (s->sums)
        memcpy(coll->op->tensors[0].out, s->sums, s->bytes);
}

static int scatter_progress(struct coll *coll, void *state)
{
    int rc = shm_pieces_progress(coll->pieces);
    if (rc == 0)
        place_sums(coll, state);
    return rc;
}

static int scatter_settle(struct coll *coll, void *state, const uint32_t *final,
                          struct coll_rest *rest)
{
    int rc = shm_pieces_settle(coll->pieces, final, rest);
    if (rc == 0 && (!final || final[0]))
        place_sums(coll, state);
    return rc;
}

const struct algorithm shm_scatter_algorithm = {
    .name = "shm_scatter",
    .state_size = sizeof(struct shm_scatter),
    .applies = scatter_applies,
    .init = scatter_init,
    .fini = scatter_fini,
    .start = scatter_start,
    .progress = scatter_progress,
    .cancel = gather_cancel,
    .standing = gather_standing,
    .settle = scatter_settle,
};
