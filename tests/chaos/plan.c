/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: see plan.h.
 */
#include "tests/chaos/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/coll/reduce.h"
#include "tests/chaos/codes.h"

uint64_t plan_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ULL;
    return hash_mix(*state);
}

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(plan_random(state) % (uint64_t)n);
}

/* Mostly small: faults depend on the algorithm that a size uses, and large tensors leave time for
 * little else. */
static int64_t random_count(uint64_t *state, int64_t most)
{
    static const struct {
        int percent;
        int64_t elements;
    } sizes[] = {{2, 0}, {30, 60}, {30, 4096}, {22, 65536}, {12, 524288}, {4, INT64_MAX}};
    int64_t draw = below(state, 100);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        draw -= sizes[i].percent;
        if (draw < 0 && sizes[i].elements == 0)
            return 0;
        if (draw < 0)
            return 1 + below(state, sizes[i].elements < most ? sizes[i].elements : most);
    }
    return 1;
}

static void random_allreduce(struct plan_op *op, uint64_t *state, int64_t max_bytes)
{
    static const enum hvd_op ops[] = {HVD_SUM,     HVD_SUM, HVD_SUM, HVD_AVERAGE,
                                      HVD_AVERAGE, HVD_MAX, HVD_MIN};
    op->kind = HVD_ALLREDUCE;
    do {
        op->op = ops[below(state, sizeof(ops) / sizeof(ops[0]))];
        /* Half of them the types that training uses most. */
        op->dtype = below(state, 2) ? HVD_FLOAT32 : (enum hvd_dtype)below(state, REDUCE_DTYPES);
    } while (!codes_can(op->dtype, op->op));
    op->count = random_count(state, max_bytes / (int64_t)hvd_dtype_size(op->dtype));
    op->in_place = below(state, 2);
}

static void random_op(struct plan_op *op, uint64_t *state, int64_t max_bytes)
{
    int64_t draw = below(state, 100);
    random_allreduce(op, state, max_bytes);
    if (draw < 70)
        return;
    op->op = HVD_SUM;
    if (draw < 85) {
        op->kind = HVD_BROADCAST;
        op->in_place = true;
        op->dtype = HVD_FLOAT32;
        op->count = random_count(state, max_bytes / 4);
    } else if (draw < 97) {
        op->kind = HVD_ALLGATHER;
        op->dtype = HVD_INT64;
        op->in_place = false;
        op->count = 1 + below(state, 2000);
    } else {
        op->kind = HVD_BARRIER;
        op->count = 0;
    }
}

static void name_op(struct plan_op *op, int number, const struct plan *p, bool steady,
                    uint64_t *state)
{
    if (steady)
        snprintf(op->name, sizeof(op->name), "steady.%d", number);
    else if (below(state, 3) == 0)
        snprintf(op->name, sizeof(op->name), "once.%" PRIu64 ".%d", p->step, number);
    else
        snprintf(op->name, sizeof(op->name), "mixed.%d", number);
}

/* A burst of 1 to 8 operations; a group is of one kind, and a barrier stands alone. */
static void add_burst(struct plan *p, bool steady, uint64_t *state, int64_t max_bytes)
{
    static const int lengths[] = {1, 1, 2, 3, 8};
    int length = lengths[below(state, 5)];
    enum plan_mode mode = length == 1 ? PLAN_CALL : below(state, 3) == 0 ? PLAN_GROUP : PLAN_ASYNC;
    for (int i = 0; i < length && p->nops < PLAN_MAX_OPS; i++) {
        struct plan_op *op = &p->ops[p->nops];
        do
            random_op(op, state, length == 1 ? max_bytes : max_bytes / 4);
        while (length > 1 && (op->kind == HVD_BARRIER ||
                              (mode == PLAN_GROUP && i > 0 && op->kind != op[-1].kind)));
        op->mode = mode;
        op->burst = p->nbursts;
        op->shift = below(state, 3) ? 0 : (int)below(state, 64);
        name_op(op, p->nops, p, steady, state);
        p->nops++;
    }
    p->nbursts++;
}

/* Tensors have different contents in every step. */
static void salt_ops(struct plan *p, uint64_t seed)
{
    for (int i = 0; i < p->nops; i++)
        p->ops[i].salt = hash_mix(seed ^ hash_mix(p->step * PLAN_MAX_OPS + (uint64_t)i));
}

void plan_step(struct plan *p, uint64_t seed, uint64_t step, int64_t max_bytes)
{
    uint64_t block = step / PLAN_BLOCK;
    bool steady = block % 2 == 0;
    uint64_t state = hash_mix(seed * 1000003 + (steady ? block << 32 : step * 2 + 1));
    *p = (struct plan){.step = step};
    int bursts = 1 + (int)below(&state, 4);
    for (int i = 0; i < bursts; i++)
        add_burst(p, steady, &state, max_bytes);
    salt_ops(p, seed);
}

void plan_only(struct plan *p, const struct plan_op *like, int length, uint64_t seed, uint64_t step)
{
    *p = (struct plan){.step = step, .nops = length, .nbursts = 1};
    for (int i = 0; i < length; i++) {
        p->ops[i] = *like;
        p->ops[i].mode = length == 1 ? PLAN_CALL : PLAN_ASYNC;
        snprintf(p->ops[i].name, sizeof(p->ops[i].name), "only.%d", i);
    }
    salt_ops(p, seed);
}

int plan_parse_only(const char *text, struct plan_op *ret, int *ret_length)
{
    char kind[16], dtype[16], place[8];
    long long count;
    struct plan_op op = {.kind = HVD_KINDS, .dtype = HVD_DTYPES, .op = HVD_SUM};
    if (sscanf(text, "%15[^:]:%15[^:]:%7[^:]:%lld:%d", kind, dtype, place, &count, ret_length) != 5)
        return -EINVAL;
    for (int i = 0; i < HVD_KINDS; i++)
        if (strcmp(kind, hvd_kind_name(i)) == 0)
            op.kind = i;
    for (int i = 0; i < HVD_DTYPES; i++)
        if (strcmp(dtype, hvd_dtype_name(i)) == 0)
            op.dtype = i;
    op.in_place = strcmp(place, "in") == 0;
    op.count = count;
    if (op.kind > HVD_BROADCAST || !codes_can(op.dtype, op.op) || count < 0 || *ret_length < 1 ||
        *ret_length > PLAN_MAX_OPS || (op.kind == HVD_ALLGATHER && op.dtype != HVD_INT64))
        return -EINVAL;
    *ret = op;
    return 0;
}
