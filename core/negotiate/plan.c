/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: see plan.h.
 */
#include "core/negotiate/plan.h"

#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/negotiate/rounds.h"
#include "core/negotiate/signature.h"

void plan_fini(struct plan *p)
{
    free(p->tensors);
    free(p->ends);
    free(p->bound);
    free(p->joined);
    *p = (struct plan){.wants = p->wants};
}

bool plan_group_step(struct plan_group *g, const struct signature *sig)
{
    if (g->left)
        return sig->group_size && sig->group_hash == g->hash && g->left--;
    *g = (struct plan_group){sig->group_hash, sig->group_size ? sig->group_size - 1 : 0};
    return true;
}

/* Which batches are joined. -EPROTO: the plan has a part of a group. */
static int join(const struct plan *p)
{
    struct plan_group group = {0};
    uint32_t k = 0;
    for (uint32_t i = 0; i < p->nbatches; i++) {
        for (; k < p->ends[i]; k++)
            if (!plan_group_step(&group, &p->tensors[k]->cached))
                return -EPROTO;
        p->joined[i] = group.left;
    }
    return group.left ? -EPROTO : 0;
}

/* On the wire: u32 batches, u32 tensors; a batch is u8 bound, u32 n and n ids. */
/* Whether each rank has a number of rows of its own in the operation: no plan can bind that. */
static bool has_own_rows(const struct signature *sig)
{
    return sig->kind == HVD_ALLGATHER || sig->kind == HVD_ALLTOALL;
}

int plan_read(struct plan *p, const struct tensors *table, uint64_t generation, struct reader *r)
{
    uint32_t nbatches = reader_u32(r), ntensors = reader_u32(r);
    if (r->failed || ntensors == 0 || ntensors > ROUNDS_LOG || nbatches == 0 || nbatches > ntensors)
        return -EPROTO;
    auto_free struct tensor **tensors = calloc(ntensors, sizeof(struct tensor *));
    auto_free uint32_t *ends = calloc(nbatches, sizeof(*ends));
    auto_free bool *bound = calloc(nbatches, sizeof(*bound));
    auto_free bool *joined = calloc(nbatches, sizeof(*joined));
    if (!tensors || !ends || !bound || !joined)
        return -ENOMEM;
    uint32_t k = 0;
    for (uint32_t i = 0; i < nbatches; i++) {
        uint8_t flag = reader_u8(r);
        uint32_t n = reader_u32(r);
        if (r->failed || flag > 1 || n == 0 || n > ntensors - k)
            return -EPROTO;
        for (uint32_t j = 0; j < n; j++) {
            tensors[k] = tensors_by_id(table, reader_u64(r));
            if (!tensors[k] || (flag && has_own_rows(&tensors[k]->cached)))
                return -EPROTO;
            k++;
        }
        ends[i] = k;
        bound[i] = flag;
    }
    const struct plan next = {
        .tensors = tensors, .ends = ends, .bound = bound, .joined = joined, .nbatches = nbatches};
    if (k != ntensors || !reader_ok(r) || join(&next) < 0)
        return -EPROTO;
    for (uint32_t i = 0, j = 0; i < nbatches; i++)
        for (; j < ends[i]; j++)
            tensors[j]->bound = bound[i];
    for (k = 0; k < ntensors; k++) {
        struct tensor *e = tensors[k];
        e->plan = generation;
        /* `want` is set once, so that negotiate_try_next() need not copy it. */
        if (e->state == TENSOR_IDLE)
            e->want = e->cached;
    }
    plan_fini(p);
    p->tensors = TAKE(tensors);
    p->ends = TAKE(ends);
    p->bound = TAKE(bound);
    p->joined = TAKE(joined);
    p->nbatches = nbatches;
    plan_want(p);
    return 0;
}

static struct tensor **batch(const struct plan *p, uint32_t i, uint32_t *ret_n, bool *ret_bound)
{
    uint32_t start = i ? p->ends[i - 1] : 0;
    *ret_n = p->ends[i] - start;
    *ret_bound = p->bound[i];
    return p->tensors + start;
}

struct tensor **plan_batch(const struct plan *p, uint32_t *ret_n, bool *ret_bound)
{
    return batch(p, p->at, ret_n, ret_bound);
}

struct tensor **plan_at(const struct plan *p, uint64_t index, uint32_t *ret_n, bool *ret_bound)
{
    return batch(p, (uint32_t)(index % p->nbatches), ret_n, ret_bound);
}

void plan_want(struct plan *p)
{
    uint32_t last = p->at;
    while (p->joined[last])
        last++;
    p->missing = 0;
    p->wants++;
    for (uint32_t k = p->at ? p->ends[p->at - 1] : 0; k < p->ends[last]; k++) {
        p->tensors[k]->wanted = p->wants;
        if (p->tensors[k]->state != TENSOR_SUBMITTED || !p->tensors[k]->by_id)
            p->missing++;
    }
}

bool plan_submitted(struct plan *p, const struct tensor *e)
{
    return e->wanted == p->wants && --p->missing == 0;
}

void plan_advance(struct plan *p)
{
    p->walked++;
    if (p->bound[p->at])
        p->bound_to = p->walked;
    bool joined = p->joined[p->at];
    p->at = p->at + 1 == p->nbatches ? 0 : p->at + 1;
    if (!joined)
        plan_want(p);
}

void plan_done(struct plan *p, uint64_t index, bool bound)
{
    if (!bound && index >= p->done_to)
        p->done_to = index + 1;
}
