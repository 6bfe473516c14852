/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: see plan.h.
 */
#include "core/negotiate/plan.h"

#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/negotiate/rounds.h"

void plan_fini(struct plan *p)
{
    free(p->tensors);
    free(p->ends);
    free(p->bound);
    *p = (struct plan){.wants = p->wants};
}

/* On the wire: u32 batches, u32 tensors; a batch is u8 bound, u32 n and n ids. */
int plan_read(struct plan *p, const struct tensors *table, uint64_t generation, struct reader *r)
{
    uint32_t nbatches = reader_u32(r), ntensors = reader_u32(r);
    if (r->failed || ntensors == 0 || ntensors > ROUNDS_LOG || nbatches == 0 || nbatches > ntensors)
        return -EPROTO;
    auto_free struct tensor **tensors = calloc(ntensors, sizeof(struct tensor *));
    auto_free uint32_t *ends = calloc(nbatches, sizeof(*ends));
    auto_free bool *bound = calloc(nbatches, sizeof(*bound));
    if (!tensors || !ends || !bound)
        return -ENOMEM;
    uint32_t k = 0;
    for (uint32_t i = 0; i < nbatches; i++) {
        uint8_t flag = reader_u8(r);
        uint32_t n = reader_u32(r);
        if (r->failed || flag > 1 || n == 0 || n > ntensors - k)
            return -EPROTO;
        for (uint32_t j = 0; j < n; j++) {
            tensors[k] = tensors_by_id(table, reader_u64(r));
            if (!tensors[k++])
                return -EPROTO;
        }
        ends[i] = k;
        bound[i] = flag;
    }
    if (k != ntensors || !reader_ok(r))
        return -EPROTO;
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
    p->nbatches = nbatches;
    plan_want(p);
    return 0;
}

struct tensor **plan_batch(const struct plan *p, uint32_t *ret_n, bool *ret_bound)
{
    uint32_t start = p->at ? p->ends[p->at - 1] : 0;
    *ret_n = p->ends[p->at] - start;
    *ret_bound = p->bound[p->at];
    return p->tensors + start;
}

void plan_want(struct plan *p)
{
    uint32_t n;
    bool bound;
    struct tensor **tensors = plan_batch(p, &n, &bound);
    p->missing = 0;
    p->wants++;
    for (uint32_t i = 0; i < n; i++) {
        tensors[i]->wanted = p->wants;
        if (tensors[i]->state != TENSOR_SUBMITTED || !tensors[i]->by_id)
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
    p->at = p->at + 1 == p->nbatches ? 0 : p->at + 1;
    plan_want(p);
}

void plan_done(struct plan *p, uint64_t index, bool bound)
{
    if (!bound && index >= p->done_to)
        p->done_to = index + 1;
}
