/* SPDX-License-Identifier: Apache-2.0
 *
 * coll: see coll.h. Chooses the algorithm, keeps the work buffers, counts operations.
 */
#include "core/coll/coll.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "core/coll/algorithm.h"
#include "core/coll/reduce.h"
#include "core/coll/shm_pieces.h"
#include "core/coll/shm_steps.h"
#include "core/transport/shm.h"

/* Inserts an algorithm into coll->list, behind those of back ends and before coll's own. */
static int add(struct coll *coll, const struct algorithm *alg, struct err *err)
{
    if (coll->n == COLL_MAX_ALGORITHMS)
        return err_set(err, ENOSPC, "no room for the algorithm %s", alg->name);
    void *state = calloc(1, alg->state_size ? alg->state_size : 1);
    if (!state)
        return err_set(err, ENOMEM, "no memory for collectives");
    int rc = alg->init ? alg->init(coll, state, err) : 0;
    if (rc < 0) {
        free(state);
        return rc;
    }
    struct coll_entry *at = &coll->list[coll->nbackend++];
    memmove(at + 1, at, (size_t)(coll->n++ - (at - coll->list)) * sizeof(*at));
    *at = (struct coll_entry){alg, state};
    return 0;
}

static int add_all(struct coll *coll, const struct algorithm *const *list, struct err *err)
{
    int rc = 0;
    for (int i = 0; list[i] && rc == 0; i++)
        rc = add(coll, list[i], err);
    return rc;
}

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
    if (rc == 0)
        rc = add_all(coll, coll_algorithms, err);
    coll->nbackend = 0;
    if (rc < 0) {
        coll_destroy(coll);
        return rc;
    }
    *ret = coll;
    return 0;
}

int coll_add_algorithms(struct coll *coll, const struct algorithm *const *list, void *backend,
                        struct err *err)
{
    coll->backend = backend;
    int rc = add_all(coll, list, err);
    coll->backend = NULL;
    return rc;
}

void coll_destroy(struct coll *coll)
{
    if (!coll)
        return;
    /* If a library still uses memory, the states of back ends and the work buffers must not be
     * freed: they stay until the process ends. */
    const struct coll_entry *kept = coll->list + (coll->abandoned ? coll->nbackend : 0);
    for (struct coll_entry *e = coll->list; e < coll->list + coll->n; e++) {
        if (e < kept)
            continue;
        if (e->alg->fini)
            e->alg->fini(e->state);
        free(e->state);
    }
    shm_pieces_destroy(coll->pieces);
    guard_fini(&coll->guard);
    free(coll->final);
    for (int i = 0; i < 2 && !coll->abandoned; i++)
        free(coll->work[i].data);
    free(coll);
}

uint8_t *coll_work(struct coll *coll, size_t bytes)
{
    struct coll_work *w = &coll->work[coll->turn];
    if (w->data && bytes <= w->cap)
        return w->data;
    /* Frees the old buffer first: two old ones and a new one would exceed the documented limit. */
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

/* Checks that the counts of the parts add up to the tensor's. */
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
        return err_set(err, EBUSY, "a collective is in flight");
    if ((unsigned)op->kind >= COLL_KINDS)
        return err_set(err, EINVAL, "unknown kind of collective %d", (int)op->kind);
    if (op->kind == HVD_BARRIER)
        return 0;
    if ((unsigned)op->dtype >= HVD_DTYPES)
        return err_set(err, EINVAL, "unknown dtype %d", (int)op->dtype);
    bool combines = op->kind == HVD_ALLREDUCE || op->kind == HVD_REDUCESCATTER;
    if (combines && op->dtype >= REDUCE_DTYPES)
        return err_set(err, EINVAL, "no %s of %s", hvd_kind_name(op->kind),
                       hvd_dtype_name(op->dtype));
    if (op->kind == HVD_ALLREDUCE)
        return 0;
    if (op->n != 1)
        return err_set(err, EINVAL, "%zu tensors where one was expected", op->n);
    return check_parts(coll->mesh, op, err);
}

/* Chooses the first algorithm that applies; false: none does. Coll's own only work on host
 * memory. */
static bool choose(struct coll *coll, const struct coll_op *op)
{
    for (int i = 0; i < coll->n; i++) {
        const struct coll_entry *e = &coll->list[i];
        if ((op->device >= 0 && i >= coll->nbackend) || !e->alg->applies(coll->mesh, op))
            continue;
        coll->alg = e->alg;
        coll->alg_state = e->state;
        return true;
    }
    return false;
}

const struct coll_op coll_barrier = {
    .kind = HVD_BARRIER, .prescale = 1.0, .postscale = 1.0, .device = -1};

/* Starts the chosen operation, or first the barrier before it. */
static int begin(struct coll *coll, const struct coll_op *op, struct err *err)
{
    coll->gathering = NULL;
    if (coll->alg->together && coll->mesh->size > 1) {
        coll->gathering = op;
        op = &coll_barrier;
        if (!choose(coll, op))
            return err_set(err, ENOTSUP, "no algorithm for a barrier");
    }
    coll->op = op;
    return coll->alg->start(coll, coll->alg_state, err);
}

/* Starts the operation that waited for all ranks, because every rank has entered it. */
static int begin_gathered(struct coll *coll)
{
    const struct coll_op *op = TAKE(coll->gathering);
    struct err err = {0};
    coll->seq++;
    coll->op = op;
    int rc = choose(coll, op) ? coll->alg->start(coll, coll->alg_state, &err)
                              : err_set(&err, ENOTSUP, "no algorithm for this collective");
    if (rc < 0)
        log_warn("%s", err_text(&err));
    return rc;
}

int coll_start(struct coll *coll, const struct coll_op *op, struct err *err)
{
    int rc = check(coll, op, err);
    if (rc < 0)
        return rc;
    if (!choose(coll, op))
        return err_set(err, ENOTSUP, "no algorithm for this collective");
    coll->guard.on = coll->guard.behind = coll->by_parts = false;
    coll->why.code = 0;
    if (coll->elastic && !coll->alg->settle && coll->mesh->size > 1 &&
        !coll_is_empty(coll->mesh, op) && guard_begin(&coll->guard, op, &op) < 0)
        return err_set(err, ENOMEM, "no memory to save the inputs of a collective");
    rc = begin(coll, op, err);
    if (rc < 0)
        coll->op = NULL;
    return rc;
}

/* This rank has finished the operation: starts the barrier after it, if there is one. */
static int begin_barrier(struct coll *coll)
{
    struct guard *g = &coll->guard;
    g->behind = true;
    coll->op = &coll_barrier;
    coll->seq++;
    return choose(coll, coll->op) ? coll->alg->start(coll, coll->alg_state, NULL) : -ENOTSUP;
}

/* Makes progress on the current operation, or on the barrier before it. */
static int work(struct coll *coll)
{
    int rc = coll->alg->progress(coll, coll->alg_state);
    if (rc != 0 || !coll->gathering)
        return rc;
    rc = begin_gathered(coll);
    return rc == 0 ? coll->alg->progress(coll, coll->alg_state) : rc;
}

int coll_progress(struct coll *coll)
{
    if (!coll->op)
        return 0;
    coll->wait = COLL_WAKES;
    int rc = work(coll);
    if (rc == 0 && coll->guard.on && !coll->guard.behind) {
        rc = begin_barrier(coll);
        if (rc == 0)
            rc = coll->alg->progress(coll, coll->alg_state);
    }
    if (rc == 0) {
        coll->op = NULL;
        coll->seq++;
        /* Parts have switched the buffer already, so that the next operation does not get the
         * last part's. A library's operation leaves no data that peers still read from the
         * buffer, so the next one reuses it while it is in the cache. */
        coll->turn ^= !coll->by_parts && !coll->alg->together;
    }
    return rc;
}

enum coll_wait coll_wait(const struct coll *coll)
{
    return coll ? coll->wait : COLL_WAKES;
}

void coll_cancel(struct coll *coll)
{
    if (coll->op && coll->alg->cancel)
        coll->alg->cancel(coll, coll->alg_state);
    coll->op = coll->gathering = NULL;
    coll->wait = COLL_WAKES;
}

int coll_failed(struct coll *coll, const struct err *why)
{
    coll->why = *why;
    return why->code;
}

const struct err *coll_why(const struct coll *coll)
{
    return coll && coll->why.code ? &coll->why : NULL;
}

void coll_stop(struct coll *coll)
{
    if (coll && coll->op && coll->alg->stop)
        coll->alg->stop(coll, coll->alg_state);
}

const char *coll_abandoned(const struct coll *coll)
{
    return coll ? coll->abandoned : NULL;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void change_places(struct coll *coll)
{
    const struct coll_run other = coll->other;
    coll->other = (struct coll_run){coll->op, coll->alg, coll->alg_state};
    coll->op = other.op;
    coll->alg = other.alg;
    coll->alg_state = other.alg_state;
}

int coll_part_start(struct coll *coll, const struct coll_op *part, struct err *err)
{
    change_places(coll);
    int rc = choose(coll, part) ? begin(coll, part, err)
                                : err_set(err, ENOTSUP, "no algorithm for a part of a collective");
    if (rc < 0)
        coll->op = NULL;
    coll->by_parts = true;
    change_places(coll);
    return rc;
}

int coll_part_progress(struct coll *coll)
{
    change_places(coll);
    int rc = work(coll);
    if (rc == 0) {
        coll->op = NULL;
        coll->seq++;
        coll->turn ^= 1;
    }
    change_places(coll);
    return rc;
}

void coll_part_cancel(struct coll *coll)
{
    change_places(coll);
    if (coll->op && coll->alg->cancel)
        coll->alg->cancel(coll, coll->alg_state);
    coll->op = coll->gathering = NULL;
    change_places(coll);
}

/* ---- elastic -------------------------------------------------------------------------------- */

void coll_set_elastic(struct coll *coll)
{
    coll->elastic = true;
    if (coll->pieces)
        shm_pieces_steps(coll->pieces)->elastic = true;
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
        ret->whole = true; /* a barrier has no result */
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
    else if (coll->op && coll->alg->restore)
        coll->alg->restore(coll, coll->alg_state);
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
