/* SPDX-License-Identifier: Apache-2.0
 *
 * coll: see coll.h. Chooses the algorithm, keeps the work buffers, counts operations.
 */
#include "core/coll/coll.h"

#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithm.h"
#include "core/coll/shm_pieces.h"
#include "core/transport/shm.h"

int coll_create(struct mesh *mesh, struct coll **ret, struct err *err)
{
    struct coll *coll = calloc(1, sizeof(*coll));
    if (!coll)
        return err_set(err, ENOMEM, "no memory for collectives");
    coll->mesh = mesh;
    coll->final = calloc(mesh->shm ? (size_t)mesh->shm->seats : 1, sizeof(*coll->final));
    if (!coll->final) {
        free(coll);
        return err_set(err, ENOMEM, "no memory for collectives");
    }
    int rc = mesh->shm ? shm_pieces_create(mesh, &coll->pieces, err) : 0;
    if (rc < 0)
        goto error;
    for (int i = 0; coll_algorithms[i]; i++) {
        const struct algorithm *alg = coll_algorithms[i];
        coll->state[i] = calloc(1, alg->state_size ? alg->state_size : 1);
        if (!coll->state[i]) {
            rc = err_set(err, ENOMEM, "no memory for collectives");
            goto error;
        }
        if (alg->init && (rc = alg->init(coll, coll->state[i], err)) < 0) {
            free(coll->state[i]);
            coll->state[i] = NULL;
            goto error;
        }
    }
    *ret = coll;
    return 0;
error:
    coll_destroy(coll);
    return rc;
}

void coll_destroy(struct coll *coll)
{
    if (!coll)
        return;
    for (int i = 0; coll_algorithms[i]; i++) {
        if (coll->state[i] && coll_algorithms[i]->fini)
            coll_algorithms[i]->fini(coll->state[i]);
        free(coll->state[i]);
    }
    shm_pieces_destroy(coll->pieces);
    guard_fini(&coll->guard);
    free(coll->final);
    free(coll->work[0].data);
    free(coll->work[1].data);
    free(coll);
}

uint8_t *coll_work(struct coll *coll, size_t bytes)
{
    struct coll_work *w = &coll->work[coll->turn];
    if (w->data && bytes <= w->cap)
        return w->data;
    /* Freed first: two of the old size and one of the new would be more than was promised. */
    free(w->data);
    w->cap = (bytes + 4095) / 4096 * 4096 + 4096;
    w->data = aligned_alloc(4096, w->cap);
    if (!w->data)
        w->cap = 0;
    return w->data;
}

size_t coll_count(const struct coll_op *op)
{
    size_t count = 0;
    for (size_t i = 0; i < op->n; i++)
        count += op->tensors[i].count;
    return count;
}

bool coll_is_empty(const struct mesh *mesh, const struct coll_op *op)
{
    if (op->kind == HVD_BARRIER)
        return true;
    if (op->kind == HVD_ALLTOALL)
        return false;
    size_t count = coll_count(op);
    if (op->kind == HVD_ALLGATHER)
        for (int r = 0; r < mesh->size; r++)
            count += op->recv_counts[r];
    return count == 0;
}

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* Do the counts of the parts fit the tensor? */
static int check_parts(const struct mesh *mesh, const struct coll_op *op, struct err *err)
{
    size_t given = op->tensors[0].count, announced = given;
    int me = mesh->rank;
    if (op->kind == HVD_ALLGATHER)
        announced = op->recv_counts[me];
    else if (op->kind == HVD_ALLTOALL)
        announced = sum_of(op->send_counts, mesh->size);
    else if (op->kind == HVD_REDUCESCATTER)
        announced = sum_of(op->recv_counts, mesh->size);
    if (announced != given)
        return err_set(err, EINVAL, "%s: the tensor has %zu elements, its parts %zu",
                       hvd_kind_name(op->kind), given, announced);
    if (op->kind == HVD_ALLTOALL && op->send_counts[me] != op->recv_counts[me])
        return err_set(err, EINVAL, "alltoall: sends itself %zu elements and receives %zu",
                       op->send_counts[me], op->recv_counts[me]);
    if (op->kind == HVD_ALLTOALL && given > 0 && op->tensors[0].in == op->tensors[0].out)
        return err_set(err, EINVAL, "alltoall: input and output are the same");
    if (op->kind == HVD_BROADCAST && (op->root < 0 || op->root >= mesh->size))
        return err_set(err, EINVAL, "broadcast: no rank %d in a world of %d", op->root, mesh->size);
    return 0;
}

static int check(const struct coll *coll, const struct coll_op *op, struct err *err)
{
    if (coll->op)
        return err_set(err, EBUSY, "a collective is under way");
    if ((unsigned)op->kind >= HVD_KINDS)
        return err_set(err, EINVAL, "unknown kind of collective %d", (int)op->kind);
    if (op->kind == HVD_BARRIER)
        return 0;
    if ((unsigned)op->dtype >= HVD_DTYPES)
        return err_set(err, EINVAL, "unknown dtype %d", (int)op->dtype);
    if (op->kind == HVD_ALLREDUCE)
        return 0;
    if (op->n != 1)
        return err_set(err, EINVAL, "%zu tensors where one was expected", op->n);
    return check_parts(coll->mesh, op, err);
}

/* The first of the table that applies; false: none does. */
static bool choose(struct coll *coll, const struct coll_op *op)
{
    for (int i = 0; coll_algorithms[i]; i++) {
        if (!coll_algorithms[i]->applies(coll->mesh, op))
            continue;
        coll->alg = coll_algorithms[i];
        coll->alg_state = coll->state[i];
        return true;
    }
    return false;
}

int coll_start(struct coll *coll, const struct coll_op *op, struct err *err)
{
    int rc = check(coll, op, err);
    if (rc < 0)
        return rc;
    if (!choose(coll, op))
        return err_set(err, ENOTSUP, "no algorithm for this collective");
    coll->guard.on = coll->guard.behind = false;
    if (coll->elastic && !coll->alg->settle && coll->mesh->size > 1 &&
        !coll_is_empty(coll->mesh, op) && guard_begin(&coll->guard, op, &op) < 0)
        return err_set(err, ENOMEM, "no memory to save the inputs of a collective");
    coll->op = op;
    rc = coll->alg->start(coll, coll->alg_state, err);
    if (rc < 0)
        coll->op = NULL;
    return rc;
}

/* The operation is done here; does everybody have it? */
static int begin_barrier(struct coll *coll)
{
    struct guard *g = &coll->guard;
    g->behind = true;
    g->barrier = (struct coll_op){.kind = HVD_BARRIER, .prescale = 1.0, .postscale = 1.0};
    coll->op = &g->barrier;
    coll->seq++;
    return choose(coll, coll->op) ? coll->alg->start(coll, coll->alg_state, NULL) : -ENOTSUP;
}

int coll_progress(struct coll *coll)
{
    if (!coll->op)
        return 0;
    int rc = coll->alg->progress(coll, coll->alg_state);
    if (rc == 0 && coll->guard.on && !coll->guard.behind) {
        rc = begin_barrier(coll);
        if (rc == 0)
            rc = coll->alg->progress(coll, coll->alg_state);
    }
    if (rc == 0) {
        coll->op = NULL;
        coll->seq++;
        coll->turn ^= 1;
    }
    return rc;
}

void coll_cancel(struct coll *coll)
{
    if (coll->op && coll->alg->cancel)
        coll->alg->cancel(coll, coll->alg_state);
    coll->op = NULL;
}

/* ---- elastic -------------------------------------------------------------------------------- */

void coll_set_elastic(struct coll *coll)
{
    coll->elastic = true;
}

void coll_standing(struct coll *coll, struct coll_standing *ret)
{
    *ret = (struct coll_standing){.started = coll->op != NULL};
    if (!coll->op)
        return;
    if (coll->guard.on)
        ret->whole = coll->guard.behind;
    else if (coll->alg->standing)
        coll->alg->standing(coll, coll->alg_state, ret);
    else
        ret->whole = true; /* a barrier has no result that could be missing */
}

int coll_settle(struct coll *coll, const uint32_t *final, struct coll_rest *ret_rest)
{
    return coll->op && coll->alg->settle ? coll->alg->settle(coll, coll->alg_state, final, ret_rest)
                                         : 0;
}

void coll_restore(struct coll *coll)
{
    if (coll->op && coll->guard.on)
        guard_restore(&coll->guard);
}

int coll_rest_add(struct coll_rest *rest, const struct coll_tensor *tensor, size_t elem)
{
    struct coll_tensor *last = rest->n ? &rest->list[rest->n - 1] : NULL;
    if (last && (const uint8_t *)last->in + last->count * elem == tensor->in &&
        (uint8_t *)last->out + last->count * elem == tensor->out) {
        last->count += tensor->count;
        return 0;
    }
    if (!rest->list || rest->n == rest->cap) {
        size_t cap = rest->cap ? 2 * rest->cap : 64;
        struct coll_tensor *grown = realloc(rest->list, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        rest->list = grown;
        rest->cap = cap;
    }
    rest->list[rest->n++] = *tensor;
    return 0;
}

void coll_rest_fini(struct coll_rest *rest)
{
    free(rest->list);
    *rest = (struct coll_rest){0};
}

const char *coll_algorithm(const struct coll *coll)
{
    if (!coll->alg)
        return "none";
    return coll->alg->name_of ? coll->alg->name_of(coll->alg_state) : coll->alg->name;
}
